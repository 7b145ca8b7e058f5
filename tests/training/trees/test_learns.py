"""A training in shares gives the model of plain boosting on the rows that all parties own, and no other rows count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

from tests.training.shares_attempts import with_values
from tests.training.trees.conftest import open_model
from tests.training.trees.plain import step
from vfl_node.data.tables import CategoricalColumn
from vfl_node.training.glm.plain import sigmoid
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.targets import TargetScale
from vfl_node.training.trees import memory

SEED = 1
SOME = [("psu", 2, {}), ("psi", 3, {"task": "regression"}), ("psu", 4, {"task": "regression", "target_range": (0, 500)})]
MATRIX = [
    (protocol, parties, train)
    for protocol in ("psu", "psi", "apsi")
    for parties in ((2,) if protocol == "apsi" else (2, 3, 4))
    for train in ({}, {"task": "regression"}, {"task": "regression", "target_range": (0, 500)})
]


def assert_plain(of: Any, over: Any, results: Any) -> None:
    """Candidates are the same, and leaves as near as is said; no decision is so close that the series may change it."""
    model = open_model(results, of.plan(over).plan.widths)
    trees = of.reference(over)
    assert len({pick for tree in trees for level in tree.picks for pick in level}) > 3
    for number, tree in enumerate(trees):
        assert tree.nearest > 0.025, "a tie: choose another seed"
        np.testing.assert_array_equal(model.picks[number], np.concatenate(tree.picks))
        np.testing.assert_allclose(model.leaves[number], tree.leaves, rtol=2e-3, atol=2e-4)
    gained, step_of_gains = np.sum([tree.gained for tree in trees], axis=0), 2.0 ** of.plan(over).plan.gain_step_bits
    assert len(over) / 1024 <= step_of_gains <= 2.1 * len(over) / 1024
    for result, width in zip(results, of.plan(over).plan.widths, strict=True):
        columns, (mine, gained) = BinnedColumns.from_json(result.encoder).columns, np.split(gained, [width])
        by_column = np.add.reduceat(mine, np.cumsum([0, *(len(each.left) for each in columns)])[:-1])
        assert list(result.section.gains) == [each.name for each in columns]
        said = np.array(list(result.section.gains.values()))
        np.testing.assert_allclose(said, by_column, rtol=2e-3, atol=step_of_gains + 3 / 256 * 3 * len(trees))
        np.testing.assert_array_equal(said % step_of_gains, 0)


@pytest.mark.parametrize(
    ("protocol", "parties", "train"), [pytest.param(*of, marks=[] if of in SOME else [pytest.mark.slow]) for of in MATRIX]
)
def test_the_model_is_that_of_plain_boosting(
    world: Any, attempt: Any, protocol: str, parties: int, train: dict[str, Any]
) -> None:
    over, of = world(parties, protocol, people=700, share=0.85, numbers="task" in train, seed=SEED), attempt(train)
    assert_plain(of, over, of(over))


@pytest.mark.parametrize(
    ("protocol", "parties", "classes"), [("psu", 2, 3), pytest.param("psi", 3, 4, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("side_by_side", [True, False])
def test_each_of_several_classes_has_the_trees_of_plain_boosting_against_the_rest(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch, protocol: str, parties: int, classes: int, side_by_side: bool
) -> None:
    """Whether memory lets them grow side by side or not."""
    if not side_by_side:
        monkeypatch.setattr(memory, "GROWN_BYTES", 1)
    over = world(parties, protocol, people=700, share=0.85, classes=classes, seed=SEED)
    of = attempt({"classes": classes, "trees": 2})
    results = of(over)
    assert of.plan(over).plan.at_once == (classes if side_by_side else 1)
    assert_plain(of, over, results)
    assert len(open_model(results, of.plan(over).plan.widths).leaves) == 2 * classes


@pytest.mark.parametrize("train", [{}, {"classes": 3, "trees": 2}], ids=str)
def test_rows_that_are_not_drawn_do_not_count_in_a_tree(world: Any, attempt: Any, train: dict[str, Any]) -> None:
    """They are others in each tree, and their scores go on."""
    over = world(people=900, share=0.85, classes=train.get("classes", 2), seed=5)
    of = attempt({**train, "row_fraction": 0.6, "leaves": "none"})
    assert_plain(of, over, of(over))
    plan = of.plan(over)
    first, second = plan.draw_rows(0), plan.draw_rows(1)
    assert first.sum() == second.sum() == round(0.6 * len(plan.training))
    assert not first[np.setdiff1d(np.arange(len(over)), plan.training)].any()
    assert (first != second).mean() > 0.2


@pytest.mark.parametrize("train", [{"l2": 0}, {"min_gain": 2.0}, {"least_rows": 60}, {"depth": 1, "trees": 1}], ids=str)
def test_other_settings(world: Any, attempt: Any, train: dict[str, Any]) -> None:
    over, of = world(people=700, share=0.85, seed=SEED), attempt({**train})
    results = of(over)
    model = open_model(results, of.plan(over).plan.widths)
    for number, tree in enumerate(of.reference(over)):
        np.testing.assert_array_equal(model.picks[number], np.concatenate(tree.picks))


def test_missing_cells_and_categories(world: Any, attempt: Any) -> None:
    """What is missing tells, and so does one level of many."""
    over = world(people=700, share=0.85, seed=SEED)
    table, _ = over.data["lab"]
    rng = np.random.default_rng(0)
    active, _ = over.data["clinic"]
    labels = dict(zip(active.ids.take(np.arange(len(active))), active.labels, strict=True))
    likely = np.array([labels.get(each, 0) for each in table.ids.take(np.arange(len(table)))]) * 0.5 + 0.2

    def missing(values: np.ndarray) -> None:
        values[rng.random(len(values)) < likely] = np.nan

    codes = np.where(rng.random(len(table)) < likely, 2, rng.integers(-1, 5, len(table)))
    over = with_values(over, "lab", missing, sort=CategoricalColumn(codes, tuple("abcde")))
    of = attempt({"trees": 2})
    results = of(over)
    assert_plain(of, over, results)
    said = [each.split for each in results[1].section.splits]
    assert any("missing" in each for each in said)
    assert "sort = c" in said


def scores_of(of: Any, over: Any, model: Any, begin: list[float]) -> np.ndarray:
    """Of each output and all rows, by the whole model."""
    cells, scores = np.concatenate(of.cells(over), axis=1), np.repeat(np.array(begin)[:, None], len(over), axis=1)
    for number, (picks, leaves) in enumerate(zip(model.picks, model.leaves, strict=True)):
        nodes, first = np.zeros(len(over), np.int64), 0
        while first < len(picks):
            count = first + 1
            nodes = step(nodes, picks[first : first + count], cells)
            first += count
        scores[number % len(begin)] += leaves[nodes]
    return scores


@pytest.mark.parametrize("train", [{}, {"task": "regression"}], ids=str)
def test_metrics_are_those_of_the_model_on_the_shared_rows_held_out(
    world: Any, attempt: Any, train: dict[str, Any], silent: None
) -> None:
    """Without noise, but for the widths of bins. The whole of it is of rows that were not trained on."""
    over, numbers = world(people=900, share=0.85, numbers="task" in train, seed=SEED), "task" in train
    metrics = ["r2", "rmse"] if numbers else ["auc", "nll", "accuracy"]
    of = attempt(train, {"test_fraction": 0.4, "metrics": metrics, "share_with_passive": not numbers})
    results = of(over)
    plan, (targets, begin) = of.plan(over), of.targets(over)
    tested = plan.testing[over.both[plan.testing]]
    scores, y = scores_of(of, over, open_model(results, plan.plan.widths), begin)[0, tested], targets[0, tested]
    if numbers:
        table, _ = over.data["clinic"]
        expected = {
            "r2": r2_score(y, scores),
            "rmse": np.sqrt(np.mean((y - scores) ** 2)) * TargetScale.fit(table.labels).deviation,
        }
    else:
        likely = sigmoid(scores)
        expected = {"auc": roc_auc_score(y, scores), "nll": log_loss(y, likely), "accuracy": accuracy_score(y, likely > 0.5)}
        assert results[1].results.metrics == results[0].results.metrics
    for name, value in expected.items():
        assert results[0].results.metrics[name] == pytest.approx(value, abs=0.02, rel=0.05), name


def test_metrics_of_several_classes_are_the_mean_area(world: Any, attempt: Any, silent: None) -> None:
    over = world(people=900, share=0.85, classes=3, seed=SEED)
    of = attempt({"classes": 3}, {"test_fraction": 0.4, "metrics": ["auc"]})
    results = of(over)
    plan, (targets, begin) = of.plan(over), of.targets(over)
    tested = plan.testing[over.both[plan.testing]]
    scores, y = scores_of(of, over, open_model(results, plan.plan.widths), begin)[:, tested], targets[:, tested]
    expected = np.mean([roc_auc_score(*pair) for pair in zip(y, scores, strict=True)])
    assert expected > 0.6
    assert results[0].results.metrics["auc"] == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("metrics_by", ["histogram", "none"])
def test_rows_held_out_are_named_whether_or_not_they_are_measured(world: Any, attempt: Any, metrics_by: str) -> None:
    over = world(people=200)
    results = attempt({"metrics_by": metrics_by}, {"test_fraction": 0.4, "metrics": ["auc"]})(over)
    trained, tested = results[0].rows
    assert len(results[0].held_out) == len(over) - trained > 0
    assert tested == len(results[0].held_out)


@pytest.mark.parametrize("classes", [2, 3])
def test_each_party_gets_its_own_splits_and_the_active_one_the_leaves(world: Any, attempt: Any, classes: int) -> None:
    over, of = world(3, people=400, classes=classes, seed=SEED), attempt({"classes": classes})
    results = of(over)
    widths = of.plan(over).plan.widths
    model, first, seen = open_model(results, widths), 0, 0
    for result, width in zip(results, widths, strict=True):
        columns = BinnedColumns.from_json(result.encoder)
        mine = [
            (tree + 1, None, node + 1, columns.describe(pick - first))
            if classes == 2
            else (tree // classes + 1, tree % classes, node + 1, columns.describe(pick - first))
            for tree, picks in enumerate(model.picks)
            for node, pick in enumerate(picks)
            if first <= pick < first + width
        ]
        assert [(each.tree, each.label, each.node, each.split) for each in result.section.splits] == mine
        first, seen = first + width, seen + len(mine)
    assert seen == (model.picks < sum(widths)).sum() > 5
    np.testing.assert_array_equal(results[0].section.leaves, model.leaves)
    assert [of.section.leaves for of in results[1:]] == [(), ()]
