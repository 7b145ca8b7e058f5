"""``evaluate.hold_out``: the last rows by the active party's column are held out, at all parties the same ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf.message import Message

from tests.training.several import SMALL, SeveralParties
from tests.training.test_resume import Fatal, KilledError
from vfl_node.alignment.alignment import NOT_MINE
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, ProtocolError, StateError
from vfl_node.job import Evaluate
from vfl_node.training.network import journal
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.time_order import counts, last_rows
from vfl_node.transport.generated.vfl.v1 import session_pb2, training_pb2

Make = Callable[..., Any]

LAST = Evaluate(hold_out={"last": 0.25}, validation_fraction=0.1)  # type: ignore[arg-type]


def ordered(parties: SeveralParties, *, ties: int = 1, seed: int = 1) -> SeveralParties:
    """The same with an order of the active party's records, of which so many share a value."""
    active = parties.names[0]
    own = parties.tables[active]
    order = np.random.default_rng(seed).permutation(len(own)) // ties
    tables = {**parties.tables, active: replace(own, order=order.astype(np.float64))}
    return replace(parties, tables=tables)


def shared_order(parties: SeveralParties) -> Any:
    """The value that orders each shared position."""
    active = parties.names[0]
    return parties.tables[active].order[parties.views[active].rows]  # type: ignore[index]


def test_the_last_rows_by_value_and_among_equal_ones_by_position() -> None:
    order = np.array([5.0, 1.0, 9.0, 5.0, 5.0, 0.0, 2.0, 3.0])
    parts = last_rows(order, Evaluate(hold_out={"last": 0.25}, validation_fraction=0.25))  # type: ignore[arg-type]
    assert parts.testing.tolist() == [2, 4]
    assert parts.validation.tolist() == [0, 3]
    assert parts.training.tolist() == [1, 5, 6, 7]


@pytest.mark.parametrize(("size", "last", "validation"), [(10, 0.2, 0.1), (7, 0.5, 0.4), (1, 0.9, 0.0), (9, 0.01, 0.5)])
def test_every_row_has_one_use(size: int, last: float, validation: float) -> None:
    evaluate = Evaluate(hold_out={"last": last}, validation_fraction=validation)  # type: ignore[arg-type]
    parts = last_rows(np.arange(size, dtype=np.float64)[::-1], evaluate)
    assert (len(parts.testing), len(parts.validation)) == counts(size, evaluate)
    assert sorted(np.concatenate(parts)) == list(range(size))
    assert parts.testing.tolist() == list(range(len(parts.testing)))


@pytest.mark.parametrize(("passive", "ties"), [(1, 1), (1, 40), (3, 1)])
def test_all_parties_hold_out_the_same_last_rows(several_parties: Make, several_runs: Make, passive: int, ties: int) -> None:
    """With several passive parties each is told; the lengths are no multiple of eight. Control: drawn rows are other ones."""
    parties = ordered(several_parties(passive, people=333, owned=0.9, protocol="psi"), ties=ties)
    runs = several_runs(evaluate=LAST)
    results = runs(parties)
    order = shared_order(parties)
    testing, validation = results["clinic"].held_out, results["clinic"].validated
    assert len(order) % 8
    assert all(np.array_equal(of.held_out, testing) and np.array_equal(of.validated, validation) for of in results.values())
    assert (len(testing), len(validation)) == (-(-len(order) // 4), -(-len(order) // 10))
    rest = np.setdiff1d(np.arange(len(order)), np.union1d(testing, validation))
    assert order[rest].max() <= order[validation].min()
    assert order[validation].max() <= order[testing].min()
    edge = order[testing].min()
    if ties > 1:  # of equal ones the later positions are held out
        equal = np.flatnonzero(order == edge)
        assert np.isin(equal, testing).tolist() == sorted(np.isin(equal, testing))
    drawn = several_runs(evaluate=Evaluate(test_fraction=0.25, validation_fraction=0.1))
    assert not np.array_equal(drawn(parties)["clinic"].held_out, testing)
    named = [[entry for entry in of.recorder.entries if entry.kind == "HeldOutRows"] for of in (runs, drawn)]
    assert list(map(len, named)) == [passive, 0]


def test_the_ledger_says_it_to_the_passive_parties_alone(several_parties: Make, several_runs: Make) -> None:
    parties = ordered(several_parties(2, people=200, protocol="psi"))
    results = several_runs(evaluate=LAST)(parties)
    for own in results.values():
        said = {name: [of for of in entries if of.what == "held-out rows"] for name, entries in own.disclosures.items()}
        assert said["clinic"] == []
        for name in ("lab", "insurer"):
            (entry,) = said[name]
            assert entry.count == 50 + 20
            assert "which 50 of the shared records are the last ones" in entry.text
    drawn = several_runs()(parties)
    assert not any(of.what == "held-out rows" for entries in drawn["lab"].disclosures.values() for of in entries)


def test_what_is_sent_holds_no_value_of_the_column(several_parties: Make, several_runs: Make) -> None:
    """Orders with the same last rows give the same bytes, in whatever order these are and whatever the values."""
    parties = several_parties(1, people=160, protocol="psi")
    evaluate = Evaluate(hold_out={"last": 0.25})  # type: ignore[arg-type]

    def sent(order: Any) -> list[bytes]:
        active = parties.tables["clinic"]
        runs = several_runs(evaluate=evaluate)
        runs(replace(parties, tables={**parties.tables, "clinic": replace(active, order=order)}))
        return [entry.frame.body for entry in runs.recorder.entries]

    order = np.random.default_rng(3).permutation(160).astype(np.float64)
    late = order >= 120
    mixed = order.copy()
    mixed[late], mixed[~late] = 1e9 - order[late], -order[~late]
    assert sent(order) == sent(mixed)
    assert sent(order) != sent(-order)


def test_a_killed_training_goes_on_with_the_same_rows(
    several_parties: Make, several_runs: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    parties = ordered(several_parties(2, people=300, protocol="psi"))
    whole = several_runs(evaluate=LAST)(parties)
    killed = several_runs(evaluate=LAST, checkpoints={"lab": Fatal("r000-e000002")})
    assert isinstance(killed.raw(parties)["lab"], KilledError)
    newest = max(set.intersection(*(set(of.names()) for of in killed.checkpoints.values())))
    resumed = several_runs(evaluate=LAST, checkpoints=killed.checkpoints, resume_from=newest, pins=killed.pins)(parties)
    for name in parties.names:
        ours, theirs = resumed[name], whole[name]
        assert all(torch.equal(ours.weights[key], weight) for key, weight in theirs.weights.items())
        assert [epoch.loss for epoch in ours.epochs] == [epoch.loss for epoch in theirs.epochs]
        assert (ours.results, ours.disclosures) == (theirs.results, theirs.disclosures)
        assert np.array_equal(resumed[name].held_out, whole[name].held_out)


def test_other_rows_in_a_later_attempt_are_refused(several_parties: Make, several_runs: Make) -> None:
    parties = several_parties(1, people=120, protocol="psi")
    first = several_runs(evaluate=LAST)
    first(ordered(parties, seed=1))
    second = several_runs(evaluate=LAST, pins=first.pins)
    refused = second.raw(ordered(parties, seed=2))["lab"]
    assert isinstance(refused, StateError)
    assert refused.code == "E_REPLAY"
    assert "held-out rows" in refused.message


def other_numbers(message: Message) -> None:
    if isinstance(message, training_pb2.HeldOutRows):
        message.held_out += 1


def other_size(message: Message) -> None:
    if isinstance(message, training_pb2.HeldOutRows):
        message.rows += 1


def one_more_row(message: Message) -> None:
    if isinstance(message, session_pb2.Chunk):
        free = ~(message.rows[0] | message.rows[1]) & 0xFF
        assert free
        message.rows = bytes([message.rows[0] | free & -free]) + message.rows[1:]


def twice(message: Message) -> None:
    """The rows for validation are those held out; the number of the former is that of the latter."""
    if isinstance(message, session_pb2.Chunk):
        message.rows = b"".join(message.rows[at : at + 1] * 2 for at in range(0, len(message.rows), 2))


def beyond_the_last(message: Message) -> None:
    if isinstance(message, session_pb2.Chunk):
        message.rows = message.rows[:-1] + bytes([message.rows[-1] | 0x80])


@pytest.mark.parametrize(
    ("change", "code"),
    [(other_numbers, "E_COUNT"), (other_size, "E_COUNT")]
    + [(change, "E_HELD_OUT") for change in (one_more_row, twice, beyond_the_last)],
)
def test_what_does_not_fit_the_job_is_refused(several_parties: Make, several_runs: Make, change: Any, code: str) -> None:
    """Each change is only in the announcement or only in the bits; a column that ends differently has another digest."""
    parties = ordered(several_parties(1, people=125, protocol="psi"))
    digest = hashlib.sha256()

    def tamper(sender: str, receiver: str, message: Message) -> None:
        change(message)
        if isinstance(message, session_pb2.Chunk):
            digest.update(message.rows)
        if isinstance(message, session_pb2.RowsEnd):
            message.sha256 = digest.digest()

    evaluate = Evaluate(hold_out={"last": 0.2}, validation_fraction=0.2)  # type: ignore[arg-type]
    refused = several_runs(evaluate=evaluate, tamper=tamper).raw(parties)["lab"]
    assert isinstance(refused, ProtocolError)
    assert refused.code == code


def test_without_an_order_it_is_refused(several_parties: Make, several_runs: Make) -> None:
    refused = several_runs(evaluate=LAST).raw(several_parties(1, people=60, protocol="psi"))["clinic"]
    assert isinstance(refused, DataError)
    assert refused.code == "E_CONFIG"
    assert "data.order" in refused.hint


def test_the_active_partys_own_model_learns_from_no_later_record(several_parties: Make) -> None:
    """Of records that are not shared those after the last one trained on stay out. Control: without an order all are learnt."""
    parties = ordered(several_parties(1, people=300, owned=0.6, protocol="psi"))
    view, table = parties.views["clinic"], parties.tables["clinic"]
    parts = last_rows(shared_order(parties), LAST)
    common: dict[str, Any] = {"held_out": True, "records": len(table), "validation": parts.validation}
    own = OwnRows.select(view, parts.testing, order=table.order, **common)
    assert table.order is not None
    edge = table.order[view.rows[parts.training]].max()
    shared = set(view.rows[view.rows != NOT_MINE].tolist())
    later = {row for row in range(len(table)) if table.order[row] > edge} - shared
    assert later
    assert not later & set(own.training.tolist())
    assert set(OwnRows.select(view, parts.testing, **common).training.tolist()) - set(own.training.tolist()) == later


def test_a_table_of_another_order_is_another_input(several_parties: Make) -> None:
    table: Table = several_parties(1, people=60, protocol="psi").tables["clinic"]
    digests = {replace(table, **change).digest() for change in ({}, *({name: values(table)} for name, values in KINDS.items()))}
    assert len(digests) == 1 + len(KINDS)


KINDS: dict[str, Callable[[Table], Any]] = {
    "order": lambda table: np.arange(len(table), dtype=np.float64),
    "groups": lambda table: np.arange(len(table)),
}


def test_the_estimate_counts_what_is_sent(several_parties: Make, several_runs: Make) -> None:
    """Beyond a job whose rows are drawn the active party sends two bits a row to each passive party, and four small frames."""
    parties = ordered(several_parties(2, people=4000, numeric=1, protocol="psi"))

    def sent(evaluate: Evaluate) -> tuple[int, int]:
        train = SMALL.model_copy(update={"epochs": 1, "batch_size": 4000})
        runs = several_runs(evaluate=evaluate, train=train)
        runs(parties)
        from_active = [entry for entry in runs.recorder.entries if entry.sender == "clinic"]
        estimated = train.make_plan(2).cost(evaluate, len(parties.people), "psi").active_bytes
        return sum(len(entry.frame.body) for entry in from_active), estimated

    (last, estimated), (drawn, of_drawn) = sent(LAST), sent(Evaluate(test_fraction=0.25, validation_fraction=0.1))
    assert estimated - of_drawn == 2 * 2 * 500
    assert 0 <= last - drawn - 2 * 2 * 500 < 2 * 200
