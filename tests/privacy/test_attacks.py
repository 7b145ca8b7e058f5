from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks import ATTACKS, collinear, distance_ratio, near_duplicate, spectral
from vfl_node.privacy.attacks.collinear import Collinear
from vfl_node.privacy.attacks.longitudinal import Longitudinal
from vfl_node.privacy.attacks.near_duplicate import NearDuplicate
from vfl_node.privacy.attacks.row_loss import RowLoss
from vfl_node.privacy.attacks.same_step_twin import SameStepTwin
from vfl_node.privacy.attacks.transcript import Batch
from vfl_node.privacy.attacks.whole import follow, run_attacks


def judged(attack: str, transcript: Sequence[Batch], truth: NDArray[np.bool_]) -> float | None:
    """The AUC of an attack on a whole transcript."""
    return follow(ATTACKS[attack], transcript, truth).score()


def chance() -> Any:
    """.5 within 2½ standard errors of 300 rows a kind."""
    return pytest.approx(0.5, abs=0.06)


def test_longitudinal_finds_redrawn_rows_and_is_at_chance_against_fixed_ones(split: Any) -> None:
    world = split()
    two, five = (world.transcript(epochs, lambda epoch: world.copies(str(epoch))) for epochs in (2, 5))
    early, late = (judged("longitudinal", of, world.synthetic) or 0 for of in (two, five))
    assert early > 0.9
    assert late >= early
    assert judged("longitudinal", world.transcript(5, lambda epoch: world.copies("once")), world.synthetic) == chance()


def test_near_duplicate_and_twins_find_copies_even_fixed_ones_and_are_at_chance_against_fresh_rows(split: Any) -> None:
    world = split()
    copied, fresh = world.transcript(4, lambda epoch: world.copies("once")), world.transcript(4)
    assert (judged("near_duplicate", copied, world.synthetic) or 0) > 0.62
    assert (judged("same_step_twin", copied, world.synthetic) or 0) > 0.6
    assert judged("near_duplicate", fresh, world.synthetic) == chance()
    assert judged("same_step_twin", fresh, world.synthetic) == chance()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("batch", [100, 600])  # steps of a training, and rows that are held out or predicted, all at once
def test_collinear_finds_rows_between_two_others_and_is_at_chance_against_fresh_ones(relu: bool, batch: int) -> None:
    drawn = Randomness(b"c" * 32)
    x = torch.Generator().manual_seed(1)
    rows, synthetic = torch.randn(600, 6, generator=x), np.arange(600) >= 300
    near = torch.cdist(rows[:300], rows[:300]).argsort(dim=1)[:, 1:6]  # as SMOTE chooses
    other = rows[near[np.arange(300), drawn.choices(5, 300)]]
    between = torch.lerp(rows[:300], other, torch.rand(300, 1, generator=x))[drawn.permutation(300)]
    bottom = MlpBottom(InputSchema(6), (32, 16)) if relu else nn.Linear(6, 16)
    for parameter in bottom.parameters():
        nn.init.normal_(parameter, std=0.3, generator=x)

    def found(rows: torch.Tensor, steps: int) -> float:
        batches = []
        for _ in range(steps):
            for positions in np.split(drawn.permutation(600), range(batch, 600, batch)):
                features = rows[torch.from_numpy(positions)]
                with torch.no_grad():
                    embedding = bottom(ModelInput.from_tensors(features)) if relu else bottom(features)
                batches.append(Batch(0, positions, embedding))
        return judged("collinear", batches, synthetic) or 0

    steps = 1 if batch == 600 else 40  # both parents are in a batch of a sixth of the rows one time in 36
    made = torch.cat([rows[:300], between])
    assert found(made, steps) > (0.6 if relu else 0.85)
    assert found(rows, steps) == chance()


def test_spectral_finds_gaussian_embeddings_and_is_at_chance_against_sampled_rows(split: Any) -> None:
    world = split()
    assert (
        judged("spectral", world.gaussian(world.transcript(1)), world.synthetic) or 0
    ) > 0.57  # .60 on average over initial weights
    assert judged("spectral", world.transcript(1, lambda epoch: world.copies("once")), world.synthetic) == chance()


def test_row_loss_finds_features_that_do_not_fit_their_labels_and_is_at_chance_where_they_do(split: Any) -> None:
    world = split(fits=True, learning_rate=1e-2)
    copied = world.transcript(8, lambda epoch: world.copies("once"))
    assert (judged("row_loss", copied, world.synthetic) or 0) > 0.62
    assert judged("row_loss", world.transcript(8), world.synthetic) == chance()


def test_an_audit_runs_every_attack_and_none_is_folded(split: Any) -> None:
    world = split()
    transcript = world.gaussian(world.transcript(2))
    found = run_attacks(transcript, world.synthetic)
    names = ["collinear", "distance_ratio", "longitudinal", "near_duplicate", "row_loss", "same_step_twin", "spectral"]
    assert list(found) == list(ATTACKS) == names
    for name, value in run_attacks(transcript, ~world.synthetic).items():
        before = found[name]
        assert value is not None
        assert before is not None
        assert value == pytest.approx(1 - before)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_where_there_is_nothing_to_tell_apart_there_is_no_auc(split: Any, name: str) -> None:
    world = split()
    transcript = world.transcript(2)
    assert judged(name, transcript, np.zeros(world.rows, dtype=bool)) is None
    assert judged(name, transcript, np.ones(world.rows, dtype=bool)) is None
    assert judged(name, [], world.synthetic) is None


def test_longitudinal_needs_two_epochs_and_row_loss_gradients(split: Any) -> None:
    world = split()
    transcript = world.transcript(1)
    assert judged("longitudinal", transcript, world.synthetic) is None
    assert judged("row_loss", transcript, world.synthetic) is not None
    assert judged("row_loss", [Batch(of.epoch, of.positions, of.rows) for of in transcript], world.synthetic) is None


def test_longitudinal_scores_are_mean_changes_of_direction() -> None:
    rows = torch.tensor(
        [
            [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1e-12, 1e-12]],
            [[2.0, 0.0], [0.0, 3.0], [0.0, 0.0], [1.0, 0.0], [2e-12, 2e-12]],
            [[1.0, 0.0], [0.0, -1.0], [0.0, 0.0], [1.0, 0.0], [-1e-12, -1e-12]],
        ]
    )
    batches = [Batch(epoch, np.arange(5), of) for epoch, of in enumerate(rows)]
    assert follow(Longitudinal, batches, np.zeros(5, bool)).scores().tolist() == pytest.approx([0, 1.5, 0, 0.5, 1], abs=1e-12)


def test_near_duplicate_scores_are_distances_to_the_nearest_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [9.0, 9.0], [9.0, 9.0]])
    expected = [-1, -(18**0.5), -1, 0, 0]
    for at_once in (1, 2, 5, 100):
        monkeypatch.setattr(near_duplicate, "ROWS_AT_ONCE", at_once)
        assert near_duplicate.scores(rows).tolist() == pytest.approx(expected, abs=1e-6)


def test_the_distance_of_near_rows_that_lie_far_out_is_exact() -> None:
    rows = torch.tensor([[1000.0, 0.0], [1000.0, 0.001], [0.0, 1000.0], [0.0, 1000.5]])
    expected = [rows[1, 1].item(), rows[1, 1].item(), 0.5, 0.5]
    assert near_duplicate.nearest(rows, torch.arange(4)).tolist() == pytest.approx(expected, rel=1e-12)
    assert near_duplicate.nearest(rows, torch.tensor([2])).tolist() == pytest.approx([0.5])
    tiny = torch.tensor([[1e-25, 0.0], [0.0, 1e-25], [1.0, 0.0]])  # gradients of rows that are predicted well
    assert near_duplicate.nearest(tiny, torch.arange(3)).tolist() == pytest.approx([2**0.5 * 1e-25] * 2 + [1], rel=1e-6, abs=0)
    assert near_duplicate.nearest(rows[:1], torch.tensor([0])).tolist() == [np.inf]
    assert near_duplicate.nearest(rows, torch.tensor([], dtype=torch.int64)).tolist() == []


def test_twins_are_sought_within_a_step_and_relative_to_their_norm() -> None:
    batches = [
        Batch(0, np.array([0, 1, 2]), torch.tensor([[3.0, 4.0], [3.0, 5.0], [30.0, 40.0]])),
        Batch(0, np.array([3]), torch.tensor([[3.0, 4.0]])),  # equal to the first row, but of another step
        Batch(1, np.array([2, 0, 1]), torch.tensor([[1e-20, 0.0], [1e-20, 1e-27], [2e-20, 0.0]])),
        Batch(2, np.array([2, 0]), torch.zeros(2, 2)),
    ]
    shares = follow(SameStepTwin, batches, np.zeros(5, bool)).scores()
    assert shares.tolist() == pytest.approx([2 / 3, 0, 2 / 3, 0, np.nan], nan_ok=True)


def test_collinear_scores_are_minus_the_least_cosine_between_two_ways() -> None:
    rows = torch.tensor([[0.0, 1.0], [1.0, 1.0], [3.0, 1.0], [3.0, 4.0], [3.0, 4.0]])
    expected = [-(0.5**0.5), 1, 0, 0, 0]  # of equal rows neither lies in a direction from the other
    assert collinear.scores(rows).tolist() == pytest.approx(expected, abs=1e-6)
    assert collinear.scores(rows[:2]).tolist() == [-1, -1]
    assert collinear.scores(rows, torch.tensor([1])).tolist() == pytest.approx([1.0])
    assert collinear.scores(torch.zeros(4, 2)).tolist() == [0, 0, 0, 0]
    batches = [Batch(0, np.array([0, 2, 3]), rows[:3]), Batch(0, np.array([2, 0, 3]), rows[:3])]
    largest = follow(Collinear, batches, np.zeros(4, bool)).scores()
    assert largest.tolist() == pytest.approx([1, np.nan, 1, -1], nan_ok=True, abs=1e-6)  # the larger of two steps


def test_distance_ratios_are_minus_the_nearest_distance_by_that_to_the_16th() -> None:
    line = torch.arange(40.0)[:, None] ** 2
    gap = (line - line.T).abs().fill_diagonal_(torch.inf).sort(dim=1).values
    expected = (-gap[:, 0] / gap[:, 15]).tolist()
    for scale in (1.0, 1e-25):
        assert distance_ratio.scores(scale * line).tolist() == pytest.approx(expected, abs=1e-3)
    assert distance_ratio.scores(line.double(), torch.tensor([7, 3])).tolist() == pytest.approx([expected[7], expected[3]])
    assert distance_ratio.scores(line[[0, 1, 3]].double()).tolist() == pytest.approx([-1 / 9, -1 / 8, -8 / 9])
    assert distance_ratio.scores(line[:2]).tolist() == [-1, -1]
    assert distance_ratio.scores(line[:0]).tolist() == []
    assert distance_ratio.scores(torch.zeros(20, 2)).tolist() == [-1] * 20  # none nearer than the others


@pytest.mark.parametrize("relu", [False, True])
def test_distance_ratio_finds_rows_drawn_around_others_and_is_at_chance_against_fresh_ones(relu: bool) -> None:
    """In 24 columns, half a standard deviation in each from their source: between no two rows, and no twin."""
    drawn = Randomness(b"d" * 32)
    rows, synthetic = torch.from_numpy(drawn.derive("rows").normal((1200, 24))), np.arange(1200) >= 800
    sources = torch.from_numpy(drawn.derive("sources").choices(800, 400))
    noise = torch.from_numpy(drawn.derive("noise").normal((400, 24)))
    around = torch.cat([rows[:800], 0.87 * rows[sources] + 0.5 * noise])
    bottom = MlpBottom(InputSchema(24), (64, 64))
    initialise(bottom, drawn.derive("weights"))

    def value(rows: torch.Tensor, attack: str) -> float:
        with torch.no_grad():
            seen = bottom(ModelInput.from_tensors(rows)) if relu else rows
        return judged(attack, [Batch(epoch, np.arange(1200), seen) for epoch in range(2)], synthetic) or 0

    assert value(around, "distance_ratio") > (0.7 if relu else 0.75)
    assert value(rows, "distance_ratio") == chance()
    assert value(around, "same_step_twin") == 0.5


def test_a_label_drawn_anew_in_each_epoch_proves_its_row_synthetic(split: Any) -> None:
    """Read off the side of the main direction on which its gradient lies; real labels never change. An AUC does not show it."""
    world = split()
    for labels, least in ((lambda epoch: world.copies(str(epoch)), 0.5), (lambda epoch: world.copies("once"), 0.0)):
        read = np.zeros((5, world.rows), dtype=bool)
        for batch in world.transcript(5, labels=labels):
            assert batch.gradients is not None
            units = torch.nn.functional.normalize(batch.gradients.double(), dim=1)
            side = (units @ spectral.main_direction(units) > 0).numpy()
            read[batch.epoch, batch.positions] = side if side.mean() < 0.5 else ~side
        changed = read.any(axis=0) & ~read.all(axis=0)
        assert not changed[~world.synthetic].any()
        assert changed[world.synthetic].mean() >= least
        assert least or not changed.any()


def test_row_loss_is_the_mean_norm_of_a_rows_gradients() -> None:
    gradients = [torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([[0.0, 7.0]])]
    batches = [Batch(0, np.array([2, 0]), gradients[0], gradients[0]), Batch(1, np.array([2]), gradients[1], gradients[1])]
    assert follow(RowLoss, batches, np.zeros(3, bool)).scores().tolist() == pytest.approx([1, np.nan, 6], nan_ok=True)
    means = [Batch(of.epoch, of.positions, of.rows, of.rows / len(of.rows), mean_of=len(of.rows)) for of in batches]
    assert follow(RowLoss, means, np.zeros(3, bool)).scores().tolist() == pytest.approx([1, np.nan, 6], nan_ok=True)


@pytest.mark.parametrize(("rows", "columns"), [(100, 16), (10, 16), (2, 3), (1, 3)])
@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_spectral_scores_are_those_of_the_singular_vectors(rows: int, columns: int, scale: float) -> None:
    batch = scale * (3 + torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)))
    centred = batch.double() - batch.double().mean(dim=0)
    main = torch.linalg.svd(centred, full_matrices=False).Vh[0]
    assert spectral.scores(batch).tolist() == pytest.approx((centred @ main).abs().tolist(), rel=1e-6, abs=1e-9 * scale)


def test_labels_beside_embeddings_are_columns_of_the_attack() -> None:
    rows, labels = torch.tensor([[1.0], [2.0], [4.0]]), np.array([9, 0, 1, 0], dtype=np.float32)
    (batch,) = spectral.append_labels([Batch(3, np.array([2, 0, 3]), rows, rows)], labels)
    assert batch.rows.tolist() == [[1, 1], [2, 9], [4, 0]]
    assert (batch.epoch, batch.positions.tolist()) == (3, [2, 0, 3])
    assert batch.gradients is rows
    classes = np.eye(4, dtype=np.float32)
    (batch,) = spectral.append_labels([Batch(3, np.array([2, 0, 3]), rows)], classes)
    assert batch.rows.tolist() == [[1, 0, 0, 1, 0], [2, 1, 0, 0, 0], [4, 0, 0, 0, 1]]


def test_spectral_scores_are_projections_on_the_main_direction() -> None:
    rows = torch.tensor([[-4.0, 1.0], [-2.0, -1.0], [2.0, -1.0], [4.0, 1.0]])
    assert spectral.scores(rows).tolist() == pytest.approx([4, 2, 2, 4])
    assert spectral.scores(rows + 7).tolist() == pytest.approx([4, 2, 2, 4])


def test_rows_of_an_epoch_are_compared_in_whatever_order_they_came_and_count_if_met_in_each() -> None:
    batches = [
        Batch(0, np.array([1, 2]), torch.tensor([[1.0], [2.5]])),
        Batch(0, np.array([0, 5]), torch.tensor([[0.0], [5.0]])),
        Batch(1, np.array([2, 0]), torch.tensor([[12.0], [10.0]])),
        Batch(1, np.array([5]), torch.tensor([[15.0]])),
    ]
    scores = follow(NearDuplicate, batches, np.zeros(6, bool)).scores()
    assert scores.tolist() == pytest.approx([-1.5, np.nan, -1.75, np.nan, np.nan, -2.75], nan_ok=True)  # 1 is not met again


@pytest.mark.parametrize("name", list(ATTACKS))
def test_an_attack_goes_on_from_its_state_and_may_be_asked_at_any_epoch(split: Any, name: str) -> None:
    world = split()
    transcript = world.transcript(3, lambda epoch: world.copies(str(epoch)), batch=70)
    at_once = follow(ATTACKS[name], transcript, world.synthetic)
    first, rest = ([of for of in transcript if (of.epoch < 2) == early] for early in (True, False))
    before = follow(ATTACKS[name], first, world.synthetic)
    state = before.state()
    copies = {key: tensor.clone() for key, tensor in state.items()}
    after = follow(ATTACKS[name], [], world.synthetic)
    after.restore(state)
    for attack in (before, after):
        assert attack.score() == judged(name, first, world.synthetic)
        for batch in rest:
            attack.see(batch)
        assert attack.score() == at_once.score()
        assert attack.judged == at_once.judged
    assert all(torch.equal(tensor, copies[key]) for key, tensor in state.items())
