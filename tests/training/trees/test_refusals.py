"""What is refused in training trees in shares: messages that no honest party sends, tables, and shapes without memory."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pydantic import ValidationError

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
)
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares import sines
from vfl_node.data.tables import NumericColumn
from vfl_node.errors import DataError, PolicyError, ProtocolError, StateError
from vfl_node.session.session import Session
from vfl_node.settings.limits import Limits
from vfl_node.training.shares.agreement import MOST_COLUMNS
from vfl_node.training.shares.dealing import Dealing
from vfl_node.training.trainer import Coordination
from vfl_node.training.trees.config import MOST_CANDIDATES, MOST_ROWS, Trees
from vfl_node.training.trees.program import TreesProgram
from vfl_node.training.trees.trainer import TreesTrainer
from vfl_node.transport.generated.vfl.v1.shares_pb2 import (
    Corrections,
    CorrectionsUsed,
    DealerSeed,
    DealingTerms,
    MaskedShares,
    ShareContext,
    ShareInputs,
)
from vfl_node.version import VERSION

ROWS, WIDTHS = 109, (9, 12)
"""Of the usual world: length of the shared order, and candidates."""


def narrower(message: Any) -> None:
    """Batches as another training has them."""
    message.batch_rows, message.divisor = 24, 17.0


CASES: list[tuple[str, type[Any], Edit, int, str]] = [
    ("lab", ShareInputs, setting("width", 0), 0, "E_COUNT"),
    ("lab", ShareInputs, setting("width", MOST_COLUMNS + 1), 0, "E_COUNT"),
    ("lab", ShareInputs, setting("width", 11), 0, "E_COUNT"),
    ("lab", ShareInputs, setting("digest", b"short"), 0, "E_COUNT"),
    ("lab", ShareInputs, setting("digest", bytes(32)), 0, "E_COUNT"),
    ("clinic", ShareContext, widths(9, 13), 0, "E_COUNT"),
    ("clinic", ShareContext, widths(10, 12), 0, "E_COUNT"),
    ("clinic", ShareContext, widths(9), 0, "E_COUNT"),
    ("clinic", ShareContext, first_digest, 0, "E_COUNT"),
    ("clinic", ShareContext, second_digest, 0, "E_COUNT"),
    ("clinic", ShareContext, more_digests, 0, "E_COUNT"),
    ("clinic", ShareContext, setting("context", bytes(32)), 0, "E_COUNT"),
    ("clinic", ShareContext, setting("batch_rows", 24), 0, "E_COUNT"),
    ("clinic", ShareContext, setting("divisor", 24.0), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("rows", 0), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("rows", ROWS - 1), 0, "E_COUNT"),
    ("lab", DealingTerms, widths(9), 0, "E_COUNT"),
    ("lab", DealingTerms, widths(9, 0), 0, "E_COUNT"),
    ("lab", DealingTerms, widths(9, MOST_CANDIDATES), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("context", bytes(32)), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("program", bytes(32)), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("schedule", bytes(32)), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("batch_rows", 24), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("divisor", 24.0), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("divisor", float("nan")), 0, "E_COUNT"),
    ("lab", DealingTerms, narrower, 0, "E_COUNT"),
    ("lab", DealingTerms, setting("epoch", 1), 0, "E_COUNT"),
    ("lab", DealingTerms, setting("epoch", 99), 0, "E_COUNT"),
    ("hub", DealerSeed, setting("seed", bytes(31)), 0, "E_COUNT"),
    ("hub", Corrections, emptied, 0, "E_COUNT"),
    ("hub", Corrections, cut(3), 0, "E_COUNT"),
    ("hub", Corrections, cut(-8), 0, "E_COUNT"),
    ("hub", Corrections, setting("last", True), 0, "E_ORDER"),
    ("lab", MaskedShares, cut(1), 0, "E_COUNT"),
    ("lab", MaskedShares, cut(-2), 1, "E_COUNT"),
    ("lab", MaskedShares, emptied, 9, "E_COUNT"),
    ("clinic", MaskedShares, cut(8), 20, "E_COUNT"),
    ("lab", CorrectionsUsed, setting("count", 1 << 40), 0, "E_COUNT"),
]


@pytest.mark.parametrize(
    ("sender", "kind", "edit", "at", "code"), CASES, ids=[f"{of[0]}-{of[1].__name__}-{at}" for at, of in enumerate(CASES)]
)
def test_messages_that_no_honest_party_sends(
    world: Any, attempt: Any, sender: str, kind: type[Any], edit: Edit, at: int, code: str
) -> None:
    of = attempt({"trees": 1, "depth": 1}, tamper=edits(sender, kind, edit, at))
    with pytest.raises(ProtocolError) as caught:
        of(world())
    assert caught.value.code == code
    assert not any(digit in caught.value.for_peer for digit in "0123456789")


def test_the_usual_terms_are_what_is_changed(world: Any, attempt: Any) -> None:
    """And both say the same; all shared rows are one batch."""
    of = attempt({"trees": 1, "depth": 1})
    of(world())
    for said in of.sent(DealingTerms):
        assert (said.rows, tuple(said.widths), said.batch_rows, said.divisor) == (ROWS, WIDTHS, ROWS, ROWS)


TERMS: dict[str, Any] = {"rows": ROWS, "widths": WIDTHS, "batch_rows": ROWS, "divisor": ROWS, "epoch": 3}
MANY = dict.fromkeys(("rows", "batch_rows", "divisor"), MOST_ROWS + 1)


@pytest.mark.parametrize(
    "change", [MANY, {"widths": (9, MOST_CANDIDATES - 8)}, {"batch_rows": 24}, {"divisor": 24.0}, {"epoch": 4}], ids=str
)
def test_terms_that_no_job_has(world: Any, attempt: Any, change: dict[str, Any]) -> None:
    program = TreesProgram(attempt().job(world()))
    assert program.fits(DealingTerms(**TERMS))
    assert program.fits(DealingTerms(**{**TERMS, **{name: value - 1 for name, value in MANY.items()}}))
    assert program.fits(DealingTerms(**{**TERMS, "widths": (9, MOST_CANDIDATES - 9)}))
    assert not program.fits(DealingTerms(**{**TERMS, **change}))


@pytest.mark.parametrize("other", [{"version": TreesProgram.version + 1}, {"public": lambda program, said: {"constants": []}}])
def test_a_coordinator_with_other_constants_deals_nothing(world: Any, attempt: Any, other: dict[str, Any]) -> None:
    changed = type("Other", (TreesProgram,), other)

    def coordination(trainer: TreesTrainer, session: Session) -> Coordination:
        return Dealing(session, changed(session.job))

    of = attempt({"trees": 1, "depth": 1})
    with mock.patch.object(TreesTrainer, "coordination", coordination), pytest.raises(ProtocolError) as caught:
        of(world())
    assert caught.value.code == "E_COUNT"
    assert f"which has version {changed.version} of it (vfl-node {VERSION})" in str(caught.value)
    assert not of.sent(DealerSeed)


def test_a_star_of_parties_refuses_alike(world: Any, attempt: Any) -> None:
    train = {"trees": 1, "depth": 1}
    for sender, kind, edit, at in (
        ("insurer", MaskedShares, cut(8), 12),
        ("clinic", MaskedShares, cut(8), 14),
        ("insurer", DealingTerms, setting("batch_rows", 9), 0),
    ):
        with pytest.raises(ProtocolError) as caught:
            attempt(train, tamper=edits(sender, kind, edit, at))(world(3))
        assert caught.value.code == "E_COUNT"


def test_shares_of_another_value_change_the_model_and_nothing_else(world: Any, attempt: Any) -> None:
    """Honest but curious parties are assumed: whatever a party sends, as much is sent, and as often."""

    def flipped(message: Any) -> None:
        message.values = bytes([message.values[0] ^ 1]) + message.values[1:]

    over, honest = world(), attempt()
    whole = honest(over)
    of = attempt(tamper=edits("lab", MaskedShares, flipped, 30))
    changed = of(over)
    assert any((a.weights["share 3"] != b.weights["share 3"]).any() for a, b in zip(whole, changed, strict=True))
    lengths = [[len(each.values) for each in each.sent(MaskedShares)] for each in (honest, of)]
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("parties", [2, 3])
def test_without_memory_nothing_is_sent_but_sizes(world: Any, attempt: Any, parties: int) -> None:
    of = attempt(memory_mib=100)
    with pytest.raises(StateError, match="training in shares over") as caught:
        of(world(parties))
    assert caught.value.code == "E_MEMORY"
    assert not of.sent(MaskedShares)
    attempt({"trees": 1, "depth": 1}, memory_mib=4000)(world(parties))


def test_the_coordinator_takes_no_memory_for_shapes_that_it_has_none_for(world: Any, attempt: Any) -> None:
    def large(sent: Any) -> None:
        if isinstance(sent.message, DealingTerms):
            sent.message.rows = sent.message.batch_rows = MOST_ROWS
            sent.message.divisor = MOST_ROWS
            widths(MOST_CANDIDATES // 2, MOST_CANDIDATES // 2)(sent.message)

    of = attempt({"depth": 8}, tamper=large, memory_mib=100_000)
    with pytest.raises((StateError, ProtocolError)) as caught:
        of(world())
    assert caught.value.code in ("E_MEMORY", "E_COUNT")
    assert not of.sent(DealerSeed)


def with_table(over: Any, party: str, **changes: Any) -> Any:
    table, view = over.data[party]
    return replace(over, data={**over.data, party: (replace(table, **changes), view)})


def test_tables_without_what_is_needed(world: Any, attempt: Any) -> None:
    over = world()
    table, _ = over.data["lab"]
    for bad, code in (
        (with_table(over, "lab", columns={"same": NumericColumn(np.ones(len(table)))}), "E_NO_FEATURES"),
        (with_table(over, "clinic", labels=None), "E_NO_LABEL"),
    ):
        with pytest.raises(DataError) as caught:
            attempt()(bad)
        assert caught.value.code == code


def test_an_active_party_without_candidates_takes_part(world: Any, attempt: Any) -> None:
    """Its labels are enough: all splits are the other's."""
    over = world()
    table, _ = over.data["clinic"]
    results = attempt()(with_table(over, "clinic", columns={"same": NumericColumn(np.ones(len(table)))}))
    assert results[0].section.columns == {"clinic": 1, "lab": 12}
    assert results[0].section.splits == ()
    assert results[0].section.dropped == ("same",)
    assert any("same" in doubt for doubt in results[0].warnings)
    assert len(results[1].section.splits) > 2


def test_a_job_over_other_alignments_and_settings_is_refused(world: Any, attempt: Any) -> None:
    over = world()
    for train, evaluate in (
        ({"classes": 65}, {}),
        ({"depth": 9}, {}),
        ({"target_range": (0, 1)}, {}),
        ({"task": "regression", "target_range": (1, 0)}, {}),
        ({"dealer_audit": 0.5}, {}),
        ({}, {"repeats": 2}),
        ({}, {"validation_fraction": 0.2}),
    ):
        with pytest.raises(ValidationError):
            attempt(train, evaluate).job(over)
    attempt({"task": "regression", "target_range": (0, 1)}).job(over)


def test_a_machine_with_other_sines_takes_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    own = session("clinic", {}, Randomness(bytes(32)), train=Trees(algorithm="trees"))
    TreesTrainer().prepare(own)
    first, *rest = sines._tables()
    monkeypatch.setattr(sines, "_tables", lambda: (first + 1, *rest))
    with pytest.raises(StateError) as caught:
        TreesTrainer().prepare(own)
    assert caught.value.code == "E_DEVICE"


@pytest.mark.parametrize(("asked", "refused"), [(29, True), (30, False)])
def test_an_owner_may_want_more_records_on_each_side_of_a_split(asked: int, refused: bool) -> None:
    train = Trees(algorithm="trees", least_rows=asked)
    own = session("clinic", {}, Randomness(bytes(32)), train=train, limits=Limits(least_rows=30))
    with pytest.raises(PolicyError) if refused else nullcontext() as caught:
        TreesTrainer().prepare(own)
    assert not refused or caught.value.code == "E_POLICY"
