"""What is refused in training in shares: messages that no honest party sends, tables, and shapes without memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.sessions import session
from tests.training.shares_attempts import (
    Edit,
    cut,
    edits,
    emptied,
    first_digest,
    more_digests,
    second_digest,
    setting,
    widths,
    with_values,
)
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares import sines
from vfl_node.crypto.shares.ring import encode
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import DataError, ProtocolError, StateError
from vfl_node.settings.limits import Limits
from vfl_node.training.hidden import memory
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.trainer import HiddenTrainer
from vfl_node.training.shares.agreement import MOST_COLUMNS
from vfl_node.transport.generated.vfl.v1.shares_pb2 import (
    Corrections,
    CorrectionsUsed,
    DealerSeed,
    DealingTerms,
    MaskedShares,
    ShareContext,
    ShareInputs,
)

CASES: list[tuple[str, type[Any], Edit, int, str]] = [
    ("lab", ShareInputs, setting("width", 0), 0, "E_COUNT"),
    ("lab", ShareInputs, setting("width", MOST_COLUMNS + 1), 0, "E_COUNT"),
    ("lab", ShareInputs, setting("width", 3), 0, "E_COUNT"),  # which the lab's own next message does not fit
    ("lab", ShareInputs, setting("digest", b"short"), 0, "E_COUNT"),
    ("lab", ShareInputs, setting("digest", bytes(32)), 0, "E_COUNT"),
    ("clinic", ShareContext, widths(4, 5), 0, "E_COUNT"),
    ("clinic", ShareContext, widths(5, 4), 0, "E_COUNT"),
    ("clinic", ShareContext, widths(0, 4), 0, "E_COUNT"),
    ("clinic", ShareContext, widths(4, 4, 4), 0, "E_COUNT"),
    ("clinic", ShareContext, first_digest, 0, "E_COUNT"),
    ("clinic", ShareContext, second_digest, 0, "E_COUNT"),
    ("clinic", ShareContext, more_digests, 0, "E_COUNT"),
    ("clinic", ShareContext, setting("context", bytes(32)), 0, "E_COUNT"),
    ("clinic", ShareContext, setting("batch_rows", 44), 0, "E_COUNT"),
    ("clinic", ShareContext, setting("divisor", 24.0), 0, "E_COUNT"),
    ("clinic", ShareContext, setting("divisor", float("nan")), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("rows", 0), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("rows", 110), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("rows", 1 << 60), 0, "E_COUNT"),
    ("lab", DealingTerms, widths(4), 0, "E_COUNT"),
    ("lab", DealingTerms, widths(4, 0), 0, "E_COUNT"),
    ("lab", DealingTerms, widths(4, MOST_COLUMNS + 1), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("context", b""), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("context", bytes(32)), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("program", bytes(32)), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("schedule", b"x"), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("schedule", bytes(32)), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("batch_rows", 0), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("batch_rows", 4000), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("batch_rows", 40), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("divisor", 0.0), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("divisor", float("nan")), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("divisor", float("inf")), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("epoch", 1), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("epoch", 99), 0, "E_COUNT"),
    ("hub", DealerSeed, setting("seed", bytes(31)), 0, "E_COUNT"),
    ("hub", Corrections, emptied, 0, "E_COUNT"),
    ("hub", Corrections, cut(3), 0, "E_COUNT"),
    ("hub", Corrections, cut(8), 0, "E_COUNT"),
    ("hub", Corrections, cut(-8), 0, "E_COUNT"),
    ("hub", Corrections, setting("last", True), 0, "E_ORDER"),  # and then another one
    ("lab", MaskedShares, cut(1), 0, "E_COUNT"),
    ("lab", MaskedShares, cut(-8), 3, "E_COUNT"),
    ("lab", MaskedShares, emptied, 5, "E_COUNT"),
    ("clinic", MaskedShares, cut(8), 9, "E_COUNT"),
]


@pytest.mark.parametrize(
    ("sender", "kind", "edit", "at", "code"), CASES, ids=[f"{of[0]}-{of[1].__name__}-{at}" for at, of in enumerate(CASES)]
)
def test_messages_that_no_honest_party_sends(
    world: Any, attempt: Any, sender: str, kind: type[Any], edit: Edit, at: int, code: str
) -> None:
    of = attempt(tamper=edits(sender, kind, edit, at))
    with pytest.raises(ProtocolError) as caught:
        of(world())
    assert caught.value.code == code
    assert not any(digit in caught.value.for_peer for digit in "0123456789")


def test_shares_of_another_value_change_the_model_and_nothing_else(world: Any, attempt: Any) -> None:
    """Honest but curious parties are assumed: a changed share is not noticed, and no party learns by it what it should not."""

    def flipped(message: Any) -> None:
        message.values = bytes([message.values[0] ^ 1]) + message.values[1:]

    over = world()
    honest, of = attempt(), attempt(tamper=edits("lab", MaskedShares, flipped, 6))
    whole, changed = honest(over), of(over)
    assert any((a.weights["weight"] != b.weights["weight"]).any() for a, b in zip(whole, changed, strict=True))
    lengths = [[len(each.values) for each in each.sent(MaskedShares)] for each in (honest, of)]
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("parties", [3])
def test_a_star_of_parties_refuses_alike(world: Any, attempt: Any, parties: int) -> None:
    for sender, at in (("insurer", 2), ("clinic", 4)):
        with pytest.raises(ProtocolError) as caught:
            attempt(tamper=edits(sender, MaskedShares, cut(8), at))(world(parties))
        assert caught.value.code == "E_COUNT"
    with pytest.raises(ProtocolError) as caught:
        attempt(tamper=edits("insurer", DealingTerms, setting("batch_rows", 9)))(world(parties))
    assert caught.value.code == "E_COUNT"


def test_other_inputs_in_a_later_attempt(world: Any, attempt: Any) -> None:
    over, first = world(), attempt()
    first(over)
    again = first.again(over, tamper=edits("lab", ShareInputs, setting("digest", bytes(32))))
    with pytest.raises(StateError) as caught:
        again(over)
    assert caught.value.code == "E_REPLAY"


def test_who_says_that_it_used_more_than_was_sent_ends_the_job(world: Any, attempt: Any) -> None:
    """Else the coordinator would send all it has at once, into the memory of whoever lied."""
    with pytest.raises(ProtocolError, match="lab used") as caught:
        attempt(tamper=edits("lab", CorrectionsUsed, setting("count", 1 << 40)))(world())
    assert caught.value.code == "E_COUNT"


def test_who_says_that_it_used_less_ends_the_job(world: Any, attempt: Any) -> None:
    """The coordinator waits for the rest until that party has gone; nobody waits for ever."""
    *_, of_lab = attempt(tamper=edits("lab", CorrectionsUsed, setting("count", 0))).raw(world())
    assert isinstance(of_lab, ProtocolError)


def test_a_dealer_that_does_not_end_is_refused_at_its_first_number_too_many(world: Any, attempt: Any) -> None:
    def endless(message: Any) -> None:
        if message.last:
            message.values, message.last = bytes(8), False

    of = attempt(tamper=lambda sent: endless(sent.message) if isinstance(sent.message, Corrections) else None)
    with pytest.raises(ProtocolError, match="more than the job has") as caught:
        of(world())
    assert caught.value.code == "E_COUNT"


@pytest.mark.parametrize(
    "train", [{"layers": (2000,), "batch_size": 4096}, {"classes": 40, "bins": 1024, "layers": ()}], ids=["layer", "histogram"]
)
def test_batches_and_histograms_without_memory(world: Any, attempt: Any, train: dict[str, Any]) -> None:
    """Columns alone would have room."""
    over = world(people=300, classes=train.get("classes", 2))
    with pytest.raises(StateError, match="training in shares over") as caught:
        attempt(train, memory_mib=20)(over)
    assert caught.value.code == "E_MEMORY"


def test_the_coordinator_has_no_memory_for_wide_layers() -> None:
    train = Hidden(algorithm="hidden", epsilon=None, layers=(64,))
    assert memory.coordinator_bytes(train, 50_000, (2, 1), 50_000) > 700 << 20  # measured: 738 MiB a conversation


@pytest.mark.parametrize("parties", [2, 3])
def test_columns_without_memory(world: Any, attempt: Any, parties: int) -> None:
    over = world(parties, people=30_000, share=0.9)
    with pytest.raises(StateError) as caught:
        attempt(memory_mib=1)(over)
    assert caught.value.code == "E_MEMORY"
    assert "MiB are free" in caught.value.message


def test_the_coordinator_takes_no_memory_for_shapes_that_it_has_none_for(world: Any, attempt: Any) -> None:
    def large(sent: Any) -> None:
        if isinstance(sent.message, DealingTerms):
            sent.message.rows = 1 << 27
            widths(MOST_COLUMNS, MOST_COLUMNS)(sent.message)

    of = attempt(tamper=large)
    with pytest.raises(StateError) as caught:
        of(world())
    assert caught.value.code == "E_MEMORY"


def test_missing_cells_are_marked_in_a_column_of_their_own(world: Any, attempt: Any) -> None:
    def missing(values: np.ndarray) -> None:
        values[::3] = np.nan

    over, of = with_values(world(), "lab", missing), attempt()
    results = of(over)
    assert results[1].section.columns == {"clinic": 4, "lab": 5}
    assert max(np.abs(a - b).max() for a, b in zip(_weights(results), of.reference(over), strict=True)) < 1e-4


@pytest.mark.parametrize("value", [60.0, 1e300])
def test_large_numbers_are_cut_off(world: Any, attempt: Any, value: float) -> None:
    """One cell of a shared record is far from all others: it counts as 5 deviations, not 9, or by its rank."""
    over = world()
    row = over.data["lab"][1].rows[over.both][0]
    over = with_values(over, "lab", lambda values: values.__setitem__(row, value))
    of = attempt({}, evaluate={"test_fraction": 0}, limits=Limits(least_rows=0))
    results = of(over)
    assert max(np.abs(a - b).max() for a, b in zip(_weights(results), of.reference(over), strict=True)) < 1e-4


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_what_cannot_be_shared_is_refused(value: float) -> None:
    """No table that is read has an infinite cell, and encoders give none; this stands behind them."""
    with pytest.raises(DataError) as caught:
        encode([0.0, value])
    assert caught.value.code == "E_DIVERGED"


@pytest.mark.parametrize("train", [{"scaling": of} for of in ("none", "unit", "quantile", "log", "auto")])
def test_every_scaling(world: Any, attempt: Any, train: dict[str, Any]) -> None:
    over, of = world(), attempt({**train, "learning_rate": 0.1})
    results = of(over)
    assert max(np.abs(a - b).max() for a, b in zip(_weights(results), of.reference(over), strict=True)) < 1e-4


def _weights(results: Any) -> list[np.ndarray]:
    active, passive = (of.weights for of in results)
    first = np.concatenate([active["weight"].numpy().T, active["bias"].numpy()[None]])
    return [first, passive["weight"].numpy().T]


def test_a_passive_party_needs_columns(world: Any, attempt: Any) -> None:
    over = world()
    table, view = over.data["lab"]
    over.data["lab"] = Table(table.ids, {"same": NumericColumn(np.ones(len(table)))}, None), view
    with pytest.raises(DataError) as caught:
        attempt()(over)
    assert caught.value.code == "E_NO_FEATURES"


def test_the_active_party_needs_labels_that_differ(world: Any, attempt: Any) -> None:
    over = world(numbers=True)
    table, view = over.data["clinic"]
    for labels, code in ((None, "E_NO_LABEL"), (np.full(len(table), 3.0), "E_ONE_CLASS")):
        over.data["clinic"] = Table(table.ids, table.columns, labels), view
        with pytest.raises(DataError) as caught:
            attempt({"task": "regression"})(over)
        assert caught.value.code == code


def test_a_machine_with_other_sines_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    own = session("clinic", {}, Randomness(bytes(32)))
    HiddenTrainer().prepare(own)
    first, *rest = sines._tables()
    other = first.copy()
    other[1] += 1
    monkeypatch.setattr(sines, "_tables", lambda: (other, *rest))
    with pytest.raises(StateError) as caught:
        HiddenTrainer().prepare(own)
    assert caught.value.code == "E_DEVICE"
