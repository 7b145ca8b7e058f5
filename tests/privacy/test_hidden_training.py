"""What a party receives in training in shares tells it neither membership nor labels; without one of the protections it does.

Attackers have what came in messages and what was opened by it, row by row, and the attacks of the project on it. A boosted tree
also has all that the party drew, got from the dealer and sent, its own columns, and its own part of the score by the weights
that are opened to it. It is trained on half of the rows with the truth beside them, more than any attacker has, and judged on
the other half, and the other way round.

An area under the curve over n rows, half of which are positive, has a standard error of 1/√(3n) at chance: .0043 for the 18,000
rows of ten runs together. So .02 is 4.6 standard errors, and one in 200,000 areas lies beyond by chance; of the six runs of
`make test` 3.6 standard errors, and one in 3,000. All seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from tests.crypto.shares.together import Run
from tests.thorough import every, examples
from vfl_node.crypto.shares.machine import Party, ShareMachine
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.ring import FRACTION, WEIGHT_FRACTION, Ring, encode
from vfl_node.crypto.shares.values import Shared
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import run_attacks
from vfl_node.privacy.labels.attacks import OF_TWO_CLASSES
from vfl_node.privacy.labels.shown import Course, KnownRows
from vfl_node.training.hidden.brought import HiddenPlan, Own, WeightShares
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.descent import Descent
from vfl_node.training.hidden.network import Form
from vfl_node.training.schedule import Schedule

ROWS, EPOCHS, RUNS, KNOWN = 2700, 2, examples(10, fewer=6), 50
TOLERANCE = 0.02

Floats = NDArray[np.float64]
Truth = NDArray[np.bool_]


class World:
    """A union of which each party owns two thirds, half of these together with any other one."""

    def __init__(self, parties: int, seed: int) -> None:
        rng = np.random.default_rng([parties, seed])
        kinds = np.array([[True, True], [True, False], [False, True]])[rng.permutation(ROWS) % 3]
        self.owned = np.concatenate([kinds, kinds[:, 1:][:, [0] * (parties - 2)]], axis=1)
        self.columns = [rng.normal(size=(ROWS, 4 - (place > 0))) for place in range(parties)]
        z = self.columns[0][:, 0] + self.columns[1][:, 0]
        self.labels = rng.random(ROWS) < 1 / (1 + np.exp(-z))

    def own(self, place: int) -> Own:
        """What a party brings."""
        bits = self.owned[:, place]
        targets = self.labels[:, None] * bits[:, None] * (place == 0)
        return Own(encode(self.columns[place] * bits[:, None]), bits[:, None].astype(np.uint64), encode(targets, 2 * FRACTION))


@dataclass(frozen=True, eq=False)
class View:
    """What one party has of each row.

    Attributes:
        messages: float64[rows, …] of each epoch, between 0 and 1: received and opened, with what came before the first one.
        drawn: float64[rows, …]: its masks, what the dealer sent, and what it sent itself.
        score: float64[rows]: its part of the last score.
    """

    messages: Sequence[Floats]
    drawn: Floats
    score: Floats

    @property
    def everything(self) -> Floats:
        """float64[rows, …]."""
        return np.concatenate([*self.messages, self.drawn, self.score[:, None]], axis=1)


def plan_of(world: World, hidden: tuple[int, ...]) -> HiddenPlan:
    return HiddenPlan(
        form=Form(tuple(of.shape[1] for of in world.columns), hidden, 1, "exact"),
        rows=ROWS,
        schedule=Schedule(bytes(32), ROWS, 0),
        training=np.arange(ROWS),
        testing=np.arange(ROWS)[:0],
        descent=Descent(EPOCHS, momentum=0.5, rate=1.0, deviation=None if hidden else 1.0),
        batch_rows=ROWS,
        divisor=ROWS / 3,
        weight_decay=0.0,
        bins=256,
        reveals=True,
    )


def views(world: World, hidden: tuple[int, ...], seed: int) -> list[View]:
    """Of all parties, of one training of all their rows as one batch."""
    plan, parties = plan_of(world, hidden), len(world.columns)
    drawn: dict[int, list[Ring]] = {place: [] for place in range(parties)}
    ends: dict[int, list[tuple[int, ...]]] = {place: [] for place in range(parties)}
    material = Party._material

    async def noted(party: Party, *of: Any) -> Any:
        made = await material(party, *of)
        drawn[party.place] += made.values()
        return made

    async def program(machine: ShareMachine) -> Any:
        place = machine.place

        async def after(*_: Any) -> None:
            if place >= 0:
                ends[place].append(tuple(map(len, lists(place))))

        def lists(place: int) -> tuple[list[Ring], ...]:
            table = machine._wire._table  # type: ignore[attr-defined]
            return table.heard[place], table.seen[place], drawn[place], table.laid[place]

        first = [np.random.default_rng(1).normal(size=shape) * 0.5 * (place == 0) for shape in plan.form.shapes]
        start = WeightShares(tuple(encode(of, WEIGHT_FRACTION) for of in first), tuple(encode(0 * of) for of in first))
        outcome = await compute(machine, plan, world.own(place) if place >= 0 else None, start, 0, after)
        return outcome, lists(place) if place >= 0 else ()

    with mock.patch.object(Party, "_material", noted):
        run = Run(program, parties, seed)
    orders = [np.argsort(plan.batches(epoch)[0]) for epoch in range(EPOCHS)]
    found = []
    for place, (outcome, each) in enumerate(run.results):
        cut = [sections(of, [end[number] for end in ends[place]], orders) for number, of in enumerate(each)]
        messages = [np.concatenate([heard, seen], axis=1) for heard, seen in zip(cut[0], cut[1], strict=True)]
        score = world.columns[place] @ outcome.weights[place].mean(axis=1)
        found.append(View(messages, np.concatenate([*cut[2], *cut[3]], axis=1), score))
    return found


def sections(values: Sequence[Ring], ends: Sequence[int], orders: Sequence[NDArray[np.int64]]) -> list[Floats]:
    """What belongs to rows, in the order of the union: of each epoch, with what came before the first one."""
    each = ends[1] - ends[0]
    before = by_row(values[: ends[0] - each])
    parts = []
    for end, order in zip(ends, orders, strict=True):
        parts.append(np.concatenate([before, by_row(values[end - each : end])[order]], axis=1))
    assert parts[0].shape[1] > before.shape[1]
    return parts


def by_row(values: Sequence[Ring]) -> Floats:
    """float64[rows, …] between 0 and 1 of all that has an axis of rows; others are passed over."""
    parts = [np.empty((ROWS, 0))]
    for value in values:
        if ROWS in value.shape:
            flat = np.moveaxis(value, value.shape.index(ROWS), 0).reshape(ROWS, -1)
            parts.append(flat / 2.0 ** max(49, int(flat.max()).bit_length()))
    return np.concatenate(parts, axis=1)


@contextmanager
def without_masks() -> Iterator[None]:
    draw = ShareMachine._draw
    with mock.patch.object(ShareMachine, "_draw", lambda *of: 0 * draw(*of)):
        yield


def trained_auc(features: Floats, truth: Truth) -> float:
    """Of a boosted tree: the mean of both halves, each judged by what was learnt on the other one."""
    halves, areas = np.arange(len(truth)) % 2, []
    for half in (0, 1):
        model = HistGradientBoostingClassifier(max_iter=15, max_bins=31, random_state=0)
        model.fit(features[halves == half], truth[halves == half])
        said = model.predict_proba(features[halves != half])[:, 1]
        areas.append(roc_auc_score(truth[halves != half], said))
    return float(np.mean(areas))


def membership_attacks(view: View, rows: Truth, truth: Truth) -> dict[str, float]:
    """AUC of every attack of the project; a row's numbers count as its gradient, too."""
    where = np.arange(int(rows.sum()))
    tensors = [torch.from_numpy(of[rows]).float() for of in view.messages]
    transcript = [Batch(epoch, where, of, of) for epoch, of in enumerate(tensors)]
    return {name: float(area) for name, area in run_attacks(transcript, truth[rows]).items() if area is not None}


def label_attacks(view: View, rows: Truth, truth: Truth) -> dict[str, float]:
    """AUC of every attack of the project by a party that knows some positive rows.

    Which side is which is not said, so an area is folded, and the mean of what that adds at chance is taken off.
    """
    (positive,) = np.nonzero(truth[rows])
    tensors = [torch.from_numpy(of[rows]).float() for of in view.messages]
    window = torch.arange(len(tensors[0]))
    known = np.concatenate([positive[:KNOWN], np.flatnonzero(~truth[rows])[:KNOWN]])
    course = Course()
    shown = [course.epoch_done(of, [window], tensors[0]) for of in tensors][-1]
    told = KnownRows(torch.from_numpy(known), torch.from_numpy(truth[rows][known].astype(np.float32))[:, None])
    scores = {name: attack(shown) for name, attack in OF_TWO_CLASSES.blind.items()}
    scores |= {name: attack(shown, told) for name, attack in OF_TWO_CLASSES.informed.items()}
    others = np.setdiff1d(np.arange(len(window)), known)
    areas = {name: roc_auc_score(truth[rows][others], score[others]) for name, score in scores.items()}
    folding = np.sqrt(2 / np.pi / (3 * len(others)))
    return {name: float(0.5 + abs(area - 0.5) - folding) for name, area in areas.items()}


def means(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([of[name] for of in found])) for name in found[0]}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def seen() -> Callable[..., list[tuple[World, list[View]]]]:
    """Worlds and views of all runs, by the number of parties and the widths of hidden layers."""
    made: dict[Any, list[tuple[World, list[View]]]] = {}

    def runs(parties: int, hidden: tuple[int, ...]) -> list[tuple[World, list[View]]]:
        if (parties, hidden) not in made:
            worlds = [World(parties, seed) for seed in range(RUNS)]
            made[parties, hidden] = [(world, views(world, hidden, seed)) for seed, world in enumerate(worlds)]
        return made[parties, hidden]

    return runs


CASES = [(2, (), 0)]
CASES += [pytest.param(*of, marks=pytest.mark.slow) for of in [(3, (), 2), (2, (), 1), (3, (), 0), (2, (4,), 0), (2, (4,), 1)]]  # type: ignore[arg-type]


@pytest.mark.parametrize(("parties", "hidden", "place"), CASES)
def test_nothing_received_tells_membership(seen: Any, parties: int, hidden: tuple[int, ...], place: int) -> None:
    """The active party of several hears the shares of each; others hear sums."""
    features, truths, found = [], [], []
    for world, of_all in seen(parties, hidden):
        own, theirs = world.owned[:, place], world.owned[:, 1 if place == 0 else 0]
        found.append(membership_attacks(of_all[place], own, ~theirs))
        features.append(np.concatenate([of_all[place].everything, world.columns[place]], axis=1)[own])
        truths.append(theirs[own])
    areas = means(found) | {"trained": trained_auc(np.concatenate(features), np.concatenate(truths))}
    assert set(areas) == {*ATTACKS, "trained"}
    assert areas == pytest.approx(dict.fromkeys(areas, 0.5), abs=TOLERANCE)


@pytest.mark.parametrize(
    ("parties", "hidden", "place"), [case for case in CASES if (case.values if hasattr(case, "values") else case)[2]]
)
def test_nothing_received_tells_labels(seen: Any, parties: int, hidden: tuple[int, ...], place: int) -> None:
    """But by the party's own columns, and by its part of the score, which is what a model is for."""
    features, truths, found = [], [], []
    for world, of_all in seen(parties, hidden):
        labelled, view = world.owned[:, 0], of_all[place]
        found.append(label_attacks(view, labelled, world.labels))
        features.append(np.concatenate([*view.messages, view.drawn], axis=1)[labelled])
        truths.append(world.labels[labelled])
    areas = means(found) | {"trained": trained_auc(np.concatenate(features), np.concatenate(truths))}
    assert set(areas) == {*OF_TWO_CLASSES.names, "trained"}
    assert areas == pytest.approx(dict.fromkeys(areas, 0.5), abs=TOLERANCE)


@pytest.mark.parametrize(("parties", "place"), every(3, [(2, 0), (2, 1), (3, 0), (3, 2)]))
def test_without_masks_the_same_attacks_tell_both(parties: int, place: int) -> None:
    world = World(parties, 0)
    with without_masks():
        view = views(world, (), 0)[place]
    own, theirs = world.owned[:, place], world.owned[:, 1 if place == 0 else 0]
    areas = membership_attacks(view, own, ~theirs)
    assert max(areas.values()) > 0.95, areas
    assert trained_auc(view.everything[own], theirs[own]) > 0.99
    if place:
        areas = label_attacks(view, world.owned[:, 0], world.labels)
        assert max(areas.values()) > 0.75, areas
        assert trained_auc(np.concatenate([*view.messages, view.drawn], axis=1)[own], world.labels[own]) > 0.9


@pytest.mark.parametrize("place", [0, 1])
def test_the_weighting_bit_if_it_were_opened_tells_membership(place: int) -> None:
    """As if it had no mask, and everything else had: in the section that opens it under one."""
    world, draw = World(2, 0), ShareMachine._draw

    def bare(machine: ShareMachine, *of: Any) -> Any:
        return draw(machine, *of) * np.uint64(machine._section != "both")

    with mock.patch.object(ShareMachine, "_draw", bare):
        view = views(world, (), 0)[place]
    own, theirs = world.owned[:, place], world.owned[:, 1 - place]
    assert trained_auc(view.everything[own], theirs[own]) == 1.0


def test_a_mask_used_twice_tells_membership() -> None:
    """The weighting bit under a mask, and later a public value under the same one: the difference is the bit."""
    once, truths = [], []
    for seed in range(RUNS):
        mine, theirs = World(2, seed).owned.T

        async def program(machine: ShareMachine, both: Truth = mine & theirs) -> Any:
            value = Shared(both.astype(np.uint64)[:, None] * np.uint64(machine.place == 0), 0)
            machine.begin("same")
            (first,) = await machine.run(mask_value(value))
            machine.begin("same")
            (second,) = await machine.run(mask_value(Shared(np.zeros_like(value.part), 0)))
            return first.difference - second.difference, first.difference

        difference, alone = Run(program, seed=seed).results[0]
        assert trained_auc(difference[mine].astype(float), theirs[mine]) == 1.0
        once.append(alone[mine].astype(float))
        truths.append(theirs[mine])
    assert trained_auc(np.concatenate(once), np.concatenate(truths)) == pytest.approx(0.5, abs=TOLERANCE)
