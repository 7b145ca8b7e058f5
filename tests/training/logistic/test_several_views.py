"""What each of several parties sees of the others and may have decrypted, whom a refusal names, and restarts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.logistic.conftest import HUB, Attempt, Sent
from tests.training.logistic.several import PASSIVE, among, attempt_of
from vfl_node.crypto.paillier import keys
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.keys import integers
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.engines.contract import Inline
from vfl_node.errors import PeerLost, VflError
from vfl_node.job import Evaluate, Job
from vfl_node.training.glm.coordinator import result
from vfl_node.training.glm.scales import Scales
from vfl_node.training.glm.side import Side
from vfl_node.training.words import ReportedTraining
from vfl_node.transport.generated.vfl.v1 import decryption_pb2, session_pb2, training_pb2

CLEAR = {"flow": "coordinator-open-scores"}
TAYLOR = {"flow": "coordinator", "loss": "taylor"}
STOPPING = {**TAYLOR, "tolerance": 1e-12}
FLOWS = [CLEAR, STOPPING]


def named(given: dict[str, Any]) -> str:
    return "-".join(str(value) for value in given.values())


@pytest.fixture
def over(shared: Any) -> Any:
    return among(shared(rows=30, genuine=30, lab=3, protocol="psi"), *PASSIVE)


def in_clear(made: Attempt, receiver: str) -> list[bytes]:
    """What ``receiver`` was sent beside columns (ciphertexts, and its own masked sums) and digests over them."""
    columns = (session_pb2.Chunk, session_pb2.RowsEnd, session_pb2.PhaseEnd)
    return [
        sent.message.SerializeToString()
        for sent in made.transcript
        if sent.receiver == receiver and not isinstance(sent.message, columns)
    ]


def changed(over: Any, party: str) -> Any:
    """The same, but of ``party`` other values, as many."""
    table, view = over.passive[party]
    columns = {name: NumericColumn(column.values[::-1] ** 2) for name, column in table.columns.items()}
    return dataclasses.replace(over, passive=over.passive | {party: (Table(table.ids, columns, None), view)})


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_nothing_that_a_passive_party_gets_in_clear_depends_on_another_one(over: Any, logistic: Any, given: Any) -> None:
    """The rest are ciphertexts, and its own gradient behind its own mask."""
    made = [attempt_of(of, logistic(**given)) for of in (over, changed(over, "insurer"))]
    results = [of(data) for of, data in zip(made, (over, changed(over, "insurer")), strict=True)]
    for party in ("lab", "shop"):
        assert in_clear(made[0], party) == in_clear(made[1], party)
        assert {sent.sender for sent in made[0].transcript if sent.receiver == party} == {"clinic", "hub"}
        wide, answers = HUB.public.width, -(-Scales.from_config(made[0].train, 3).returned_bits // 8)
        columns = {(column.sender, column.rows.shape[1]) for column in made[0].columns(party)}
        assert columns == {("clinic", wide), ("hub", answers)}
    assert not torch.equal(results[0][1].weights["weight"], results[1][1].weights["weight"])  # its own gradients depend on all
    measured = training_pb2.Scores(step=3).SerializeToString()
    seen = [[text for text in in_clear(of, "clinic") if not text.startswith(measured)] for of in made]
    assert (seen[0] == seen[1]) == (given["flow"] == "coordinator")  # in the clear flow it sees scores of rows trained on


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_each_passive_party_gets_the_residuals_and_every_ciphertext_has_noise_of_its_own(
    over: Any, logistic: Any, given: Any
) -> None:
    made = attempt_of(over, logistic(**given))
    made(over)
    again = made.again(resume_from=None, state=type(made.state)())
    again(over)
    width = HUB.public.width

    def ciphertexts(of: Attempt, receiver: str) -> list[list[Any]]:
        return [integers(column.rows.tobytes(), width) for column in of.columns(receiver) if column.rows.shape[1] == width]

    residuals = ciphertexts(made, "lab")
    assert [len(column) for column in residuals] == [len(over)] * 3
    assert residuals == ciphertexts(made, "insurer") == ciphertexts(made, "shop")  # the same plaintexts, as the job says
    everything = [
        number
        for of in (made, again)
        for party in ("clinic", "lab", "hub")
        for column in ciphertexts(of, party)
        for number in column
    ]
    assert len(set(everything)) == len(everything)
    assert not any(number % HUB.public.n == 1 for number in everything)


def test_the_active_party_gets_a_product_of_each_that_the_coordinator_alone_could_read(over: Any, logistic: Any) -> None:
    """Half of weights times gradient, one number an iteration; with noise behind its last bits."""
    products: list[float] = []
    made, product = attempt_of(over, logistic(**STOPPING)), Side.product

    def spying(side: Side, gradient: Any) -> float:
        products.append(product(side, gradient))
        return products[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Side, "product", spying)
        made(over)
    sent = [column for column in made.columns("clinic") if getattr(column.head, "tensor", "") == "products"]
    assert sorted(column.sender for column in sent) == sorted(PASSIVE * 3)
    opened = decrypt(HUB, np.concatenate([column.rows for column in sent]), Inline())
    signed = [value - HUB.public.n if value > HUB.public.n // 2 else value for value in map(int, opened)]
    for value in signed:
        assert min(abs(value / 2**80 - known / 2) for known in products) < 2**-39
    assert len({value % 2**16 for value in signed}) == len(signed)


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_the_coordinator_gets_requests_of_each_party_and_nothing_else(over: Any, logistic: Any, given: Any) -> None:
    made = attempt_of(over, logistic(**given))
    made(over)
    expected = {"DecryptionPlan", "DecryptionRequest", "Rows", "Chunk", "RowsEnd", "PhaseEnd"}
    assert {sent.message.DESCRIPTOR.name for sent in made.transcript if sent.receiver == "hub"} == expected
    asked = [
        (sent.sender, sent.message.step, sent.message.tensor)
        for sent in made.transcript
        if isinstance(sent.message, decryption_pb2.DecryptionRequest) and not sent.message.done
    ]
    assert sorted(asked) == sorted(
        [(party, step, "gradient") for party in PASSIVE for step in range(3)]
        + [("clinic", step, "gradient") for step in range(3) if given["flow"] == "coordinator"]
        + [("clinic", step, "loss") for step in range(3) if "tolerance" in given]
    )


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_number_and_size_of_messages_do_not_depend_on_who_is_genuine(shared: Any, logistic: Any, given: Any) -> None:
    def sizes(genuine: int) -> list[tuple[str, str, str, int]]:
        data = among(shared(rows=40, genuine=genuine, lab=3), *PASSIVE)
        made = attempt_of(data, logistic(**given))
        made(data)
        return [(*sent[:2], sent.message.DESCRIPTOR.name, sent.message.ByteSize()) for sent in made.transcript]

    assert sizes(22) == sizes(37)


# what is refused


def errors(made: Attempt, over: Any) -> dict[str, VflError]:
    """Party → its own error; those who only lost another are left out."""
    parties = [*over.data, *(f"hub ({party})" for party in over.data)]
    return {
        party: found
        for party, found in zip(parties, made.raw(over), strict=True)
        if isinstance(found, VflError) and not isinstance(found, PeerLost)
    }


def test_a_passive_party_with_another_key_is_named(over: Any, logistic: Any) -> None:
    other = keys.generate(512, Randomness(bytes(32)))
    found = errors(attempt_of(over, logistic(**TAYLOR), hub=(HUB, HUB, other, HUB)), over)
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_KEY"}
    assert "insurer encrypts under another key" in found["clinic"].message


def edited(kind: Any, sender: str, edit: Callable[[Any], None]) -> Callable[[Sent], None]:
    """Changes the first message of ``kind`` from ``sender``."""
    left = [edit]

    def tamper(sent: Sent) -> None:
        if left and isinstance(sent.message, kind) and sent.sender == sender:
            left.pop()(sent.message)

    return tamper


def wider(plan: decryption_pb2.DecryptionPlan) -> None:
    plan.tensors[0].units += 5


def swapped(plan: decryption_pb2.DecryptionPlan) -> None:
    plan.theirs[0].units, plan.theirs[0].party = plan.theirs[0].units + 5, "shop"
    del plan.theirs[1:]


def stranger(plan: decryption_pb2.DecryptionPlan) -> None:
    plan.theirs[0].party = "hub"


def nobody(plan: decryption_pb2.DecryptionPlan) -> None:
    plan.theirs[0].party = ""


@pytest.mark.parametrize("given", [CLEAR, STOPPING], ids=named)
@pytest.mark.parametrize(
    ("sender", "edit", "code", "said"),
    [
        ("insurer", wider, "E_REPLAY", "another decryption plan of insurer"),
        ("clinic", swapped, "E_REPLAY", "another decryption plan of shop"),
        ("clinic", stranger, "E_DECRYPTION", "clinic states the plan of a party that is none of the others"),
        ("clinic", nobody, "E_DECRYPTION", "clinic states the plan of a party that is none of the others"),
    ],
    ids=["wider", "swapped", "stranger", "nobody"],
)
def test_a_party_may_not_plan_more_than_the_active_one_states_of_it(
    over: Any, logistic: Any, given: Any, sender: str, edit: Any, code: str, said: str
) -> None:
    found = errors(attempt_of(over, logistic(**given), tamper=edited(decryption_pb2.DecryptionPlan, sender, edit)), over)
    assert all(party.startswith("hub") for party in found)
    assert any(error.code == code and said in error.message for error in found.values())


@pytest.mark.parametrize(
    ("given", "sender", "receiver"),
    [(CLEAR, "shop", "hub (shop)"), (TAYLOR, "insurer", "clinic"), (TAYLOR, "clinic", "lab")],
    ids=str,
)
def test_a_party_that_sends_no_ciphertexts_is_named(over: Any, logistic: Any, given: Any, sender: str, receiver: str) -> None:
    def zero(chunk: session_pb2.Chunk) -> None:
        chunk.rows = bytes(len(chunk.rows))

    def without_digest(sent: Sent) -> None:
        spoil(sent)
        if isinstance(sent.message, session_pb2.RowsEnd) and sent.sender == sender:
            sent.message.sha256 = zeros[sent.message.count]

    spoil = edited(session_pb2.Chunk, sender, zero)
    zeros = {count: hashlib.sha256(bytes(count * HUB.public.width)).digest() for count in range(64)}
    found = errors(attempt_of(over, logistic(**given), tamper=without_digest), over)
    assert found[receiver].code == "E_CIPHERTEXT"
    assert f"from {sender}: these are no ciphertexts" in found[receiver].message


@pytest.mark.parametrize("given", [CLEAR], ids=named)
def test_scores_that_are_no_numbers_are_named(over: Any, logistic: Any, given: Any) -> None:
    def not_numbers(scores: training_pb2.Scores) -> None:
        scores.tensor.data = np.full(len(over), np.nan).tobytes()

    found = errors(attempt_of(over, logistic(**given), tamper=edited(training_pb2.Scores, "shop", not_numbers)), over)
    assert {party: (error.code, error.message[:10]) for party, error in found.items()} == {"clinic": ("E_NAN", "from shop:")}


@pytest.mark.parametrize(("most", "refused"), [(255.0, False), (257.0, True)])
def test_scores_of_each_party_must_lie_in_their_range(over: Any, logistic: Any, most: float, refused: bool) -> None:
    """Their sum is within the bounds of residuals in both cases; each party's share of the bound is its own."""

    def wide(scores: training_pb2.Scores) -> None:
        scores.tensor.data = np.full(len(over), most).tobytes()

    made = attempt_of(over, logistic(**CLEAR, loss="taylor"), tamper=edited(training_pb2.Scores, "shop", wide))
    assert (errors(made, over).get("clinic") is not None) == refused


def test_too_few_rows_for_the_columns_of_one_of_them(shared: Any, logistic: Any) -> None:
    data = among(shared(rows=20, genuine=20, lab=3, protocol="psi"), "lab", "insurer")
    wide, view = data.passive["insurer"]
    columns = {f"c{place}": NumericColumn(np.random.default_rng(place).normal(size=len(wide))) for place in range(11)}
    data = dataclasses.replace(data, passive=data.passive | {"insurer": (Table(wide.ids, columns, None), view)})
    found = errors(attempt_of(data, logistic(**CLEAR)), data)
    assert {party: error.code for party, error in found.items()} == {"clinic": "E_BATCH", "insurer": "E_BATCH"}
    assert "20 shared rows has fewer than 2 for each of insurer's 11 columns" in found["clinic"].message


@pytest.mark.parametrize(("rows", "warned"), [(120, False), (119, True)])
def test_too_few_rows_for_the_columns_of_all_of_them_together(shared: Any, logistic: Any, rows: int, warned: bool) -> None:
    """Each has enough rows for its own 2 columns; together they have 6, which matters if they compare their gradients."""
    data = among(shared(rows=rows, genuine=rows, population=2 * rows, lab=6, protocol="psi"), *PASSIVE)
    clinic, *others = attempt_of(data, logistic(iterations=1, **CLEAR))(data)
    said = [text for text in clinic.warnings if "columns that lab and insurer and shop have together" in text]
    assert len(said) == warned
    assert not any("together" in text for other in others for text in other.warnings)
    assert not any("for each of lab's" in text for text in clinic.warnings)


# restarts


class CutError(Exception):
    pass


def cut(at: int) -> Callable[[Sent], None]:
    left = [at]

    def tamper(sent: Sent) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise CutError

    return tamper


@pytest.mark.parametrize("given", [CLEAR, STOPPING], ids=named)
@pytest.mark.parametrize("places", [3, pytest.param(None, marks=pytest.mark.slow)], ids=["some", "all"])
def test_cut_anywhere_it_ends_with_the_same_weights(shared: Any, logistic: Any, given: Any, places: int | None) -> None:
    over = among(shared(rows=16, genuine=16, population=16, clinic=1, lab=2, protocol="psi"), "lab", "insurer")
    train = logistic(**given, iterations=2)
    uncut = attempt_of(over, train)
    whole, resumed_from = uncut(over), set()
    count = len(uncut.transcript)
    for at in range(count) if places is None else range(count // (2 * places), count, count // places):
        first = attempt_of(over, train, tamper=cut(at))
        assert any(isinstance(result, CutError) for result in first.raw(over))
        second = first.again()
        resumed_from.add(second.resume_from)
        for ours, theirs in zip(second(over), whole, strict=True):
            assert all(torch.equal(ours.weights[name], theirs.weights[name]) for name in theirs.weights)
            assert [epoch.loss for epoch in ours.epochs] == [epoch.loss for epoch in theirs.epochs]
        before, after = ({column.rows.tobytes() for column in of.columns("clinic")} for of in (first, second))
        assert not before & after
    assert resumed_from >= {None, "i000001"}


# the ledger


def ledger(shared: Any, logistic: Any, **given: Any) -> tuple[Any, Any]:
    over = among(shared(genuine=40, lab=6, protocol="psi"), *PASSIVE)
    made = attempt_of(over, logistic(**given), evaluate=Evaluate(test_fraction=0.25))
    clinic, *_ = made(over)
    document = Job.model_construct(parties=made.parties, train=made.train, evaluate=made.evaluate)
    return clinic, result(document, {name: made.state.logs[name].read() for name in over.data})


def entries(trained: Any, party: str) -> list[tuple[str, int | None]]:
    return [(entry.what, entry.count) for entry in trained.disclosures[party]]


def test_the_ledger_has_an_entry_for_each_of_them(shared: Any, logistic: Any) -> None:
    clinic, hub = ledger(shared, logistic, **CLEAR)
    once = [("scores", 90), ("held-out scores", 10)]
    assert entries(clinic, "clinic") == [("rounds", 3), *once * 3, ("loss", 3), *[("features", 2)] * 3]
    for party in PASSIVE:
        assert entries(clinic, party) == [("rounds", 3), ("residuals", 90), ("gradient", 6)]
        others = " and ".join(other for other in PASSIVE if other != party)
        assert f"residuals, in which {others}'s scores stand, too" in clinic.disclosures[party][2].text
    assert entries(clinic, "hub") == entries(hub, "hub") == [("rounds", 3), *[("masked gradient", 6)] * 3]
    assert clinic.section.features == {"clinic": 3, "lab": 2, "insurer": 2, "shop": 2}
    assert clinic.section.decryptions == dict.fromkeys(PASSIVE, 6)
    assert hub.section.decryptions == {"clinic": 0, **dict.fromkeys(PASSIVE, 6)}
    assert hub.section.features == {"clinic": None, **dict.fromkeys(PASSIVE, 2)}


def test_the_page_names_all_of_them(shared: Any, logistic: Any) -> None:
    clinic, _ = ledger(shared, logistic, **CLEAR)
    names = {"party": "clinic", "role": "active", "peer": "", "active": "clinic", "passive": ", ".join(PASSIVE)}
    of = ReportedTraining(logistic(**CLEAR), **names, coordinator="hub", epochs=3, steps=3, repeats=1)
    panel = clinic.section.words(of).panel
    assert "it decrypts lab and insurer and shop's gradients, which each of them masks. clinic sees" in panel.text
    assert [term.title for term in panel.terms][-3:] == [f"Decrypted for {party}" for party in PASSIVE]


def test_and_of_what_the_loss_takes(shared: Any, logistic: Any) -> None:
    clinic, hub = ledger(shared, logistic, **STOPPING)
    once = [("encrypted scores", 90), ("held-out scores", 10)]
    assert entries(clinic, "clinic") == [("rounds", 3), *once * 3, ("gradient", 9), ("loss", 3), *[("features", 2)] * 3]
    assert "one number an iteration, its weights times its gradient, under" in clinic.disclosures["clinic"][1].text
    assert entries(clinic, "hub") == entries(hub, "hub")
    assert hub.section.decryptions == {"clinic": 12, **dict.fromkeys(PASSIVE, 6)}
    bits = Scales.from_config(logistic(**STOPPING), 3)
    assert bits.returned_bits == 110
    assert hub.section.decrypted_bits["lab"] == 6 * 110
    assert all("110 bits an entry" in entry.text for entry in clinic.disclosures["hub"] if entry.what == "masked gradient")
    assert hub.section.decrypted_bits["clinic"] == 9 * 110 + 3 * (bits.loss + 1)
