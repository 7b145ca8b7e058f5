"""Trees of several classes answer, go on after a stop, and cost what is said; so do trees in which not all rows count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.crypto.shares.together import Run
from tests.training.shares_attempts import KilledError, assert_same, kills
from tests.training.trees.conftest import SMALL
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.ring import Ring
from vfl_node.job import Evaluate
from vfl_node.job.costs import Beside
from vfl_node.training.predictor import KeptHalf, StoredModel
from vfl_node.training.shares.prediction import answers
from vfl_node.training.trees import memory
from vfl_node.training.trees.config import MOST_TREES, Trees
from vfl_node.training.trees.costs import TreesTrainingPlan
from vfl_node.training.trees.kept import KeptTrees
from vfl_node.training.trees.predictor import predict

KINDS: list[dict[str, Any]] = [
    {"classes": 3, "trees": 2},
    {"row_fraction": 0.5, "leaves": "none"},
    {"classes": 4, "trees": 2, "row_fraction": 0.5, "leaves": "none"},
]
kinds = pytest.mark.parametrize("train", KINDS, ids=str)


@pytest.mark.parametrize("train", [{}, {"classes": 3, "trees": 2}, {"task": "regression"}], ids=str)
@pytest.mark.parametrize("followed", [memory.FOLLOWED, 1])
def test_shares_answer_as_all_of_them_in_one_place(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch, train: dict[str, Any], followed: int
) -> None:
    """To a step, whether trees are followed at a time or one after the other."""
    monkeypatch.setattr(memory, "FOLLOWED", followed)
    over = world(protocol="psi", people=300, classes=train.get("classes", 2), numbers="task" in train)
    of = attempt(train)
    halves = [
        KeptHalf(StoredModel(of.job(over), result.weights, result.encoder, result.servable.state), view, table)
        for result, (table, view) in zip(of(over), over.data.values(), strict=True)
    ]
    kept = [KeptTrees.from_model(half.model) for half in halves]
    rows, form = 40, kept[0].form
    own = [each.columns(half.table)[half.alignment.rows[:rows]] for each, half in zip(kept, halves, strict=True)]
    nothing = [np.zeros(shape, np.uint64) for shape in form.shapes]

    async def ask(machine: ShareMachine) -> Ring:
        place = machine.place
        mine = (kept[place].form, kept[place].shares, rows, own[place]) if place >= 0 else (form, nothing, rows, None)
        return await answers.answer(machine, *mine, None, 0)

    asked = answers.read(Run(ask).results[0], form)
    assert asked.shape == (rows, train.get("classes", 1) if train.get("classes", 2) > 2 else 1)
    together = predict(halves[0], halves[1:], np.arange(rows))
    monkeypatch.setattr(answers, "round_scores", lambda z, form: z)
    scores: list[np.ndarray] = []
    monkeypatch.setattr(answers, "interpret", lambda z, *rest: scores.append(z) or together)
    predict(halves[0], halves[1:], np.arange(rows))
    assert together.shape == (asked.shape if asked.shape[1] > 1 else (rows,))
    assert np.abs(asked - scores[0]).max() < 2.0 ** -answers.step_bits(form) + 1e-4
    assert np.ptp(scores[0], axis=0).min() > 0.2
    if asked.shape[1] > 1:
        np.testing.assert_allclose(together.sum(axis=1), 1)


@kinds
def test_a_stopped_training_ends_with_the_same_bytes(world: Any, attempt: Any, train: dict[str, Any]) -> None:
    over, uncut = world(people=150, classes=train.get("classes", 2)), attempt(train)
    whole = uncut(over)
    count = sum(entry.sender == "hub" for entry in uncut.transcript)
    first = attempt(train, tamper=kills("hub", round(0.8 * count)))
    assert any(isinstance(result, KilledError) for result in first.raw(over))
    second = first.again(over)
    assert second.resume_from is not None
    assert_same(second(over), whole)


@kinds
@pytest.mark.parametrize("side_by_side", [True, False])
def test_what_is_sent_is_what_was_estimated(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch, train: dict[str, Any], side_by_side: bool
) -> None:
    """But for words of 64 bits that are not full."""
    if not side_by_side:
        monkeypatch.setattr(memory, "GROWN_BYTES", 1)
    over = world(people=700, classes=train.get("classes", 2))
    of = attempt(train)
    active, passive = (result.section for result in of(over))
    section, evaluate = Trees.section_of(of.job(over)), Evaluate(test_fraction=0.25)
    cost = TreesTrainingPlan(section, 1, Beside(columns=(3, 4))).cost(evaluate, len(over), "psu")
    assert cost is not None
    assert cost.steps == -(-active.rounds // 2)
    for said, sent in (
        (cost.active_bytes, active.bytes),
        (cost.passive_bytes, passive.bytes),
        (cost.coordinator_bytes, active.dealer_bytes + passive.dealer_bytes),
    ):
        assert said == pytest.approx(sent, rel=2e-3)


def test_rows_that_do_not_count_change_no_length(world: Any, attempt: Any) -> None:
    trains = [{"row_fraction": part, "leaves": "none"} for part in (1.0, 0.3)]
    sections = [[result.section for result in attempt(train)(world())] for train in trains]
    for one, other in zip(*sections, strict=True):
        assert (one.rounds, one.bytes, one.dealer_bytes) == (other.rounds, other.bytes, other.dealer_bytes)


def test_as_many_trees_grow_side_by_side_as_memory_is_meant_for() -> None:
    """One at least, and fewer where there are many rows or candidates; memory grows with them, up to what is said."""

    def train(classes: int) -> Trees:
        return Trees.model_validate(SMALL | {"classes": classes, "depth": 8})

    for rows, widths, expected in [
        (1000, (5, 5), 12),
        (1000, (300, 300), 1),
        (40_000, (5, 5), 2),
        (4_000_000, (5, 5), 1),
        (0, (5, 5), 12),
    ]:
        assert memory.grown_at_once(train(64), rows, widths) == expected
        assert memory.grown_at_once(train(2), rows, widths) == 1
        for needed in (memory.party_bytes, lambda *of: memory.dealer_bytes(*of) // 3):
            two, many = (needed(train(classes), rows, widths) for classes in (2, 64))
            assert (two < many <= two + memory.GROWN_BYTES) if expected > 1 else two == many


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"classes": 65}, "less than or equal to 64"),
        ({"classes": 1}, "greater than or equal to 2"),
        ({"classes": 20, "trees": 501}, f"more than {MOST_TREES:,} trees: say 500 at most"),
        ({"classes": 3, "task": "regression"}, "classes is for task: classification"),
        ({"row_fraction": 0}, "greater than 0"),
        ({"row_fraction": 1.5}, "less than or equal to 1"),
        ({"row_fraction": 0.99}, "row_fraction below 1 needs leaves: none"),
    ],
    ids=str,
)
def test_jobs_that_are_refused(train: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Trees.model_validate(SMALL | train)
