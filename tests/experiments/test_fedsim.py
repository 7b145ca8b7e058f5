"""FedSim's experiments: the tables that are linked, the linkage, a small run, and what the stored outcomes bear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.fedsim import figure_4, matching
from experiments.fedsim.data import ACTIVE, CASES, PASSIVE, made_up
from experiments.fedsim.linkage import align_section, filters, link
from experiments.fedsim.run import PARTS, page, works
from experiments.fedsim.training import train
from experiments.fedsim.trials import FEDSIM, PERMUTED, Plan, set_up, trial
from experiments.stored import completed
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import NumericColumn
from vfl_node.job import Align
from vfl_node.training.linked.ranks import spearman

RESULTS = Path(__file__).parents[2] / "docs" / "experiments" / "fedsim.json"
NOWHERE = Path("/nowhere")


def test_both_parties_have_the_same_records_and_no_key_is_a_column() -> None:
    case = made_up(NOWHERE, 0, scatter=0.0, rows=50)
    ours, theirs = (np.column_stack(list(table.keys.values())) for table in (case.active, case.passive))
    assert {tuple(key) for key in ours} == {tuple(key) for key in theirs}
    assert not (ours == theirs).all()  # in another order
    assert not case.active.columns.keys() & case.passive.columns.keys()
    for table, keys in ((case.active, ours), (case.passive, theirs)):
        for column in table.columns.values():
            assert isinstance(column, NumericColumn)
            assert not any(np.array_equal(column.values, key) for key in keys.T)


def test_controls_change_columns_and_not_keys() -> None:
    case = CASES["small"](NOWHERE, 0)
    permuted, wider = case.permuted(0), case.wider("combine")
    for name, column in case.passive.columns.items():
        assert isinstance(column, NumericColumn)
        other = permuted.passive.columns[name]
        assert isinstance(other, NumericColumn)
        assert not np.array_equal(column.values, other.values)
        assert np.array_equal(np.sort(column.values), np.sort(other.values))
    assert permuted.passive.keys is case.passive.keys
    assert wider.active.columns.keys() == case.active.columns.keys() | case.passive.columns.keys()


def test_candidates_are_the_nearest_by_filters() -> None:
    case = CASES["small"](NOWHERE, 0)
    align = Align.model_validate(align_section(case, candidates=5, sigma=0.0))
    found = link(case, align, 0)
    again = link(case, align, 0).views[ACTIVE].similarities
    assert np.array_equal(again, found.views[ACTIVE].similarities)
    one, two = (
        np.unpackbits(filters(table, align, Randomness(bytes(32))), axis=1).astype(np.int64)
        for table in (case.active, case.passive)
    )  # other pivots: near records are near by these, too
    far = one.sum(axis=1)[:, None] + two.sum(axis=1) - 2 * one @ two.T
    chosen = np.take_along_axis(far, found.views[PASSIVE].rows, axis=1)
    assert chosen.mean() < np.sort(far, axis=1)[:, :10].mean() < far.mean() / 2


@pytest.mark.parametrize(("scatter", "without"), [(0.0, 0), (0.3, 400)])
def test_equal_keys_are_all_there_or_none(scatter: float, without: int) -> None:
    case = CASES["small"](NOWHERE, 0, scatter=scatter)
    align = Align.model_validate(align_section(case, candidates=1, sigma=0.0, equal_only=True))
    assert link(case, align, 0).facts["without"] == without


def test_a_trained_model_is_rebuilt() -> None:
    """What the page draws of weights is of the model that the report measured."""
    case, job = set_up(NOWHERE, "small", FEDSIM, 0, 6, 0.4, "", 0.1)
    section = job.train.model_copy(update={"epochs": 2, "patience": 2})
    job = job.model_copy(update={"train": section})
    linkage = link(case, job.align, 0)
    done = train(case, linkage, job, 0)
    model, merged = figure_4.rebuilt(job, linkage, done, {ACTIVE: case.active, PASSIVE: case.passive})
    pairs, weights = merged["inputs"]
    similarities = linkage.views[ACTIVE].similarities
    assert similarities is not None
    held_out = np.sort(similarities[done[ACTIVE].held_out], axis=1)
    told: Any = done[ACTIVE].section
    assert spearman(weights.detach().numpy().ravel(), held_out.ravel()) == pytest.approx(told.spearman, abs=1e-6)
    says = (model.merge(pairs, weights).squeeze(1) > 0).numpy() if model.merge else None
    labels = case.active.labels
    assert labels is not None
    assert (says == labels[done[ACTIVE].held_out]).mean() == pytest.approx((done[ACTIVE].metrics or {})["accuracy"])
    importance = figure_4.by_rank(merged["merge"], pairs, weights)
    assert importance.shape == (6,)
    assert float(importance.sum()) == pytest.approx(1)


def test_texts_find_their_pairs_and_no_others() -> None:
    found = matching.matched(NOWHERE, data="small", seed=0)
    assert found["complete"]["1"] > 0.99
    assert found["plain"]["1"] > 0.99
    assert found["first"]["1"] < found["first"]["0"]
    ours, theirs, _ = matching.texts(NOWHERE, "small")
    alike = matching.jaccard(ours[:3], theirs)
    assert alike.argmax(axis=1).tolist() == [0, 1, 2]
    assert matching.jaccard(["abc"], ["abc", "abd", "xyz"])[0].tolist() == pytest.approx([1, 2 / 6, 0])  # 2 of 6 groups


def test_stored_outcomes_are_kept_and_others_dropped(tmp_path: Path) -> None:
    one, two = trial("small", FEDSIM, 0), trial("small", FEDSIM, 0, control=PERMUTED)
    file = tmp_path / "some.json"
    file.write_text(json.dumps({"trainings": {one.name: {"a": 1}, two.name: {"a": 2}}}))
    rest: Any = {"head": {"seeds": 1}, "processes": 1, "stored_after": 1, "go_on": True}
    assert completed(file, [one], NOWHERE, every=[one], **rest) == {one.name: {"a": 1}}
    assert json.loads(file.read_text()) == {"seeds": 1, "trainings": {one.name: {"a": 1}}}


@pytest.mark.slow
def test_a_small_run_of_all_parts() -> None:
    plan = Plan(seeds=1, small=True)
    found = {work.name: work.run(NOWHERE) for work in works(plan, list(PARTS))}
    text = page(plan, found)
    assert all(f"## {part.TITLE}" in text for part in PARTS.values())
    assert all(svg.startswith("<svg") for part in PARTS.values() for svg in part.drawings(plan, found).values())


@pytest.mark.data
def test_tables_are_read(shared_data: Path) -> None:
    sales, games = (CASES[name](shared_data, 0, rows=200) for name in ("hdb", "games"))
    assert (len(sales.active), len(sales.passive)) == (200, 165)
    labels = sales.active.labels
    assert labels is not None
    assert 200 < labels.mean() < 800  # thousands of dollars
    assert "town" not in sales.active.columns
    varied = [name for name, column in sales.passive.columns.items() if np.ptp(column.values) > 0]
    assert varied == [f"vacancy_rate_{number}" for number in range(4)]
    assert len(games.passive) > 1_900
    flag = games.more["flag"]["matched"]
    assert isinstance(flag, NumericColumn)
    assert 0 < flag.values.mean() < 0.2
    pairs = {name: matching.texts(shared_data, name)[2] for name in ("febrl", "dblp_acm", "amazon_google")}
    assert {name: len(of) for name, of in pairs.items()} == {"febrl": 5000, "dblp_acm": 2224, "amazon_google": 1103}
