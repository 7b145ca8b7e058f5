"""What each party sees of the others in a run: ciphertexts without a pattern, and nothing in clear that it should not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from tests.thorough import every, examples
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import integers
from vfl_node.data.design import LinearEncoder
from vfl_node.job import Evaluate
from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks.residuals import Round, scores
from vfl_node.training.glm import agreement, blind, strong_labels
from vfl_node.training.glm.flow import IterationContext
from vfl_node.training.glm.scales import WEIGHT, Scales
from vfl_node.transport.generated.vfl.v1 import decryption_pb2, session_pb2, training_pb2

TAYLOR = {"flow": "coordinator", "loss": "taylor"}
FLOWS = [
    {},
    {"flow": "coordinator-open-scores"},
    TAYLOR,
    {**TAYLOR, "tolerance": 1e-12},
    {**TAYLOR, "tolerance": 1e-12, "labels": "passive"},
]


def named(given: dict[str, Any]) -> str:
    return "-".join(str(value) for value in given.values()) or "two-party"


def encrypted(made: Any, receiver: str) -> list[list[mpz]]:
    """Each column of ciphertexts that ``receiver`` was sent."""
    width = made.hub[0].public.width
    return [integers(column.rows.tobytes(), width) for column in made.columns(receiver) if column.rows.shape[1] == width]


def key(made: Any) -> mpz:
    return next(
        mpz.from_bytes(sent.message.n, "big")
        for sent in made.transcript
        if isinstance(sent.message, decryption_pb2.PaillierKey)
    )


@pytest.mark.parametrize("given", [*FLOWS, {"classes": 4}, {**TAYLOR, "classes": 4}], ids=named)
def test_ciphertexts_are_as_many_as_rows_and_no_two_alike(attempt: Any, shared: Any, logistic: Any, given: Any) -> None:
    over = shared(labels=given.get("labels", "active"), classes=given.get("classes", 2))
    made = attempt(logistic(**given))
    made(over)
    groups = len(Scales.from_config(made.train).groups)  # two to four outputs fit a ciphertext of this small key
    kinds = 3 if made.train.labels == "passive" else 1  # weights, weighted scores and squares; or residuals
    columns = encrypted(made, "lab")
    assert [len(column) for column in columns] == [len(over) * groups] * kinds * 3
    everything = [
        ciphertext for party in ("clinic", "lab", "hub") for column in encrypted(made, party) for ciphertext in column
    ]
    assert len(set(everything)) == len(everything)
    assert not any(ciphertext % key(made) == 1 for ciphertext in everything)


@pytest.mark.parametrize("given", [{}, {"flow": "coordinator-open-scores"}, TAYLOR], ids=named)
def test_without_noise_dummies_would_be_plain_to_see(
    attempt: Any, shared: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    over, made = shared(), attempt(logistic(**given))
    monkeypatch.setattr(
        Encryptor, "_multiply", lambda self, numbers, noise: self.public.rows(number % self.public.square for number in numbers)
    )
    made(over)
    for column in encrypted(made, "lab"):
        assert [ciphertext == 1 for ciphertext in column] == (~over.genuine).tolist()


def test_symbols_that_anyone_can_compute_tell_nothing(
    attempt: Any, shared: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Jacobi symbol of Enc(u)^factor · noise is that of Enc(u), which its sender knows, times the noise's (odd factor)."""
    over = shared(rows=60, genuine=29)
    assert round(0.25 / 29 * 2**WEIGHT) % 2

    def varies() -> list[bool]:
        made = attempt(logistic(iterations=examples(20, fewer=14), **TAYLOR))
        made(over)
        received = np.array(
            [[gmpy2.jacobi(ciphertext, key(made)) for ciphertext in column] for column in encrypted(made, "lab")]
        )
        return ((received < 0).any(axis=0) & (received > 0).any(axis=0)).tolist()

    assert all(varies())
    encrypt = Encryptor.encrypt

    def with_squares(self: Encryptor, values: Any, label: str) -> Any:
        if "residuals" not in label:
            return encrypt(self, values, label)
        n, square = mpz(self.public.n), self.public.square
        noise = self.public.integers(encrypt(self, [0] * len(values), label))
        return self.public.rows(rho**2 * (1 + value * n) % square for rho, value in zip(noise, values, strict=True))

    monkeypatch.setattr(Encryptor, "encrypt", with_squares)
    assert varies() == over.genuine.tolist()


@pytest.mark.parametrize(
    ("given", "label"), [(TAYLOR, "residuals/0"), (FLOWS[4], "weighted scores")], ids=["active", "passive"]
)
def test_numbers_under_encryption_end_in_noise(
    attempt: Any, shared: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch, given: Any, label: str
) -> None:
    """Sums of them are the passive party's own gradient; zeros that floats leave behind the last bit would show there."""
    over = shared(labels=given.get("labels", "active"))
    found: list[list[int]] = []
    encrypt = Encryptor.encrypt

    def spying(self: Encryptor, values: Any, of: str) -> Any:
        if of.endswith(f"/{label}"):
            found.append(list(values))
        return encrypt(self, values, of)

    monkeypatch.setattr(Encryptor, "encrypt", spying)
    attempt(logistic(**given))(over)
    attempt(logistic(**given), number=2)(over)
    assert found[:3] == found[3:]  # an iteration that is repeated has the same, so that it tells nothing new
    for values in found:
        own = [value for value, genuine in zip(values, over.genuine, strict=True) if genuine]
        assert len({value % 2**16 for value in own}) == len(own)
        assert [value == 0 for value in values] == (~over.genuine).tolist()
    found.clear()
    for module in (blind, strong_labels):
        monkeypatch.setattr(module, "dither", lambda values, genuine, randomness: values)
    attempt(logistic(**given))(over)
    assert {value % 2**16 for value in found[0]} == {0}


def sizes(made: Any) -> list[tuple[str, str, str, int]]:
    """Of every message in order: from whom, to whom, what, how many bytes."""
    return [(*sent[:2], sent.message.DESCRIPTOR.name, sent.message.ByteSize()) for sent in made.transcript]


@pytest.mark.parametrize("given", every(2, FLOWS), ids=named)
def test_number_and_size_of_messages_do_not_depend_on_who_is_genuine(
    attempt: Any, shared: Any, logistic: Any, given: Any
) -> None:
    labels = given.get("labels", "active")
    made = [attempt(logistic(**given)) for _ in range(4)]
    overs = [shared(genuine=size, labels=labels, seed=seed) for size, seed in ((20, 0), (37, 0), (20, 1))]
    for of, over in zip(made, [*overs, shared(rows=39, labels=labels)], strict=True):
        of(over)
    assert sizes(made[0]) == sizes(made[1]) == sizes(made[2])
    assert sizes(made[0]) != sizes(made[3])


def clear(made: Any, receiver: str) -> list[bytes]:
    """What ``receiver`` was sent beside columns (ciphertexts, and its own masked sums) and digests over them."""
    columns = (session_pb2.Chunk, session_pb2.RowsEnd, session_pb2.PhaseEnd)
    return [
        sent.message.SerializeToString()
        for sent in made.transcript
        if sent.receiver == receiver and not isinstance(sent.message, columns)
    ]


@pytest.mark.parametrize("given", FLOWS[:4], ids=named)
def test_what_the_passive_party_gets_in_clear_is_the_same_whoever_is_genuine(
    attempt: Any, shared: Any, logistic: Any, given: Any
) -> None:
    """Neither |I| nor a label or a residual is in it, then; and its columns are under encryption or a mask of its own."""
    made = [attempt(logistic(**given)) for _ in range(2)]
    overs = [shared(genuine=20), shared(genuine=37)]
    overs[1].clinic.labels[:] = 1 - overs[1].clinic.labels
    for of, over in zip(made, overs, strict=True):
        of(over)
    assert clear(made[0], "lab") == clear(made[1], "lab")
    assert clear(made[0], "clinic") != clear(made[1], "clinic") or given.get("flow") == "coordinator"
    wide = made[0].hub[0].public.width
    senders = {column.head.DESCRIPTOR.name: column.rows.shape[1] for column in made[0].columns("lab")}
    assert senders == {"Encrypted": wide, "Decrypted": -(-Scales.from_config(made[0].train).returned_bits // 8)}


def test_figures_that_the_job_shares_would_differ(attempt: Any, shared: Any, logistic: Any) -> None:
    made = [attempt(logistic(), Evaluate(test_fraction=0, share_with_passive=True)) for _ in range(2)]
    overs = [shared(genuine=40, protocol="psi") for _ in range(2)]
    overs[1].clinic.labels[:] = 1 - overs[1].clinic.labels
    for of, over in zip(made, overs, strict=True):
        of(over)
    differing = [a for a, b in zip(clear(made[0], "lab"), clear(made[1], "lab"), strict=True) if a != b]
    assert len(differing) == 1
    assert b"auc" in differing[0]


@pytest.mark.parametrize("given", FLOWS[1:], ids=named)
def test_the_coordinator_gets_requests_and_nothing_else(attempt: Any, shared: Any, logistic: Any, given: Any) -> None:
    over, made = shared(labels=given.get("labels", "active")), attempt(logistic(**given))
    made(over)
    expected = {"DecryptionPlan", "DecryptionRequest", "Rows", "Chunk", "RowsEnd", "PhaseEnd"}
    assert {sent.message.DESCRIPTOR.name for sent in made.transcript if sent.receiver == "hub"} == expected
    asked = [
        (sent.sender, sent.message.step, sent.message.tensor)
        for sent in made.transcript
        if isinstance(sent.message, decryption_pb2.DecryptionRequest) and not sent.message.done
    ]
    losses = {"active": "clinic", "passive": "lab"}[given.get("labels", "active")]
    blind = given["flow"] == "coordinator"
    assert sorted(asked) == sorted(
        [("lab", step, "gradient") for step in range(3)]
        + [("clinic", step, "gradient") for step in range(3) if blind]
        + [(losses, step, "loss") for step in range(3) if "tolerance" in given]
    )


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_scores_cross_in_clear_where_the_flow_says_so(attempt: Any, shared: Any, logistic: Any, given: Any) -> None:
    over, made = shared(labels=given.get("labels", "active")), attempt(logistic(**given))
    if made.train.labels == "active":
        made.evaluate = Evaluate(test_fraction=0.25)
        over = shared(rows=50, genuine=40)
    made(over)
    found = [sent for sent in made.transcript if isinstance(sent.message, training_pb2.Scores)]
    assert {(sent.sender, sent.receiver) for sent in found} <= {("lab", "clinic")}
    rows = [list(sent.message.tensor.shape) for sent in found]
    if made.train.labels == "passive":
        assert rows == []
    elif made.train.flow == "coordinator":
        assert rows == [[13, 1]]
    else:
        assert rows == [[37, 1]] * 3 + [[13, 1]]


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> list[Round]:
    """What the passive party of a two-party flow takes from each iteration."""
    found: list[Round] = []
    own_gradient = IterationContext.own_gradient

    async def spying(context: IterationContext, step: int, positions: Any, residuals: Any, fraction: int) -> Any:
        gradient = await own_gradient(context, step, positions, residuals, fraction)
        found.append(Round(positions, gradient[:, 0]))
        return gradient

    monkeypatch.setattr(IterationContext, "own_gradient", spying)
    return found


def lab_columns(over: Any) -> np.ndarray:
    design = LinearEncoder.fit(over.lab, "standard").transform(over.lab)
    return design.values[over.lab_view.rows]


@pytest.fixture
def told(attempt: Any, shared: Any, logistic: Any, gradients: list[Round]) -> Callable[..., float]:
    """How well the attack that averages over rounds ranks dummies by the passive party's own gradients, from real runs."""

    def told(rows: int, lab: int, *, warned: bool, **given: Any) -> float:
        found = []
        for seed in range(2):
            over = shared(rows, rows // 2, population=rows, clinic=4, lab=lab, seed=seed)
            gradients.clear()
            made = attempt(logistic(learning_rate=0.3, **given), seeds=(bytes([seed]) * 32, bytes([seed + 9]) * 32))
            warnings = " ".join(made(over)[0].warnings)
            assert ("fewer than 20" in warnings) == warned
            assert len(gradients) == given["iterations"]
            found.append(auc(over.genuine, scores(lab_columns(over), gradients)))
        return float(np.mean(found))

    return told


AMPLE = 0.55
"""As well as it may over ample rows."""


def test_dummies_cannot_be_told_from_gradients_over_ample_rows(told: Callable[..., float]) -> None:
    assert 0.47 < told(400, 8, warned=False, iterations=20) < AMPLE
    assert told(300, 60, warned=True, iterations=10) > AMPLE + 0.03


@pytest.mark.slow
def test_dummies_can_be_told_from_gradients_over_rows_that_are_refused(
    told: Callable[..., float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "LEAST", 0)  # what is refused
    assert told(400, 8, warned=True, iterations=200, batch_size=16) > AMPLE + 0.1
    assert told(100, 40, warned=True, iterations=10) > AMPLE + 0.1
