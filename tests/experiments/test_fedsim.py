"""FedSim's experiments: the tables that are linked, the linkage, trainings, and what is stored of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.fedsim import figure_4, matching
from experiments.fedsim.data import ACTIVE, CASES, PASSIVE, made_up
from experiments.fedsim.linkage import Linkage, align_section, filters, link
from experiments.fedsim.run import arguments
from experiments.fedsim.training import train
from experiments.fedsim.trials import FEDSIM, MEAN, PERMUTED, alone, set_up, trial
from experiments.stored import complete
from vfl_node.alignment.linkage.similarity import NONE
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import NumericColumn
from vfl_node.errors import UsageError
from vfl_node.job import Align
from vfl_node.metrics.classes import auc
from vfl_node.metrics.numbers import spearman

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
    permuted, wider = case.permute(0), case.wider("combine")
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


@pytest.mark.parametrize("party", [ACTIVE, PASSIVE])
def test_noise_is_of_a_pair_of_records_wherever_they_stand(party: str) -> None:
    case = CASES["small"](NOWHERE, 0)
    align = Align.model_validate(align_section(case, candidates=5, sigma=0.4))
    order = np.roll(np.arange(len(case.active)), 7)
    role = "active" if party == ACTIVE else "passive"
    moved = getattr(case, role)
    moved = replace(moved, keys={name: np.asarray(key)[order] for name, key in moved.keys.items()})
    stays = np.arange(len(order))
    one, other = by_pair(link(case, align, 0), stays, stays), link(replace(case, **{role: moved}), align, 0)
    assert one == by_pair(other, *((order, stays) if party == ACTIVE else (stays, order)))
    assert one != by_pair(link(case, align, 1), stays, stays)


def by_pair(linkage: Linkage, ours: Any, theirs: Any) -> dict[tuple[int, int], float]:
    """Record of each party, by the places they had before → similarity."""
    rows, similarities = linkage.views[PASSIVE].rows, linkage.views[ACTIVE].similarities
    assert similarities is not None
    return {
        (int(ours[row]), int(theirs[candidate])): float(similarity)
        for row, (candidates, of) in enumerate(zip(rows, similarities, strict=True))
        for candidate, similarity in zip(candidates, of, strict=True)
    }


def test_a_trained_model_is_rebuilt() -> None:
    """What the page draws of weights is of the model that the report measured, also where candidates are missing."""
    case, job = set_up(NOWHERE, table="small", method=FEDSIM, seed=0, candidates=6, sigma=0.4, rate=0.01, scatter=0.1)
    section = job.train.model_copy(update={"epochs": 2, "patience": 2})
    job = job.model_copy(update={"train": section})
    linkage = link(case, job.align, 0)
    found = linkage.views[ACTIVE].similarities
    assert found is not None
    found[::2, 2:], linkage.views[PASSIVE].rows[::2, 2:] = 0, NONE
    done = train(case, linkage, job, 0)
    model, merged = figure_4.rebuilt(job, linkage, done, {ACTIVE: case.active, PASSIVE: case.passive})
    pairs, weights = merged["inputs"]
    similarities = linkage.views[ACTIVE].similarities
    assert similarities is not None
    held_out = np.sort(similarities[done[ACTIVE].held_out], axis=1)
    told: Any = done[ACTIVE].section
    there = held_out != 0
    assert spearman(weights.detach().numpy()[there], held_out[there]) == pytest.approx(told.spearman, abs=1e-6)
    assert model.merge is not None
    says = model.merge(pairs, weights).detach().squeeze(1).numpy()
    labels = case.active.labels
    assert labels is not None
    held = labels[done[ACTIVE].held_out]
    metrics = done[ACTIVE].results.metrics
    assert auc(held, says) == pytest.approx(metrics["auc"])
    assert ((says > 0) == held).mean() == pytest.approx(metrics["accuracy"])
    attributions = figure_4.integrate(merged["merge"], pairs, weights).detach().sum(dim=(1, 2)).numpy()
    nothing = merged["merge"](torch.zeros_like(pairs), weights).detach().squeeze(1).numpy()
    assert attributions == pytest.approx(says - nothing, abs=0.02 * float(np.abs(says - nothing).max()))  # they are complete
    importance = figure_4.importance_by_rank(merged["merge"], pairs, weights)
    assert importance.shape == (6,)
    assert float(importance.sum()) == pytest.approx(1)


def test_own_columns_alone_have_a_tree_beside_and_equal_settings_equal_names() -> None:
    outcome = alone("small", 0, "combine").run(NOWHERE)
    assert 0.5 < outcome["tree"]["accuracy"] <= 1
    assert outcome["validation"] > 0
    assert trial("small", MEAN, 0, sigma=0.0).name == trial("small", MEAN, 0).name  # it reads no similarities
    assert trial("small", FEDSIM, 0, sigma=0.0).name != trial("small", FEDSIM, 0).name != trial("small", FEDSIM, 0, rate=1).name


def test_texts_find_their_pairs_and_no_others() -> None:
    found = matching.matching("small", 0).run(NOWHERE)
    assert all(found[of]["1"] > 0.99 for of in ("complete", *matching.PLAIN))
    assert found["first"]["1"] < found["first"]["0"]
    ours, theirs, _ = matching.texts(NOWHERE, "small")
    alike = matching.jaccard(ours[:3], theirs)
    assert alike.argmax(axis=1).tolist() == [0, 1, 2]
    assert matching.jaccard(["abc"], ["abc", "abd", "xyz"])[0].tolist() == pytest.approx([1, 2 / 6, 0])  # 2 of 6 groups
    assert matching.differing(["abc"], ["abc", "abd", "xyz"])[0].tolist() == [0, 4, 8]


def test_stored_outcomes_are_kept_and_those_of_other_settings_refused(tmp_path: Path) -> None:
    one, two = trial("small", FEDSIM, 0), trial("small", FEDSIM, 0, control=PERMUTED)
    file, head = tmp_path / "some.json", {"seeds": 1, "settings": {"rows": 5, "sizes": (1, 2)}}
    stored = {one.name: {"a": 1}, two.name: {"a": 2}}
    file.write_text(json.dumps({**head, "trainings": stored}))
    rest: Any = {"processes": 1, "stored_after": 1, "go_on": True}
    assert complete(file, [one], NOWHERE, every=[one], head=head | {"seeds": 2}, **rest) == {one.name: {"a": 1}}
    assert json.loads(file.read_text())["trainings"] == stored
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]
    before = file.read_text()
    for other in ({"rows": 6, "sizes": (1, 2)}, {"rows": 5}):
        with pytest.raises(UsageError, match="settings"):
            complete(file, [one], NOWHERE, every=[one], head={"seeds": 1, "settings": other}, **rest)
    with pytest.raises(UsageError, match="small"):
        complete(file, [one], NOWHERE, every=[one], head={**head, "small": True}, **rest)
    assert file.read_text() == before


@pytest.mark.parametrize("wrong", ["--only figure6", "--seeds 0", "--processes none"])
def test_a_wrong_command_is_refused_in_words(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments().parse_args(["--out", "somewhere", *wrong.split()])
    assert wrong.split()[0] in capsys.readouterr().err
    assert arguments().parse_args(["--out", "somewhere", "--only", "figure-6,games"]).only == ["figure-6", "games"]


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
