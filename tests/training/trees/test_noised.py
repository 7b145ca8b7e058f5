"""Trees with an ε: drawn splits, noise in leaves, and what that leaves to tell of single records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from tests.crypto.shares.together import Run, check_cost, spread, total
from tests.training.shares_attempts import KilledError, assert_same
from tests.training.trees.conftest import open_model
from tests.training.trees.plain import cap, derivatives
from tests.training.trees.test_restarts import Sections, assert_alike
from vfl_node.crypto.shares.cells import mask_cells
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.operations import mask_value
from vfl_node.crypto.shares.ring import FRACTION, decode
from vfl_node.crypto.shares.sines import PERIOD, SIGMOID
from vfl_node.crypto.shares.values import Shared
from vfl_node.gdp import auc_bound, mu_of
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.evaluate import Evaluate
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.trees import noised
from vfl_node.training.trees.computation import TreesOwn
from vfl_node.training.trees.config import MOST_ROWS, Trees
from vfl_node.training.trees.costs import describe_noise
from vfl_node.training.trees.gradients import TERMS, find_pairs
from vfl_node.training.trees.inputs import digest_of
from vfl_node.training.trees.noised import MARGIN, OF_HESSIANS, deviation, draw_splits, grow_noised_tree, no_splits
from vfl_node.training.trees.plan import CURVE_FLOOR, NOISED_BELOW, PLACE_BITS, SCORE_FRACTION, TreesPlan
from vfl_node.training.trees.reveals import declare

Floats = NDArray[np.float64]
NOISED = {"epsilon": 50.0, "trees": 2, "depth": 2}
DEPTH, TREES = 8, 4
RECORDS = 1 << DEPTH
"""As many as there are leaves: each is alone in one."""


@dataclass(frozen=True, eq=False)
class Case:
    """Records of which each is alone in a leaf of every tree.

    Attributes:
        shared, labels: of each record.
        noise: σ.
        seed: of all masks, and so of the noise.
    """

    shared: NDArray[np.bool_]
    labels: NDArray[np.bool_]
    noise: float
    seed: int = 0

    @property
    def plan(self) -> TreesPlan:
        half = DEPTH // 2
        return TreesPlan(RECORDS, (half, half), TREES, DEPTH, 0.3, max(1.0, self.noise), 0.0, 1, deviation=self.noise)

    async def program(self, machine: ShareMachine) -> list[Any]:
        plan, rows = self.plan, np.arange(RECORDS)
        bits = (rows[:, None] >> np.arange(DEPTH)[::-1] & 1 == 0).astype(np.uint16)  # the first candidate splits the root
        one = [np.array([[False], [True]])] * (DEPTH // 2)
        own = [Candidates(of, one) for of in np.split(bits, 2, axis=1)]
        machine.begin("cells")
        cells = [await mask_cells(machine, at, RECORDS, DEPTH // 2, own[at] if machine.place == at else None) for at in (0, 1)]
        (counted,) = await machine.run(mask_value(spread(machine, self.shared.astype(np.int64))))
        targets = (self.labels[None].astype(np.uint64) << np.uint64(2 * FRACTION)) * np.uint64(machine.place == 0)
        flags, scores, found = no_splits(plan), Shared(np.zeros((1, RECORDS), np.uint64), SCORE_FRACTION), []
        for level in range(DEPTH):
            if machine.place == level // (DEPTH // 2):
                flags[(1 << level) - 1 :][: 1 << level, level] = 1
        for number in range(TREES):
            machine.begin(f"tree {number}")
            pairs = await find_pairs(machine, plan, scores, targets, counted)
            tree, scores = await grow_noised_tree(machine, plan, cells, pairs, scores, flags)
            scores = Shared(scores.part & np.uint64((1 << PLACE_BITS) - 1), SCORE_FRACTION)
            found.append(tree.leaves.part)
        return found

    @property
    def run(self) -> Run:
        return Run(self.program, seed=self.seed)

    @property
    def leaves(self) -> Floats:
        """float64[trees, leaves], in the order of records."""
        return np.stack([decode(total(of).view(np.uint64), SCORE_FRACTION) for of in zip(*self.run.results, strict=True)])


def case(epsilon: float | None, seed: int = 0, trees: int = TREES) -> Case:
    """Half of the records are shared, and labels are coins; None: with next to no noise."""
    rng = np.random.default_rng(seed)
    noise = 2.0**-14 if epsilon is None else deviation(epsilon, trees, worlds=1)
    return Case(rng.permutation(RECORDS) < RECORDS // 2, rng.random(RECORDS) < 0.5, noise, seed)


def test_without_noise_leaves_are_those_of_plain_boosting_and_costs_are_as_counted() -> None:
    of = case(None)
    plan, scores = of.plan, np.zeros(RECORDS)
    for leaves in of.leaves:
        g, h = derivatives(plan, scores, of.labels.astype(float))
        expected = cap(plan, -plan.rate * of.shared * g / (of.shared * h + plan.l2))
        np.testing.assert_allclose(leaves, expected, rtol=2e-3, atol=2e-4)
        scores += leaves
    check_cost(of.run, of.program)


@pytest.mark.parametrize(
    ("noise", "spoilt"),
    [(None, False), (2.0**16, False), (None, True)],
    ids=["as it is", "far below 0", "half the noise"],
)
def test_sums_without_a_shared_record_have_the_noise_of_the_formula(
    monkeypatch: pytest.MonkeyPatch, noise: float | None, *, spoilt: bool
) -> None:
    """With its control: half of it would be seen. Of much noise sums of hessians lie far below 0."""
    usual, seen, find = case(1.0), {}, noised.find_values
    of = usual if noise is None else replace(usual, noise=noise)

    async def noted(machine: ShareMachine, plan: TreesPlan, gradients: Shared, hessians: Shared) -> Shared:
        seen.setdefault(machine.place, []).append((gradients.part, hessians.part))
        return await find(machine, plan, gradients, hessians)

    monkeypatch.setattr(noised, "find_values", noted)
    if spoilt:
        draw = noised.draw_noise
        monkeypatch.setattr(noised, "draw_noise", lambda shape, of, fraction: draw(shape, of / 2, fraction))
    nobody = Case(np.zeros(RECORDS, np.bool_), of.labels, of.noise)
    run, plan = nobody.run, nobody.plan
    parts = [total(each) for each in zip(*(np.array(seen[place]) for place in (0, 1)), strict=True)]
    sums = np.array(parts).reshape(TREES, 2, -1)
    for at, expected, fraction in (
        (0, of.noise, plan.gradient_fraction),
        (1, OF_HESSIANS * of.noise, plan.hessian_fraction),
    ):
        found = sums[:, at].ravel() / 2.0**fraction
        right = abs(found.std() / expected - 1) < 3 / np.sqrt(2 * len(found)) and abs(found.mean()) < 4 * expected / 32
        assert right != spoilt
    g, h = sums[:, 0] / 2.0**plan.gradient_fraction, sums[:, 1] / 2.0**plan.hessian_fraction
    expected = cap(plan, np.where(h > 0, -plan.rate * g / (np.maximum(h, 0) + plan.l2), 0.0))
    leaves = decode(np.stack([total(each) for each in zip(*run.results, strict=True)]).view(np.uint64), SCORE_FRACTION)
    np.testing.assert_allclose(leaves, expected, rtol=2e-3, atol=2e-4)
    assert 0.3 < (leaves == 0).mean() < 0.7  # where noise made H negative


def fractions(rows: int, noise: float) -> tuple[int, int]:
    """Fractional bits of g and h."""
    plan = TreesPlan(rows, (1, 1), 1, 1, 0.1, 1.0, 0.0, 1, deviation=noise)
    return plan.gradient_fraction, plan.hessian_fraction


def test_one_record_moves_the_sums_of_a_leaf_by_no_more_than_noise_covers_whatever_its_score_is() -> None:
    x = np.linspace(-PERIOD / 2, PERIOD / 2, 1_000_001)
    value, slope = SIGMOID[TERMS].values(x) + 0.5, SIGMOID[TERMS].slopes(x) + CURVE_FLOOR
    moved = max(np.hypot(value - label, slope / OF_HESSIANS).max() for label in (0, 1))
    g, h = fractions(MOST_ROWS, 2.0**30)  # the coarsest
    rounded = max(np.hypot(np.abs(value - label) + 2.0**-g, (np.abs(slope) + 2.0**-h) / OF_HESSIANS).max() for label in (0, 1))
    assert 1 <= moved < 1.0001 < rounded < MARGIN
    assert deviation(1.0, 100, worlds=2) == pytest.approx(2 * MARGIN * 10 / mu_of(1.0))


def told(epsilon: float | None, seeds: range) -> tuple[float, float]:
    """How well leaves of single records tell who is shared, by who knows labels; and labels of the shared."""
    member, sign, of_shared, read = [], [], [], []
    for seed in seeds:
        of = case(epsilon, seed)
        seen = -of.leaves.sum(axis=0)
        member.append(of.shared)
        sign.append(seen * (1 - 2.0 * of.labels))
        of_shared.append(of.labels[of.shared])
        read.append(-seen[of.shared])
    return (
        float(roc_auc_score(np.concatenate(member), np.concatenate(sign))),
        float(roc_auc_score(np.concatenate(of_shared), np.concatenate(read))),
    )


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_record_alone_in_its_leaves_is_told_no_better_than_the_bound(epsilon: float) -> None:
    """And at 8 nearly as well: g is ½ at first, so half of the bound's μ is used at most."""
    membership, label = told(epsilon, range(2))
    error = 1 / np.sqrt(3 * 2 * RECORDS)
    assert membership <= auc_bound(mu_of(epsilon)) + 3 * error
    assert label <= auc_bound(mu_of(epsilon)) + 3 * np.sqrt(2) * error
    if epsilon == 8.0:
        expected = auc_bound(mu_of(epsilon) / 2)
        assert membership > 0.5 + (expected - 0.5) / 2
        assert label > 0.5 + (auc_bound(mu_of(epsilon)) - 0.5) / 2


def test_without_noise_such_a_record_is_told() -> None:
    membership, label = told(None, range(1))
    assert membership >= 0.99
    assert label >= 0.99


SECRETS = [bytes([place]) * 32 for place in (1, 2, 3)]
"""Of each party."""


@pytest.mark.parametrize(("rows", "noise"), [(200, 1.0), (5000, 900.0), (2_000_000, 12_000.0), (4_000_000, 18_000.0)])
def test_sums_with_noise_fit_whatever_scores_are(rows: int, noise: float) -> None:
    """Where scores are far out slopes are negative, and so are sums of them."""
    x = np.linspace(-PERIOD / 2, PERIOD / 2, 100_001)
    value, slope = SIGMOID[TERMS].values(x) + 0.5, SIGMOID[TERMS].slopes(x) + CURVE_FLOOR
    g, h = fractions(rows, noise)
    assert (rows * (np.abs(value).max() + 2.0**-g) + 8 * noise) * 2**g < 1 << 30
    assert slope.min() * rows * 2**h < -(1 << 20)  # more than sums without noise have room for
    for most in (slope.min(), slope.max()):
        assert (rows * (abs(most) + 2.0**-h) + 8 * OF_HESSIANS * noise) * 2**h < NOISED_BELOW


def test_only_whose_a_node_is_follows_from_what_is_public() -> None:
    """What splits it another party guesses as well as by chance, also by a secret of its own."""
    plan = TreesPlan(100, (15, 15), 1, 8, 0.1, 1.0, 0.0, 1, deviation=1.0)
    each = [draw_splits(bytes(32), secret, 0, plan, 1, (8, 7)) for secret in SECRETS[:2]]
    np.testing.assert_array_equal(each[0].sum(axis=1), each[1].sum(axis=1))
    nodes = each[0].sum()
    chance = (1 / 8 + 1 / 7) / 4
    assert 100 < nodes < 155
    assert abs((each[0] & each[1]).sum() - nodes * chance) < 4 * np.sqrt(nodes * chance)


def test_other_secrets_are_other_inputs() -> None:
    """So nothing is opened under the masks of an earlier attempt that has drawn others."""
    cells = Candidates(np.zeros((3, 1), np.uint16), [np.array([[True]])])
    own = [TreesOwn(cells, np.ones(3, np.uint64), np.zeros((1, 3), np.uint64), (0.0,), secret) for secret in (b"", *SECRETS)]
    assert len({digest_of(each, bytes(32)) for each in own}) == len(own)


def test_splits_are_drawn_in_turn_by_all_parties_and_by_nothing_but_shapes() -> None:
    plan = TreesPlan(100, (6, 4, 5), 20, 3, 0.1, 1.0, 0.0, 1, deviation=1.0)
    columns = [(5, 1), (4,), (2, 3)]
    for number in range(plan.trees):
        each = [draw_splits(bytes(32), SECRETS[place], number, plan, place, of) for place, of in enumerate(columns)]
        np.testing.assert_array_equal(sum(each).sum(axis=1), 1)  # one party and candidate for each node
        np.testing.assert_array_equal(each[0], draw_splits(bytes(32), SECRETS[0], number, plan, 0, columns[0]))
    every = [draw_splits(bytes(32), SECRETS[0], number, plan, 0, columns[0]).sum(axis=0) for number in range(800)]
    counts = np.sum(every, axis=0)[:6]
    nodes = 800 * 7 / 3  # a third is each party's, half of that each column's
    np.testing.assert_allclose(counts, [nodes / 10] * 5 + [nodes / 2], rtol=0.35)


def test_the_whole_training_and_what_is_said_of_it(world: Any, attempt: Any) -> None:
    over, of = world(3, people=400, seed=3), attempt(NOISED)
    results = of(over)
    plan = of.plan(over).plan
    model = open_model(results, plan.widths)
    assert plan.deviation == deviation(50.0, 2, worlds=2)  # a union
    assert (model.picks < plan.width).all()
    assert (np.abs(model.leaves) <= 1).all()
    assert results[0].section.privacy.epsilon == pytest.approx(50, rel=1e-3)
    kinds = {(name, entry.what) for name, entries in results[0].disclosures.items() for entry in entries}
    assert {("clinic", "splits"), ("clinic", "leaf values"), ("clinic", "privacy")} <= kinds
    assert not any(of.section.gains for of in results)
    assert not [entry for entries in results[0].disclosures.values() for entry in entries if "gain" in entry.text]
    declared = list(declare(of.job(over)))
    assert kinds <= {(each.to, each.what) for each in declared}
    assert not [each.bound for each in declared if "without a bound" in each.bound or "gain" in each.bound]


def test_killed_in_a_tree_it_ends_with_the_same_bytes(world: Any, attempt: Any) -> None:
    over, uncut = world(2, people=80), attempt(NOISED)
    whole = uncut(over)
    for section in ("tree 0", "tree 1", "reveal"):
        first = attempt(NOISED)
        with Sections("lab", section):
            assert any(isinstance(result, KilledError) for result in first.raw(over))
        second = first.again(over)
        assert_same(second(over), whole)
        assert_alike(first, second, uncut, over)


def test_a_job_with_an_epsilon_is_bounded_and_small_trees_are_usual() -> None:
    train = Trees(algorithm="trees", epsilon=1)
    opened = train.opens(Evaluate())
    assert (train.trees, train.depth, train.unbounded, opened.unbounded, opened.anew) == (200, 3, None, "", False)
    assert opened.mu == mu_of(1)
    assert Trees(algorithm="trees", epsilon=1, trees=7, depth=2).trees == 7
    without = Trees(algorithm="trees")
    assert (without.trees, without.depth, without.unbounded) == (50, 5, "boosted-trees")
    assert without.opens(Evaluate()).anew


def test_an_estimate_says_where_it_does_not_pay() -> None:
    train, psi, psu = Trees(algorithm="trees", epsilon=1), ALIGNMENTS["psi"], ALIGNMENTS["psu"]
    assert describe_noise(train, 2000, psi) == describe_noise(Trees(algorithm="trees"), 10, psi) == ()
    assert "below a product of 3,000" in describe_noise(train, 2000, psu)[0]
    assert "below a product of 1,500" in describe_noise(train, 1400, psi)[0]


@pytest.mark.parametrize(
    ("also", "said"),
    [
        ({"task": "regression"}, "is for task: classification"),
        ({"classes": 3}, "is for two classes"),
        ({"row_fraction": 0.5}, "row_fraction must be 1 with train.epsilon"),
    ],
)
def test_what_noise_is_not_counted_for_has_no_epsilon(also: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Trees.model_validate({"algorithm": "trees", "epsilon": 1, **also})
