"""What would tell too much or cannot be computed is refused before anything is encrypted, and bad messages when they come."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import Message

from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import DataError, PeerLost, PolicyError, ProtocolError, UsageError, VflError
from vfl_node.job import Evaluate
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import decryption_pb2, session_pb2, training_pb2

TAYLOR = {"flow": "coordinator", "loss": "taylor"}
STRONG = {**TAYLOR, "labels": "passive"}
FLOWS = [{}, {"flow": "coordinator-open-scores"}, TAYLOR, STRONG]


def named(given: dict[str, Any]) -> str:
    return "-".join(str(value) for value in given.values()) or "two-party"


@pytest.fixture
def encrypted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels under which anything was encrypted."""
    found: list[str] = []
    stream = Encryptor._stream

    def spying(self: Encryptor, label: str) -> Randomness:
        found.append(label)
        return stream(self, label)

    monkeypatch.setattr(Encryptor, "_stream", spying)
    return found


def but_scores(encrypted: list[str]) -> list[str]:
    """Without those of a passive party that sends its first scores before the active one has refused."""
    return [label for label in encrypted if not label.endswith("/scores/0")]


def errors(results: list[Any]) -> dict[str, VflError]:
    """Party → its own error; those who only lost another are left out."""
    parties = ("clinic", "lab", "hub (clinic)", "hub (lab)")
    return {
        party: found
        for party, found in zip(parties, results, strict=False)
        if isinstance(found, VflError) and not isinstance(found, PeerLost)
    }


# too few rows for the columns


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_fewer_than_two_rows_a_column_of_the_passive_party(
    attempt: Any, shared: Any, logistic: Any, encrypted: list[str], given: Any
) -> None:
    labels = given.get("labels", "active")
    over = shared(rows=59, genuine=59, lab=30, clinic=1, labels=labels, protocol="psi")
    found = errors(attempt(logistic(**given)).raw(over))
    assert set(found) == {"clinic", "lab"}
    for error in found.values():
        assert isinstance(error, PolicyError)
        assert error.code == "E_BATCH"
        assert "59 shared rows has fewer than 2 for each of lab's 30 columns" in error.message
    assert encrypted == []
    over = shared(rows=60, genuine=60, lab=30, clinic=1, labels=labels, protocol="psi")
    assert errors(attempt(logistic(**given)).raw(over)) == {}


def test_or_of_the_active_party_where_the_other_has_the_labels(attempt: Any, shared: Any, logistic: Any) -> None:
    over = shared(rows=59, genuine=59, lab=2, clinic=29, labels="passive", protocol="psi")
    found = errors(attempt(logistic(**STRONG)).raw(over))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_BATCH", "lab": "E_BATCH"}
    assert "clinic's 30 columns" in found["lab"].message  # its intercept is one
    own = shared(rows=59, genuine=59, lab=2, clinic=29, protocol="psi")
    assert errors(attempt(logistic()).raw(own)) == {}  # its own labels it knows


@pytest.mark.parametrize("given", [TAYLOR, STRONG], ids=named)
@pytest.mark.parametrize(("columns", "fine"), [(11, True), (12, False)])
def test_or_genuine_rows_for_the_gradient_that_the_active_party_sees(
    attempt: Any, shared: Any, logistic: Any, encrypted: list[str], given: Any, columns: int, fine: bool
) -> None:
    """From fewer it could solve for the other's scores or labels."""
    over = shared(rows=60, genuine=24, clinic=columns, labels=given.get("labels", "active"))
    found = errors(attempt(logistic(**given)).raw(over))
    if fine:
        assert found == {}
        return
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_BATCH"}
    assert "24 rows that are this party's, and needs 26" in found["clinic"].message
    assert but_scores(encrypted) == []


@pytest.mark.parametrize(("columns", "fine"), [(12, True), (13, False)])
def test_or_genuine_rows_for_the_gradient_that_the_passive_party_sees(
    attempt: Any, shared: Any, logistic: Any, encrypted: list[str], columns: int, fine: bool
) -> None:
    """From fewer it could tell which they are."""
    found = errors(attempt(logistic()).raw(shared(rows=60, genuine=24, lab=columns)))
    assert {party: error.code for party, error in found.items()} == ({} if fine else {"clinic": "E_BATCH"})
    assert bool(encrypted) == fine


def test_batches_count_as_rows_do(attempt: Any, shared: Any, logistic: Any) -> None:
    over = shared(rows=40, genuine=40, lab=10, protocol="psi")
    found = errors(attempt(logistic(batch_size=19)).raw(over))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_BATCH", "lab": "E_BATCH"}
    assert errors(attempt(logistic(batch_size=20)).raw(over)) == {}


def test_few_rows_a_column_are_warned_of(attempt: Any, shared: Any, logistic: Any) -> None:
    def warnings(rows: int, lab: int, clinic: int = 2, **given: Any) -> list[tuple[str, ...]]:
        over = shared(rows=rows, genuine=30, lab=lab, clinic=clinic, labels=given.get("labels", "active"))
        results = attempt(logistic(iterations=1, **given))(over)
        return [tuple(text for text in result.warnings if "fewer than" in text) for result in results]

    for told in warnings(59, 3):
        assert len(told) == 1
        assert "59 shared rows, fewer than 20 for each of lab's 3 columns" in told[0]
    assert warnings(60, 3) == [(), ()]
    both = warnings(40, 3, **STRONG)
    assert [len(told) for told in both] == [2, 2]
    assert "clinic's 3 columns" in " ".join(both[1])


def test_doubts_about_the_job_are_told(attempt: Any, shared: Any, logistic: Any) -> None:
    told = attempt(logistic(short_exponents=True))(shared(rows=60))[1].warnings
    assert any("key has 512 bits" in text for text in told)
    assert any("further assumption" in text for text in told)
    assert any("as few as 0 shared rows" in text for text in told)
    told = attempt(logistic(least_rows=20))(shared(rows=60))[1].warnings
    assert not any("further assumption" in text or "as few as" in text for text in told)


def test_a_column_that_a_few_values_spoil_is_named_to_its_owner(attempt: Any, shared: Any, logistic: Any) -> None:
    over = shared(rows=60)
    name, column = next(iter(over.lab.columns.items()))
    values = column.values.copy()
    values[0] = 999999999
    over = replace(over, lab=replace(over.lab, columns={**over.lab.columns, name: NumericColumn(values)}))
    clinic, lab = ("\n".join(of.warnings) for of in attempt(logistic(iterations=1))(over))
    assert f"Column {name!r}: a few values are so far from all others that these look alike" in lab
    assert "a few values" not in clinic
    robust = attempt(logistic(iterations=1, scaling="auto"))(over)
    assert not any("a few values" in text for of in robust for text in of.warnings)


# who is genuine must have cover


def kinds(over: Any, count: int) -> Any:
    """The same, but the clinic's columns tell its records into ``count`` kinds."""
    column = NumericColumn(np.arange(len(over.clinic)) % count * 1.0)
    clinic = Table(over.clinic.ids, {"x": column}, over.clinic.labels)
    return type(over)(clinic, over.lab, over.clinic_view, over.lab_view, over.labels)


@pytest.mark.parametrize(("count", "fine"), [(2, False), (19, False), (24, True)])
def test_an_active_party_of_few_kinds_has_no_cover(
    attempt: Any, shared: Any, logistic: Any, encrypted: list[str], count: int, fine: bool
) -> None:
    over = kinds(shared(rows=60, genuine=50), count)
    found = errors(attempt(logistic()).raw(over))
    if fine:
        assert found == {}
        return
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_NO_COVER"}
    assert f"into {count} kinds only" in found["clinic"].message
    assert found["clinic"].for_peer == "its owner does not go on"
    assert encrypted == []
    open_set = kinds(shared(rows=50, genuine=50, protocol="psi"), count)
    assert errors(attempt(logistic()).raw(open_set)) == {}  # nothing to hide


def test_more_columns_need_more_kinds(attempt: Any, shared: Any, logistic: Any) -> None:
    found = errors(attempt(logistic()).raw(kinds(shared(rows=60, genuine=50, lab=24), 24)))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_NO_COVER"}
    assert errors(attempt(logistic()).raw(kinds(shared(rows=60, genuine=50, lab=23), 24))) == {}


def test_without_columns_of_its_own_it_has_none(attempt: Any, shared: Any, logistic: Any) -> None:
    found = errors(attempt(logistic()).raw(shared(clinic=0)))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_NO_COVER"}


def test_no_genuine_row_at_all(attempt: Any, shared: Any, logistic: Any, encrypted: list[str]) -> None:
    found = errors(attempt(logistic()).raw(shared(genuine=0)))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_STOPPED"}
    assert found["clinic"].for_peer == "its owner does not go on"
    assert encrypted == []


def test_a_batch_of_dummies_alone(attempt: Any, shared: Any, logistic: Any, encrypted: list[str]) -> None:
    over = shared(rows=400, genuine=25, population=400)
    found = errors(attempt(logistic(batch_size=8, iterations=100)).raw(over))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_BATCH"}
    assert "0 rows that are this party's" in found["clinic"].message
    assert encrypted == []
    assert errors(attempt(logistic(batch_size=200, iterations=4)).raw(over)) == {}


# tables


@pytest.mark.parametrize("labels", ["active", "passive"])
def test_labels_of_one_class(attempt: Any, shared: Any, logistic: Any, encrypted: list[str], labels: str) -> None:
    given = STRONG if labels == "passive" else {}
    over = shared(labels=labels)
    holder, view = (over.lab, over.lab_view) if labels == "passive" else (over.clinic, over.clinic_view)
    assert holder.labels is not None
    holder.labels[view.rows[view.owned]] = 1.0
    found = errors(attempt(logistic(**given)).raw(over))
    assert {error.code for error in found.values()} == {"E_ONE_CLASS"}
    assert set(found) == {"lab" if labels == "passive" else "clinic"}
    assert encrypted == []
    holder.labels[view.rows[view.owned][:1]] = 0.0
    assert errors(attempt(logistic(**given)).raw(over)) == {}


def test_no_label_column(attempt: Any, shared: Any, logistic: Any) -> None:
    found = errors(attempt(logistic()).raw(shared(labels="passive")))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_NO_LABEL"}


def test_no_column_at_the_passive_party(attempt: Any, shared: Any, logistic: Any, encrypted: list[str]) -> None:
    found = errors(attempt(logistic()).raw(shared(lab=0)))
    assert {party: error.code for party, error in found.items()} == {"lab": "E_NO_FEATURES"}
    constant = errors(attempt(logistic()).raw(shared(lab=0, columns=[np.ones(60)])))
    assert {party: error.code for party, error in constant.items()} == {"lab": "E_NO_FEATURES"}
    assert encrypted == []


def test_no_shared_row(attempt: Any, shared: Any, logistic: Any) -> None:
    found = errors(attempt(logistic()).raw(shared(rows=0, genuine=0)))
    assert {error.code for error in found.values()} == {"E_EMPTY"}


@pytest.mark.parametrize("labels", ["active", "passive"])
def test_rare_columns_are_left_out_and_named(attempt: Any, shared: Any, logistic: Any, difference: Any, labels: str) -> None:
    given = STRONG if labels == "passive" else {}
    rare, common = np.zeros(60), np.zeros(60)
    rare[:6], common[:25] = 1.0, 1.0
    with_rare = shared(60, 50, lab=2, columns=[common, rare], labels=labels)
    train = logistic(least_rows=7, **given)
    clinic, lab = attempt(train)(with_rare)
    assert lab.section.dropped == ("more1",)
    assert lab.section.features["lab"] == 3
    assert lab.weights["weight"][0, 3] == 0
    assert clinic.section.dropped == ()
    without = attempt(train)(shared(60, 50, lab=2, columns=[common], labels=labels))
    torch.testing.assert_close(lab.weights["weight"][:, :3], without[1].weights["weight"], atol=1e-12, rtol=0)
    kept = attempt(logistic(least_rows=6, **given))(with_rare)[1]
    assert kept.section.dropped == ()
    assert kept.weights["weight"][0, 3] != 0


def test_rare_columns_of_an_active_party_without_labels_too(attempt: Any, shared: Any, logistic: Any) -> None:
    def clinic(**given: Any) -> Any:
        over = shared(60, 40, labels=given.get("labels", "active"))
        rare = np.zeros(len(over.clinic))
        rare[over.clinic_view.rows[over.clinic_view.owned][:3]] = 1.0
        table = Table(over.clinic.ids, {**over.clinic.columns, "rare": NumericColumn(rare)}, over.clinic.labels)
        return attempt(logistic(least_rows=4, **given))(
            type(over)(table, over.lab, over.clinic_view, over.lab_view, over.labels)
        )[0]

    assert clinic(**STRONG).section.dropped == ("rare",)
    assert clinic(**TAYLOR).section.dropped == ()  # it knows its labels


# numbers


def test_an_overflow_is_found_before_the_first_encryption(
    attempt: Any, shared: Any, logistic: Any, encrypted: list[str]
) -> None:
    train = logistic(**TAYLOR).model_copy(update={"key_bits": 170})
    found = errors(attempt(train).raw(shared()))
    assert {error.code for error in found.values()} == {"E_OVERFLOW"}
    for error in (found["clinic"], found["lab"]):
        assert isinstance(error, UsageError)
        assert "has up to 108" in error.message
        assert "170" in error.message
    assert encrypted == []


@pytest.mark.parametrize(
    ("given", "who"),
    [
        ({"loss": "taylor"}, "clinic"),
        ({"flow": "coordinator-open-scores", "loss": "taylor"}, "clinic"),
        (TAYLOR, "lab"),
        (STRONG, "clinic"),
        ({"l2": 900.0}, "clinic"),
    ],
    ids=str,
)
def test_training_that_runs_away_is_ended(attempt: Any, shared: Any, logistic: Any, given: Any, who: str) -> None:
    over = shared(labels=given.get("labels", "active"))
    found = errors(attempt(logistic(learning_rate=900.0, iterations=80, **given)).raw(over))
    assert {error.code for error in found.values()} == {"E_DIVERGED"}
    assert who in found or len(found) == 1
    assert all(isinstance(error, DataError) for error in found.values())
    assert errors(attempt(logistic(learning_rate=0.5, iterations=8, **({} if "l2" in given else given))).raw(over)) == {}


# keys


def replaced(kind: type[Message], change: Callable[[Any], None], sender: str | None = None, nth: int = 0) -> Any:
    """Changes the ``nth`` message of ``kind`` (from ``sender``)."""
    left = nth

    def tamper(sent: Any) -> None:
        nonlocal left
        if isinstance(sent.message, kind) and sender in (None, sent.sender):
            if left == 0:
                change(sent.message)
            left -= 1

    return tamper


@pytest.mark.parametrize("given", FLOWS[:3], ids=named)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda message: message.MergeFrom(bad_size()), "640 bits"),
        (lambda message: setattr(message, "proof", b""), "proof of 0 bytes"),
        (lambda message: setattr(message, "proof", bytes(len(message.proof))), "does not hold"),
        (lambda message: setattr(message, "n", divisible(message.n)), "prime factor"),
    ],
    ids=["size", "no proof", "wrong proof", "small factor"],
)
def test_a_bad_key_ends_the_job(
    attempt: Any, shared: Any, logistic: Any, encrypted: list[str], given: Any, change: Any, said: str
) -> None:
    made = attempt(logistic(**given), tamper=lambda sent: replaced(decryption_pb2.PaillierKey, change)(sent))
    found = errors(made.raw(shared()))
    assert {error.code for error in found.values()} == {"E_KEY"}
    assert "lab" in found
    assert said in found["lab"].message
    assert encrypted == []


def divisible(n: bytes) -> bytes:
    return (int.from_bytes(n, "big") // 3 * 3).to_bytes(len(n), "big")


def bad_size() -> decryption_pb2.PaillierKey:
    other = keys.generate(640, Randomness(bytes(32)))
    return decryption_pb2.PaillierKey(n=other.public.to_bytes(), proof=keys.prove(other, b"memory"))


@pytest.mark.parametrize("given", FLOWS[1:], ids=named)
def test_two_keys_of_one_coordinator(
    attempt: Any, shared: Any, logistic: Any, hub: Any, encrypted: list[str], given: Any
) -> None:
    other = keys.generate(512, Randomness(bytes(32)))
    found = errors(attempt(logistic(**given), hub=(hub, other)).raw(shared(labels=given.get("labels", "active"))))
    assert found["clinic"].code == "E_KEY"
    assert "another key than this party was given" in found["clinic"].message
    assert but_scores(encrypted) == []
    assert errors(attempt(logistic(**given), hub=(other, other)).raw(shared(labels=given.get("labels", "active")))) == {}


# what the peer sends


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("nth", [0, 2, 3])
def test_scores_that_are_no_numbers(attempt: Any, shared: Any, logistic: Any, value: float, nth: int) -> None:
    def change(message: training_pb2.Scores) -> None:
        scores = codec.decode(message.tensor, dtype=torch.float64, shape=tuple(message.tensor.shape)).clone()
        scores[1, 0] = value
        message.tensor.CopyFrom(codec.encode(scores))

    found = errors(attempt(logistic(), tamper=replaced(training_pb2.Scores, change, nth=nth)).raw(shared()))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_NAN"}


class Spoilt:
    """Replaces the first ciphertext of a sender by ``value``, and the digest that goes with it."""

    def __init__(self, sender: str, value: int) -> None:
        self.sender, self.value = sender, value
        self.digest: bytes | None = None

    def __call__(self, sent: Any) -> None:
        if sent.sender != self.sender:
            return
        if isinstance(sent.message, session_pb2.Chunk) and self.digest is None:
            sent.message.rows = self.value.to_bytes(128, "big") + sent.message.rows[128:]
            self.digest = hashlib.sha256(sent.message.rows).digest()
        elif isinstance(sent.message, session_pb2.RowsEnd) and self.digest:
            sent.message.sha256, self.digest = self.digest, b""


@pytest.mark.parametrize(
    ("given", "sender", "receiver"),
    [
        ({}, "clinic", "lab"),
        ({}, "lab", "clinic"),
        ({"flow": "coordinator-open-scores"}, "clinic", "lab"),
        ({"flow": "coordinator-open-scores"}, "lab", "hub (lab)"),
        (TAYLOR, "lab", "clinic"),
        (TAYLOR, "clinic", "lab"),
        (STRONG, "clinic", "lab"),
        (STRONG, "lab", "clinic"),
    ],
    ids=str,
)
@pytest.mark.parametrize("value", [0, (1 << 1024) - 1], ids=["zero", "too large"])
def test_what_is_no_ciphertext(
    attempt: Any, shared: Any, logistic: Any, given: Any, sender: str, receiver: str, value: int
) -> None:
    found = errors(attempt(logistic(**given), tamper=Spoilt(sender, value)).raw(shared(labels=given.get("labels", "active"))))
    assert {party: error.code for party, error in found.items()} == {receiver: "E_CIPHERTEXT"}
    assert isinstance(found[receiver], ProtocolError)


@pytest.mark.parametrize(
    ("given", "kind", "sender", "receiver"),
    [
        ({}, training_pb2.Scores, "lab", "clinic"),
        ({}, training_pb2.Encrypted, "clinic", "lab"),
        ({}, training_pb2.IterationEnd, "clinic", "lab"),
        ({}, decryption_pb2.Decrypted, "clinic", "lab"),
        (TAYLOR, training_pb2.Encrypted, "lab", "clinic"),
        (TAYLOR, training_pb2.Encrypted, "clinic", "lab"),
        (STRONG, training_pb2.Encrypted, "clinic", "lab"),
        (STRONG, training_pb2.IterationEnd, "lab", "clinic"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.parametrize("nth", [0, 1])
def test_another_iteration_than_is_due(
    attempt: Any, shared: Any, logistic: Any, given: Any, kind: Any, sender: str, receiver: str, nth: int
) -> None:
    def later(message: Any) -> None:
        message.step += 1

    tamper = replaced(kind, later, sender, nth)
    found = errors(attempt(logistic(**given), tamper=tamper).raw(shared(labels=given.get("labels", "active"))))
    assert {party: error.code for party, error in found.items()} == {receiver: "E_ORDER"}


@pytest.mark.parametrize(
    ("given", "receiver"), [({}, "clinic"), ({"flow": "coordinator-open-scores"}, "hub (lab)"), (TAYLOR, "hub (lab)")], ids=str
)
def test_a_request_for_another_iteration(attempt: Any, shared: Any, logistic: Any, given: Any, receiver: str) -> None:
    def earlier(message: decryption_pb2.DecryptionRequest) -> None:
        message.step = 0

    tamper = replaced(decryption_pb2.DecryptionRequest, earlier, "lab", 1)
    found = errors(attempt(logistic(**given), tamper=tamper).raw(shared()))
    assert {party: error.code for party, error in found.items()} == {receiver: "E_DECRYPTION"}


def test_other_ciphertexts_than_are_due(attempt: Any, shared: Any, logistic: Any) -> None:
    def change(message: training_pb2.Encrypted) -> None:
        message.tensor = "squares"

    found = errors(attempt(logistic(**TAYLOR), tamper=replaced(training_pb2.Encrypted, change, "lab")).raw(shared()))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_ORDER"}
    assert "than the scores that were due" in found["clinic"].message


def test_more_columns_than_were_announced(attempt: Any, shared: Any, logistic: Any) -> None:
    """A passive party that says it has five columns may not have forty values decrypted."""

    def change(message: decryption_pb2.DecryptionPlan) -> None:
        message.tensors[0].units = 40

    found = errors(attempt(logistic(), tamper=replaced(decryption_pb2.DecryptionPlan, change)).raw(shared()))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_DECRYPTION"}


def test_scores_of_another_shape(attempt: Any, shared: Any, logistic: Any) -> None:
    def change(message: training_pb2.Scores) -> None:
        message.tensor.CopyFrom(codec.encode(torch.zeros(39, 1, dtype=torch.float64)))

    found = errors(attempt(logistic(), tamper=replaced(training_pb2.Scores, change)).raw(shared()))
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_SHAPE"}


def test_no_error_names_a_value_or_who_is_genuine(attempt: Any, shared: Any, logistic: Any) -> None:
    """What the peer is told, of every refusal by the party with the secret."""
    told = []
    one_class = shared()
    one_class.clinic.labels[:] = 1.0
    for over, given in [
        (one_class, {}),
        (shared(genuine=0), {}),
        (kinds(shared(rows=60, genuine=50), 3), {}),
        (shared(rows=400, genuine=25, population=400), {"batch_size": 8, "iterations": 100}),
        (shared(rows=40, genuine=24, clinic=23), TAYLOR),
    ]:
        error = errors(attempt(logistic(**given)).raw(over))["clinic"]
        told.append((error.for_peer, error.peer_code))
    assert set(told) == {("its owner does not go on", "E_STOPPED")}


def test_held_out_rows_are_part_of_none_of_it(attempt: Any, shared: Any, logistic: Any) -> None:
    found = errors(attempt(logistic(), Evaluate(test_fraction=0.9)).raw(shared(rows=40, lab=4)))
    assert {error.code for error in found.values()} == {"E_BATCH"}
    assert "over 4 shared rows" in found["lab"].message
