"""Columns are replaced by weights of evidence before they are trained on, and rows are held out as in an earlier job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.hidden.conftest import NOISED, weights_of
from tests.training.hidden.test_learns import off
from tests.training.shares_attempts import State, assert_same, kills
from vfl_node.data.evidence import KeptEvidence
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.job.training import TRAINERS
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.training.schedule import Schedule
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.table_use import table_use_of

pytestmark = pytest.mark.usefixtures("silent")

SPLIT = b"an earlier job's".ljust(32)
BINS = 4
WOE = {"transform": "woe"}


def counted(table: Table, weights: NDArray[np.float64]) -> KeptEvidence:
    """Weights that a job with statistics has found, of each bin of each column."""
    columns = CountedColumns.fit(table, BINS, 5)
    return KeptEvidence.from_counted(columns.weigh("counted", weights[: len(columns.columns)]), 0.25, SPLIT, noised=True)


def evidence_of(over: Any) -> dict[str, KeptEvidence]:
    """Of each party, drawn."""
    drawn = np.random.default_rng(5).normal(size=(len(over.data), 9, BINS + 1))
    return {name: counted(table, weights) for weights, (name, (table, _)) in zip(drawn, over.data.items(), strict=True)}


def by_hand(over: Any, evidence: dict[str, KeptEvidence]) -> Any:
    """The tables that their owners would have if they had looked up each weight themselves."""
    data = {}
    for name, (table, view) in over.data.items():
        columns = {}
        for each in evidence[name].columns.columns:
            values = table.columns[each.name].values
            columns[each.name] = NumericColumn(
                np.array([each.weights[sum(cut < value for cut in each.bins.cuts)] for value in values])
            )
        data[name] = replace(table, columns=columns), view
    return replace(over, data=data)


@pytest.fixture
def reusing(world: Any) -> Any:
    """Tables of parties that use an alignment again."""

    def made(*given: Any, **more: Any) -> Any:
        over = world(*given, **more)
        return replace(over, align=over.align | {"reuse": "counted"})

    return made


@pytest.mark.parametrize("parties", [2, 3])
def test_it_is_plaintext_training_on_weights_by_hand(reusing: Any, attempt: Any, parties: int) -> None:
    """The control has the columns as they are."""
    over = reusing(parties)
    evidence = evidence_of(over)
    of = attempt(WOE, evidence=evidence, split=SPLIT)
    results, hand = of(over), by_hand(over, evidence)
    assert off(results, of.reference(hand)) < 1e-4
    assert off(results, of.reference(over)) > 0.01
    for result, (table, _) in zip(results, over.data.values(), strict=True):
        assert {each.transform for each in result.columns} == {"cuts"}
        assert RowEncoder.from_json(result.encoder).kinds == dict.fromkeys(table.columns, "numeric")


@pytest.mark.usefixtures("exact")
def test_bounded_rows_are_those_of_weights_by_hand(reusing: Any, attempt: Any) -> None:
    """With noise that is zero."""
    over = reusing()
    evidence = evidence_of(over)
    results = attempt(NOISED | WOE, evidence=evidence, split=SPLIT)(over)
    others = attempt(NOISED, split=SPLIT)(by_hand(over, evidence))
    assert off(results, weights_of(others)) < 1e-4
    assert off(results, weights_of(attempt(NOISED, split=SPLIT)(over))) > 0.01


def test_rows_are_held_out_as_in_the_earlier_job(reusing: Any, attempt: Any) -> None:
    """Whatever the seed of this one is; the control holds out others."""
    over = reusing()
    for secret in ("one", "other"):
        results = attempt(secret=secret, split=SPLIT)(over)
        expected = Schedule(bytes(32), len(over), 0, SPLIT).split(0, 0.25)[1]
        assert all(np.array_equal(result.held_out, expected) for result in results)
        assert {result.split for result in results} == {SPLIT}
    (first, second) = (attempt(secret=secret)(over)[0] for secret in ("one", "other"))
    assert not np.array_equal(first.held_out, second.held_out)
    assert len({first.split, second.split, SPLIT}) == 3
    assert attempt(evaluate={"test_fraction": 0})(over)[0].split == b""


def test_partners_see_how_many_columns_were_counted_whatever_their_weights_are(reusing: Any, attempt: Any) -> None:
    """A column whose weights are all alike is a column of zeros. Columns as they are have been written down apart."""
    over = reusing()
    table, view = over.data["lab"]
    name, first = next(iter(table.columns.items()))
    missing = NumericColumn(np.where(np.arange(len(table)) % 4 == 0, np.nan, first.values))
    over.data["lab"] = replace(table, columns={**table.columns, name: missing}), view
    evidence = evidence_of(over)
    of_lab = evidence["lab"].columns
    flat = of_lab.columns[1].model_copy(update={"weights": (0.5,) * len(of_lab.columns[1].weights)})
    evidence["lab"] = evidence["lab"].model_copy(
        update={"columns": of_lab.model_copy(update={"columns": (of_lab.columns[0], flat, *of_lab.columns[2:])})}
    )
    memories = State().memories

    def run(**how: Any) -> Any:
        return attempt(split=SPLIT, state=State(memories=memories), **how)(over)

    raw = run()
    woe = run(train=WOE, evidence=evidence)
    assert raw[0].section.columns["lab"] == len(table.columns) + 1  # and a mark of missing cells
    assert woe[0].section.columns["lab"] == len(of_lab.columns) == len(table.columns)
    assert woe[1].section.dropped == (flat.name,)
    assert not RowEncoder.from_json(woe[1].encoder).transform(over.data["lab"][0])[:, 1].any()
    assert run()[0].section.columns == raw[0].section.columns


def test_a_check_of_a_table_says_nothing_of_weights_that_a_job_has_not_met(reusing: Any, attempt: Any) -> None:
    """Nor does it refuse numbers that no model will read."""
    over = reusing()
    table, _ = over.data["lab"]
    large = replace(table, columns={name: NumericColumn(column.values * 1e12) for name, column in table.columns.items()})
    for keys in ({"algorithm": "hidden"}, {"algorithm": "logistic", "scaling": "none"}):
        refused, silent = (TRAINERS[keys["algorithm"]].model_validate(keys | more) for more in ({}, WOE))
        assert table_use_of(silent, {}).columns(large) == ()
        table_use_of(silent, {}).check("passive", large)
        assert table_use_of(refused, {}).columns(table)
    with pytest.raises(DataError, match="too large"):
        table_use_of(refused, {}).check("passive", large)


def test_a_later_attempt_ends_as_one_that_was_not_killed(reusing: Any, attempt: Any) -> None:
    over = reusing()
    how = {"train": WOE, "evidence": evidence_of(over), "split": SPLIT}
    whole = attempt(**how)
    results = whole(over)
    killed = attempt(**how, tamper=kills("lab", 12))
    assert any(isinstance(each, Exception) for each in killed.raw(over))
    assert_same(killed.again(over)(over), results)
