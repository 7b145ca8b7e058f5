"""The methods that fill rows in, by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.inputs import ModelInput
from vfl_node.training.unaligned import diffusion as diffusion_filler
from vfl_node.training.unaligned.contract import AlignedRows, JointModel, OwnPart, filler_of
from vfl_node.training.unaligned.specs import Diffusion, Heuristic, JointPrivilegedLearning


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def part(columns: Tensor, targets: Tensor, groups: list[int] | None = None) -> OwnPart:
    inputs = lambda places: ModelInput.from_tensors(columns[torch.from_numpy(places)])  # noqa: E731
    return OwnPart(inputs, columns.__getitem__, targets, np.arange(len(columns)), None if groups is None else np.array(groups))


class FirstColumns(nn.Module):
    """A bottom that gives the columns as they are."""

    def forward(self, inputs: ModelInput) -> Tensor:
        return inputs.numeric


JOINT = JointModel(
    logits=lambda own, received: own.sum(1) + received.sum(1),
    losses=lambda logits, targets: binary_cross_entropy_with_logits(logits, targets, reduction="none"),
    new_bottom=FirstColumns,
    adam=lambda model, rate: torch.optim.Adam(model.parameters(), rate),
    outputs=1,
)
RANDOM = Randomness(bytes(32))


def test_heuristic_takes_the_mean_of_the_group_and_else_of_all() -> None:
    received = torch.tensor([[1.0, 0.0], [3.0, 2.0], [8.0, 4.0], [0.0, 2.0]])
    aligned = AlignedRows(part(torch.zeros(4, 1), torch.zeros(4), [7, 7, 3, -1]), received)
    outside = part(torch.zeros(5, 1), torch.zeros(5), [3, 7, 99, -1, 0])
    filling = filler_of(Heuristic(method="heuristic"))(aligned, outside, JOINT, RANDOM)
    mean = [3.0, 2.0]
    assert filling.embeddings.tolist() == [[8.0, 4.0], [2.0, 1.0], mean, mean, mean]
    assert filling.figures == {"no_group": pytest.approx(0.6)}


def test_heuristic_without_any_aligned_group_takes_the_mean_of_all() -> None:
    aligned = AlignedRows(part(torch.zeros(2, 1), torch.zeros(2), [-1, -1]), torch.tensor([[1.0], [3.0]]))
    filling = filler_of(Heuristic(method="heuristic"))(aligned, part(torch.zeros(1, 1), torch.zeros(1), [4]), JOINT, RANDOM)
    assert (filling.embeddings.tolist(), filling.figures) == ([[2.0]], {"no_group": 1.0})


def test_jpl_learns_an_embedding_that_follows_from_the_columns() -> None:
    rng = np.random.default_rng(0)
    columns = torch.from_numpy(rng.normal(size=(1200, 3)).astype(np.float32))
    embeddings = torch.stack([columns[:, 0] * columns[:, 1], columns[:, 2].relu()], dim=1)
    targets = (columns.sum(1) + embeddings.sum(1) > 0).float()
    aligned = AlignedRows(part(columns[:800], targets[:800]), embeddings[:800])
    outside = part(columns[800:], targets[800:])
    made = filler_of(JointPrivilegedLearning(method="jpl"))(aligned, outside, JOINT, RANDOM)
    error = (made.embeddings - embeddings[800:]).square().mean()
    assert error < 0.3 * embeddings[800:].var(dim=0).mean()
    unrelated = AlignedRows(aligned.part, embeddings[torch.from_numpy(rng.permutation(800))])
    guessed = filler_of(JointPrivilegedLearning(method="jpl"))(unrelated, outside, JOINT, RANDOM)
    assert (guessed.embeddings - embeddings[800:]).square().mean() > 2 * error


def test_a_drawn_embedding_depends_on_its_row_and_not_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffusion_filler, "BLOCK", 8)
    rng = np.random.default_rng(0)
    columns = torch.from_numpy(rng.normal(size=(50, 2)).astype(np.float32))
    aligned = AlignedRows(part(columns[:30], (columns[:30, 0] > 0).float()), columns[:30] * 2)
    everything = replace(part(columns[30:], torch.ones(20)), rows=np.arange(100, 120))
    some = np.array([0, 3, 11, 19])
    few = replace(part(columns[30:][some], torch.ones(4)), rows=100 + some)
    fill = filler_of(Diffusion(method="diffusion", steps=10, updates=300))
    whole = fill(aligned, everything, JOINT, RANDOM).embeddings
    assert torch.equal(fill(aligned, few, JOINT, RANDOM).embeddings, whole[torch.from_numpy(some)])
    assert len(torch.unique(whole, dim=0)) == 20
