from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import Bottom, initialise
from vfl_node.privacy.attacks import ATTACKS, Batch, audit, longitudinal, near_duplicate, spectral
from vfl_node.privacy.attacks.transcript import by_epoch

ROWS, COLUMNS, BATCH = 600, 6, 100
SYNTHETIC = np.arange(ROWS) >= ROWS // 2


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def embeddings(source: Callable[[int, NDArray[np.float64]], Tensor], epochs: int) -> list[Batch]:
    """The embeddings an active party receives while a bottom learns; ``source(epoch, real)`` gives the columns used.

    Columns are independent of the labels, so that a synthetic row's features fit its label
    as well as a real one's: what remains to be seen is how rows are drawn.
    """
    randomness = Randomness(b"t" * 32)
    real = randomness.torch()
    x = torch.randn(ROWS, COLUMNS, generator=real)
    y = (torch.rand(ROWS, generator=real) < 0.3).float()
    bottom = Bottom(numeric=COLUMNS, cardinalities=(), embedding_size=1, sizes=(32, 16), wide=False)
    top = nn.utils.skip_init(nn.Linear, 16, 1)
    for part in (bottom, top):
        initialise(part, randomness.derive("weights").torch())
    optimizer = torch.optim.Adam([*bottom.parameters(), *top.parameters()], lr=1e-3)
    transcript = []
    for epoch in range(epochs):
        columns = source(epoch, x.numpy())
        order = randomness.permutation(ROWS)
        for positions in np.split(order, ROWS // BATCH):
            embedding = bottom(columns[positions], torch.empty(BATCH, 0, dtype=torch.int64))
            loss = nn.functional.binary_cross_entropy_with_logits(top(embedding).squeeze(1), y[positions])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            transcript.append(Batch(epoch, positions, embedding.detach()))
    return transcript


def copies(label: str) -> NDArray[np.int64]:
    """For every row its own number if it is real, that of a random real one if it is synthetic."""
    drawn = Randomness(b"d" * 32).derive(label).choices(ROWS // 2, ROWS)
    return np.where(SYNTHETIC, drawn, np.arange(ROWS))


def redrawn(epoch: int, real: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(real[copies(str(epoch))])


def fixed(epoch: int, real: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(real[copies("once")])


def gaussian(transcript: list[Batch]) -> list[Batch]:
    """Synthetic embeddings of FLORIST's weaker strategy: normal, of a variance (1/d)·max‖f(x)‖² over the batch's real rows."""
    noise = Randomness(b"n" * 32).torch()
    replaced = []
    for batch in transcript:
        synthetic = torch.from_numpy(SYNTHETIC[batch.positions])
        sd = (batch.rows[~synthetic].square().sum(dim=1).max() / batch.rows.shape[1]).sqrt()
        drawn = sd * torch.randn(batch.rows.shape, generator=noise)
        replaced.append(Batch(batch.epoch, batch.positions, torch.where(synthetic[:, None], drawn, batch.rows)))
    return replaced


def fresh(epoch: int, real: NDArray[np.float64]) -> Tensor:
    """Synthetic rows of the same distribution, copies of nobody, the same every epoch."""
    return torch.from_numpy(real)


def test_longitudinal_finds_redrawn_rows_and_is_at_chance_against_fixed_ones() -> None:
    two, five = (longitudinal.attack(embeddings(redrawn, epochs), SYNTHETIC) or 0 for epochs in (2, 5))
    assert two > 0.9
    assert five >= two
    assert longitudinal.attack(embeddings(fixed, 5), SYNTHETIC) == pytest.approx(0.5, abs=0.06)


def test_near_duplicate_finds_copies_even_fixed_ones_and_is_at_chance_against_fresh_rows() -> None:
    assert (near_duplicate.attack(embeddings(fixed, 2), SYNTHETIC) or 0) > 0.62
    assert near_duplicate.attack(embeddings(fresh, 2), SYNTHETIC) == pytest.approx(0.5, abs=0.06)


def test_spectral_finds_gaussian_embeddings_and_is_at_chance_against_sampled_rows() -> None:
    assert (spectral.attack(gaussian(embeddings(fresh, 1)), SYNTHETIC) or 0) > 0.7
    assert spectral.attack(embeddings(redrawn, 1), SYNTHETIC) == pytest.approx(0.5, abs=0.06)


def test_an_audit_runs_every_attack_and_none_is_folded() -> None:
    transcript = gaussian(embeddings(fresh, 2))
    found = audit(transcript, SYNTHETIC)
    assert list(found) == list(ATTACKS) == ["longitudinal", "near_duplicate", "spectral"]
    for name, value in audit(transcript, ~SYNTHETIC).items():
        before = found[name]
        assert value is not None
        assert before is not None
        assert value == pytest.approx(1 - before)


@pytest.mark.parametrize("name", ATTACKS)
def test_where_there_is_nothing_to_tell_apart_there_is_no_auc(name: str) -> None:
    transcript = embeddings(fixed, 2)
    assert ATTACKS[name](transcript, np.zeros(ROWS, dtype=bool)) is None
    assert ATTACKS[name](transcript, np.ones(ROWS, dtype=bool)) is None
    assert ATTACKS[name]([], SYNTHETIC) is None


def test_longitudinal_needs_two_epochs() -> None:
    assert longitudinal.attack(embeddings(redrawn, 1), SYNTHETIC) is None


def test_longitudinal_scores_are_mean_changes_of_direction() -> None:
    rows = torch.tensor(
        [
            [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1e-12, 1e-12]],
            [[2.0, 0.0], [0.0, 3.0], [0.0, 0.0], [1.0, 0.0], [2e-12, 2e-12]],
            [[1.0, 0.0], [0.0, -1.0], [0.0, 0.0], [1.0, 0.0], [-1e-12, -1e-12]],
        ]
    )
    assert longitudinal.scores(rows).tolist() == pytest.approx([0, 1.5, 0, 0.5, 1], abs=1e-12)


def test_near_duplicate_scores_are_distances_to_the_nearest_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [9.0, 9.0], [9.0, 9.0]])
    expected = [-1, -(18**0.5), -1, 0, 0]
    for at_once in (1, 2, 5, 100):
        monkeypatch.setattr(near_duplicate, "ROWS_AT_ONCE", at_once)
        assert near_duplicate.scores(rows).tolist() == pytest.approx(expected, abs=1e-6)


def test_spectral_scores_are_projections_on_the_main_direction() -> None:
    rows = torch.tensor([[-4.0, 1.0], [-2.0, -1.0], [2.0, -1.0], [4.0, 1.0]])
    assert spectral.scores(rows).tolist() == pytest.approx([4, 2, 2, 4])
    assert spectral.scores(rows + 7).tolist() == pytest.approx([4, 2, 2, 4])


def test_a_transcript_is_put_in_order_by_position() -> None:
    batches = [
        Batch(1, np.array([2, 0]), torch.tensor([[12.0], [10.0]])),
        Batch(0, np.array([1, 2]), torch.tensor([[1.0], [2.0]])),
        Batch(0, np.array([0, 5]), torch.tensor([[0.0], [5.0]])),
        Batch(1, np.array([5]), torch.tensor([[15.0]])),
    ]
    positions, rows = by_epoch(batches)
    assert positions.tolist() == [0, 2, 5]  # 1 is not met in the second epoch
    assert rows[:, :, 0].tolist() == [[0, 2, 5], [10, 12, 15]]
