"""The active party alone: a network and a boosted tree on all its own labelled records that are not held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.sessions import TWO, session
from tests.training.outside_rows import intersected
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table, rows_of
from vfl_node.job import Align, Evaluate, Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.unaligned import unaligned_of
from vfl_node.metrics.classes import auc
from vfl_node.settings.protection import Compare
from vfl_node.training import boosted_tree
from vfl_node.training.network import alone
from vfl_node.training.network.alone import Places, logits_alone, train_on_aligned_rows
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.split.config import Train
from vfl_node.training.split.tasks import task_of
from vfl_node.training.trainer import TrainingData
from vfl_node.transport.memory import memory_channels

SECRET = b"clinic's private randomness, 32b"
APSI = Align(protocol="apsi", obfuscation="private", padding=1)
TRAIN = Train(bottom=(8,), active_bottom=(16,), top=(16,), epochs=8, batch_size=32, learning_rate=1e-2)


def intersection(parties: Any) -> Alignment:
    """The clinic's view of the records that both have, in a random order."""
    view = parties.clinic_view
    both = view.rows[view.owned & parties.lab_view.owned]
    rows = np.random.default_rng(1).permutation(both)
    return replace(view, spec=ALIGNMENTS["psi"], rows=rows, peers={"lab": PeerFacts(len(parties.lab), len(rows), 0)})


def asked(
    parties: Any, view: Alignment, train: Train = TRAIN, *, align: Align | None = None, **given: Any
) -> tuple[Any, TrainingData]:
    """The clinic's session, and what it trains on."""
    channel, _ = memory_channels("clinic", "lab")
    terms = align or Align.model_construct(protocol=view.protocol, padding=0, dummies=0)
    job = Job.model_construct(name="t", parties=TWO, align=terms, train=train)
    return session("clinic", {"lab": channel}, Randomness(SECRET), job=job, **given), TrainingData(view, parties.clinic)


def test_all_own_records_are_learnt_from_but_those_held_out(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(300, (0.8, 0.4))
    view = intersection(parties)
    testing = np.arange(0, len(view), 5)
    own = OwnRows.select(view, testing, held_out=True, records=len(parties.clinic))
    assert (own.tested == view.rows[testing]).all()
    assert len(own.training) == len(parties.clinic) - len(testing) > len(view)
    assert not set(own.training.tolist()) & set(own.tested.tolist())
    everything = OwnRows.select(view, np.arange(len(view)), held_out=False, records=len(parties.clinic))
    assert len(everything.training) == len(parties.clinic)


def test_under_a_union_only_own_rows_are_tested(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(200, (0.5, 0.8))
    testing = np.arange(0, len(parties.clinic_view), 4)
    own = OwnRows.select(parties.clinic_view, testing, held_out=True, records=len(parties.clinic))
    owned = testing[parties.clinic_view.owned[testing]]
    assert (own.tested == parties.clinic_view.rows[owned]).all()
    assert len(own.training) + len(own.tested) == len(parties.clinic)


def said(parties: Any, view: Alignment, own: OwnRows, train: Train = TRAIN) -> torch.Tensor | None:
    at, data = asked(parties, view, train)
    return logits_alone(at, data, own, task_of(train, parties.clinic.labels[own.training]), Randomness(SECRET).derive("x"))


def changed(parties: Any, row: int) -> Any:
    """The same parties, with the other label and another number in one row of the clinic."""
    labels, column = parties.clinic.labels.copy(), parties.clinic.columns["x0"].values.copy()
    labels[row], column[row] = 1 - labels[row], column[row] + 3
    columns = dict(parties.clinic.columns) | {"x0": NumericColumn(column)}
    return replace(parties, clinic=replace(parties.clinic, labels=labels, columns=columns))


def test_the_network_learns_from_records_outside_of_the_alignment_and_never_from_held_out_ones(
    synthetic: Callable[..., Any],
) -> None:
    parties = synthetic(300, (0.8, 0.4))
    view = intersection(parties)
    testing = np.arange(0, len(view), 5)
    own = OwnRows.select(view, testing, held_out=True, records=len(parties.clinic))
    before = said(parties, view, own)
    outside = np.setdiff1d(np.arange(len(parties.clinic)), view.rows)[0]
    assert not torch.equal(before, said(changed(parties, int(outside)), view, own))
    held_out = said(changed(parties, int(own.tested[-1])), view, own)
    assert torch.equal(before[:-1], held_out[:-1])  # its own columns are asked about in the last place only
    assert torch.equal(before, said(parties, view, own))


def test_by_aligned_rows_it_is_the_network_of_a_table_without_the_others(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(300, (0.8, 0.4))
    view = intersection(parties)
    own = OwnRows.select(view, np.arange(0, len(view), 5), held_out=True, records=len(parties.clinic))
    outside = np.setdiff1d(np.arange(len(parties.clinic)), view.rows)
    task = task_of(TRAIN, parties.clinic.labels[own.training])

    def found(parties: Any, outside: Any) -> Any:
        at, data = asked(parties, view)
        return train_on_aligned_rows(at, data, own, outside, task, Randomness(SECRET).derive("x"))

    aligned = found(parties, outside)
    assert aligned.rows == len(view) - len(own.tested) < len(own.training)
    elsewhere = changed(parties, int(outside[0]))
    assert np.array_equal(found(elsewhere, outside).output.scores, aligned.output.scores)
    learnt = changed(parties, int(np.setdiff1d(view.rows, own.tested)[0]))
    assert not np.array_equal(found(learnt, outside).output.scores, aligned.output.scores)
    assert found(parties, outside[:0]) is None
    kept = np.sort(view.rows)
    place = np.full(len(parties.clinic), -1)
    place[kept] = np.arange(len(kept))
    table = parties.clinic
    columns = {name: rows_of(column, kept) for name, column in table.columns.items()}
    few = Table(Identifiers.from_items(table.ids.take(kept)), columns, table.labels[kept])
    at, data = asked(replace(parties, clinic=few), replace(view, rows=place[view.rows], ours=len(few)))
    rows = replace(own, training=place[np.setdiff1d(own.training, outside)], tested=place[own.tested])
    alone = logits_alone(at, data, rows, task, Randomness(SECRET).derive("x"))
    assert np.array_equal(task.output(task.plain_scores(alone)).scores, aligned.output.scores)


@pytest.mark.parametrize("repeats", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_training_that_uses_rows_outside_also_measures_the_network_of_aligned_rows(run: Any, repeats: int) -> None:
    parties = intersected(400, 160)
    evaluate = Evaluate(repeats=repeats, test_fraction=0.5)

    def trained(method: str) -> Any:
        train = TRAIN.model_copy(update={"epochs": 2, "unaligned": unaligned_of({"method": method})(method=method)})
        return run(train=train, evaluate=evaluate)(parties)

    active, passive = trained("jpl")
    plain, _ = trained("none")
    assert (active.results.aligned.trained_rows, active.results.alone.trained_rows) == (80, 320)
    assert active.results.aligned.kind == active.results.alone.kind
    assert len(active.results.aligned.repeats["auc"]) == repeats
    gain = active.results.aligned.gains["auc"]
    assert gain["mean"] == pytest.approx(active.results.metrics["auc"] - active.results.aligned.metrics["auc"])
    assert gain["method"] == ("delong" if repeats == 1 else "repeats")
    assert (
        active.results.aligned.metrics != active.results.alone.metrics == plain.results.alone.metrics
    )  # what else is drawn stays as it is
    assert active.results.rival is passive.results is plain.results.aligned is None


def test_more_own_records_make_a_better_network(synthetic: Callable[..., Any]) -> None:
    """What it could learn from before, the shared records alone, are a tenth."""
    parties = synthetic(1500, (0.9, 0.1))
    view = intersection(parties)
    testing = np.arange(0, len(view), 2)
    own = OwnRows.select(view, testing, held_out=True, records=len(parties.clinic))
    few = replace(own, training=np.setdiff1d(view.rows, own.tested))
    labels = parties.clinic.labels[own.tested]
    many, few = (auc(labels, said(parties, view, rows).numpy()) for rows in (own, few))
    assert many > few + 0.01


@pytest.mark.parametrize(("rows", "width"), [(3, 3), (3, 8), (1, 5)])
def test_each_row_counts_once_wherever_it_stands(rows: int, width: int) -> None:
    training = np.arange(10, 10 + rows)
    places = Places.from_rows(training, width)
    assert sorted(places.source[places.counted]) == sorted(training)
    assert len(places.source) == len(places.counted) == width
    assert set(places.source) == set(training)


@pytest.mark.parametrize(("protocol", "align"), [("psu", Align()), ("apsi", APSI)])
def test_an_epoch_takes_as_many_rows_however_many_are_owned(
    synthetic: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, protocol: str, align: Align
) -> None:
    """The peer waits for it: apsi hides how many rows are shared, padding how many a party has."""
    steps: list[int] = []
    monkeypatch.setattr(alone, "train_local", lambda *arguments, **named: steps.append(len(arguments[4])))
    for share in (0.6, 0.7):
        parties = synthetic(300, (share, 1.0), independent=True)
        view = replace(parties.clinic_view, spec=ALIGNMENTS[protocol])
        own = OwnRows.select(view, np.arange(0, 300, 5), held_out=True, records=len(parties.clinic))
        at, data = asked(parties, view, align=align)
        logits_alone(at, data, own, task_of(TRAIN, parties.clinic.labels), Randomness(SECRET))
    assert steps == [300, 300]


def test_without_columns_there_is_none(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(60, active_features=False)
    own = OwnRows.select(parties.clinic_view, np.arange(20), held_out=True, records=len(parties.clinic))
    assert said(parties, parties.clinic_view, own) is None
    at, data = asked(parties, intersection(parties), compare=Compare())
    assert "no column" in boosted_tree.train(at, data, own, Randomness(SECRET)).note


# The boosted tree.


def test_the_tree_is_the_library_s_own_on_the_same_rows(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(400, (0.9, 0.5))
    view = intersection(parties)
    own = OwnRows.select(view, np.arange(0, len(view), 3), held_out=True, records=len(parties.clinic))
    at, data = asked(parties, view, compare=Compare())
    tree = boosted_tree.train(at, data, own, Randomness(SECRET))
    assert (tree.rows, tree.note) == (len(own.training), "")
    assert tree.kind.startswith("a boosted tree (HistGradientBoostingClassifier of scikit-learn ")
    cells, categorical = boosted_tree.design(parties.clinic, own.training)
    plain = HistGradientBoostingClassifier(categorical_features=categorical, random_state=0)
    plain.fit(cells[own.training], parties.clinic.labels[own.training])
    assert np.allclose(tree.output.probabilities, plain.predict_proba(cells[own.tested])[:, 1])
    again = boosted_tree.train(at, data, own, Randomness(SECRET))
    assert (tree.output.probabilities == again.output.probabilities).all()


def test_of_very_many_rows_a_random_part_is_learnt_from(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(300, (0.9, 0.5))
    view = intersection(parties)
    own = OwnRows.select(view, np.arange(0, len(view), 3), held_out=True, records=len(parties.clinic))
    at, data = asked(parties, view, compare=Compare(most_rows=100))
    first, second = (boosted_tree.train(at, data, own, Randomness(seed * 32)) for seed in (b"a", b"b"))
    assert first.rows == second.rows == 100
    assert (first.output.probabilities != second.output.probabilities).any()


def test_several_classes_of_which_one_is_not_learnt(synthetic: Callable[..., Any]) -> None:
    parties = synthetic(300, (0.9, 0.5))
    view = intersection(parties)
    labels = parties.clinic.labels + 2 * (parties.clinic.columns["x1"].values > 0)
    own = OwnRows.select(view, np.arange(0, len(view), 3), held_out=True, records=len(parties.clinic))
    labels[own.training] = np.where(labels[own.training] == 1, 0, labels[own.training])
    parties = replace(parties, clinic=replace(parties.clinic, labels=labels.astype(np.float32)))
    at, data = asked(parties, view, TRAIN.model_copy(update={"classes": 4}), compare=Compare())
    found = boosted_tree.train(at, data, own, Randomness(SECRET)).output.probabilities
    assert found.shape == (len(own.tested), 4)
    assert (found[:, 1] == 0).all()
    assert np.allclose(found.sum(axis=1), 1)


def test_columns_without_a_value_and_a_class_of_one_row_among_very_many_are_learnt_from(synthetic: Callable[..., Any]) -> None:
    """Of more than 10,000 rows the library sets some of each class apart, which it cannot with one."""
    rows = 10_500
    labels = np.zeros(rows, dtype=np.float32)
    labels[7] = 1
    columns = {
        "empty": NumericColumn(np.full(rows, np.nan)),
        "no level": CategoricalColumn(np.full(rows, -1), ()),
        "constant": NumericColumn(np.ones(rows)),
        "x": NumericColumn(np.arange(rows) / 1e300 * 1e308),
    }
    parties = synthetic(60)
    table = Table(Identifiers.from_items(str(row).encode() for row in range(rows)), columns, labels)
    at, data = asked(parties, intersection(parties), compare=Compare())
    own = OwnRows(np.arange(rows - 10), np.arange(rows - 10, rows), 10)
    found = boosted_tree.train(at, replace(data, table=table), own, Randomness(SECRET))
    assert found.note == ""
    assert np.isfinite(found.output.probabilities).all()


def test_a_category_of_very_many_levels_keeps_the_frequent_ones_apart() -> None:
    codes = np.concatenate([np.arange(400), np.arange(100, 400), [-1, 0]])
    found = boosted_tree._codes(codes, np.arange(len(codes) - 2), 401)
    assert set(found[100:354]) == set(range(254))  # those that occur twice
    assert set(found[:100]) == {254}
    assert np.isnan(found[-2])
    unseen = boosted_tree._codes(codes, np.arange(10), 401)
    assert np.isnan(unseen[10:400]).all()
    table = CategoricalColumn(codes, tuple(map(str, range(401))))
    assert len(table.levels) == 401


@pytest.mark.parametrize(
    ("align", "protocol", "compare", "note"),
    [
        (Align(protocol="psi"), "psi", Compare(boosted_tree=False), boosted_tree.SWITCHED_OFF),
        (Align(protocol="psi", padding=1), "psi", Compare(), boosted_tree.HIDDEN_SIZES),
        (APSI, "apsi", Compare(), boosted_tree.HIDDEN_SIZES),
        (APSI, "apsi", Compare(boosted_tree=True), ""),
        (Align(protocol="psi"), "psi", Compare(), ""),
    ],
)
def test_where_its_time_would_tell_something_it_needs_the_owner_s_word(
    synthetic: Callable[..., Any], align: Align, protocol: str, compare: Compare, note: str
) -> None:
    parties = synthetic(80, (0.9, 0.5))
    view = replace(intersection(parties), spec=ALIGNMENTS[protocol])
    own = OwnRows.select(view, np.arange(10), held_out=True, records=len(parties.clinic))
    at, data = asked(parties, view, align=align, compare=compare)
    tree = boosted_tree.train(at, data, own, Randomness(SECRET))
    assert tree.note == note
    assert (tree.output is None) == bool(note)


def test_without_the_library_there_is_a_note(synthetic: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boosted_tree, "find_spec", lambda name: None)
    parties = synthetic(80, (0.9, 0.5))
    at, data = asked(parties, intersection(parties), compare=Compare())
    tree = boosted_tree.train(at, data, OwnRows(np.arange(40), np.arange(40, 50), 10), Randomness(SECRET))
    assert tree.output is None
    assert "pip install 'vfl-node[compare]'" in tree.note


@pytest.mark.parametrize("repeats", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_training_measures_both_beside_the_joint_model(synthetic: Callable[..., Any], run: Any, repeats: int) -> None:
    parties = synthetic(500)
    evaluate = Evaluate(repeats=repeats)
    active, passive = run(evaluate=evaluate, compare=Compare())(parties)
    off, _ = run(evaluate=evaluate)(parties)
    assert active.results.metrics == off.results.metrics
    assert active.results.alone.metrics == off.results.alone.metrics
    assert active.results.intervals == off.results.intervals  # the same resamples, whatever is compared
    assert active.results.alone.trained_rows == active.results.rival.trained_rows
    assert active.results.rival.trained_rows == len(parties.clinic) - active.results.population.rows
    assert active.results.alone.kind == "a network of the same kind"
    assert active.results.rival.metrics.keys() == active.results.metrics.keys()
    assert active.results.rival.repeats["auc"][0] is not None
    assert len(active.results.rival.repeats["auc"]) == repeats
    gain = active.results.rival.gains["auc"]
    assert gain["mean"] == pytest.approx(active.results.metrics["auc"] - active.results.rival.metrics["auc"])
    assert gain["method"] == ("delong" if repeats == 1 else "repeats")
    assert active.results.rival.curve
    assert sum(map(sum, active.results.rival.confusion)) == active.results.population.rows
    assert passive.results is None
    assert off.results.rival is None
    assert off.results.rival_note == boosted_tree.SWITCHED_OFF
