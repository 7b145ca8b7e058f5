"""Decoders trained to convergence on few rows, and chosen by rows that they have not learnt from.

The k known rows are cut into folds. For each shape (linear, two hidden layers) one decoder a fold learns from the other
folds; all decoders of a shape are trained side by side, as one product of batches of matrices. Every few steps each of them
predicts the fold that it has not seen, so that together they predict every known row. For each column the shape and the step
with the smallest of these losses are chosen, and what is given is the mean of that shape's decoders at that step.

So columns that are hard to learn stop early, and no decoder fits the known rows by heart. Step 0 is the best constant: output
weights begin at 0, and the bias at the frequencies among the known rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.features.targets import Targets


@dataclass(frozen=True)
class Effort:
    """How hard an attacker tries.

    Attributes:
        shapes: widths of the hidden layers of each decoder that is tried; none: it is linear.
        folds: in how many parts the known rows are cut.
        steps: of training at most.
        every: so many steps lie between two looks at the folds.
        patience: training ends after so many looks without a smaller mean loss.
        batch: rows of a step at most; all that a fold leaves where they are no more.
        rate: learning rate of a decoder with hidden layers; of a linear one 10 times that.
    """

    shapes: tuple[tuple[int, ...], ...] = ((), (128, 128))
    folds: int = 4
    steps: int = 300
    every: int = 5
    patience: int = 10
    batch: int = 256
    rate: float = 2e-3


EFFORT = Effort()


@dataclass(frozen=True, eq=False)
class _Look:
    """Decoders of one shape at one step: weights and biases of each layer, [folds, …]."""

    layers: tuple[Tensor, ...]


def fitted(
    known: Tensor, others: Tensor, known_at: Tensor, targets: Targets, randomness: Randomness, effort: Effort = EFFORT
) -> Tensor:
    """What decoders that learn from ``known`` give for ``others``, float32[n, targets.width].

    Args:
        known: float32[k, d], standardised; k is at least ``effort.folds``.
        others: float32[n, d], likewise.
        known_at: int64[k], shared positions of the known rows.
        targets: what to learn.
        randomness: of initial weights, folds and batches.
        effort: how much is tried.

    Cost: a step takes 6·folds·min(k, batch) multiplications for each weight of a decoder; at most ``steps`` steps a shape,
        usually about a third of it. Memory: the weights at each look.
    """
    folds = _Folds(len(known), effort.folds, randomness.derive("folds"), known.device)
    looks: list[_Look] = []
    losses: list[Tensor] = []
    with torch.enable_grad():
        for shape in effort.shapes:
            own = randomness.derive("shape/" + "-".join(map(str, shape)))
            for look, loss in _trained(known, known_at, targets, folds, shape, own, effort):
                looks.append(look)
                losses.append(loss)
    best = torch.stack(losses).argmin(dim=0).tolist()  # of each column
    outputs = torch.empty(len(others), targets.width, device=others.device)
    for number in sorted(set(best)):
        said = _forward(looks[number].layers, others.expand(effort.folds, *others.shape)).mean(dim=0)
        start = 0
        for column, chosen in zip(targets.columns, best, strict=True):
            if chosen == number:
                outputs[:, start : start + column.width] = said[:, start : start + column.width]
            start += column.width
    return outputs


class _Folds:
    """Which of k known rows each of F decoders learns from, int64[F, t], and which it predicts, int64[F, h]."""

    def __init__(self, k: int, folds: int, randomness: Randomness, device: torch.device) -> None:
        order = randomness.permutation(k)
        held = [order[fold::folds] for fold in range(folds)]
        left = k - len(held[0])  # the first fold is the largest
        learnt = [np.setdiff1d(order, rows)[:left] for rows in held]
        self.held = torch.from_numpy(np.stack([np.resize(rows, len(held[0])) for rows in held])).to(device)
        self.learnt = torch.from_numpy(np.stack(learnt)).to(device)


def _trained(
    known: Tensor,
    known_at: Tensor,
    targets: Targets,
    folds: _Folds,
    shape: Sequence[int],
    randomness: Randomness,
    effort: Effort,
) -> list[tuple[_Look, Tensor]]:
    """Decoders of one shape at each look, and the loss of each column over the known rows, each in its own fold."""
    layers = _initial(known.shape[1], shape, targets, known_at, len(folds.held), randomness.derive("weights"))
    optimiser = torch.optim.AdamW(layers, lr=effort.rate if shape else 10 * effort.rate, weight_decay=0.01)
    drawn = randomness.derive("batches")
    looks: list[tuple[_Look, Tensor]] = []
    smallest, since = float("inf"), 0
    for step in range(effort.steps + 1):
        if step % effort.every == 0:
            loss = _unseen(layers, known, known_at, targets, folds)
            looks.append((_Look(tuple(layer.detach().clone() for layer in layers)), loss))
            mean = float(loss.mean())
            smallest, since = (mean, 0) if mean < smallest else (smallest, since + 1)
            if since > effort.patience:
                break
        rows = _batch(folds.learnt, effort.batch, drawn)  # (F, b)
        said = _forward(layers, known[rows])  # (F, b, width)
        optimiser.zero_grad()
        targets.losses(said.flatten(0, 1), known_at[rows].flatten()).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return looks


def _initial(
    width: int, shape: Sequence[int], targets: Targets, known_at: Tensor, folds: int, randomness: Randomness
) -> list[Tensor]:
    """Weights [F, d, h] and biases [F, 1, h] of each layer, which differ from fold to fold in the hidden layers."""
    layers: list[Tensor] = []
    for before, after in zip([width, *shape], shape, strict=False):
        bound = before**-0.5
        weights = bound * (2 * randomness.uniform((folds, before, after)) - 1)
        layers += [_float(weights), torch.zeros(folds, 1, after)]
    outputs = torch.zeros(folds, [width, *shape][-1], targets.width)
    layers += [outputs, _constant(targets, known_at).expand(folds, 1, -1).clone()]
    return [layer.to(known_at.device).requires_grad_() for layer in layers]


def _constant(targets: Targets, known_at: Tensor) -> Tensor:
    """Outputs that say how frequent each value is among the known rows, float32[1, width]; smoothed by half a row."""
    parts = []
    for column in targets.columns:
        truth = column.truth[known_at][column.known[known_at]].cpu()
        if column.kind == "categories":
            counts = torch.bincount(truth, minlength=column.width).float() + 0.5
            parts.append((counts / counts.sum()).log())
        elif column.kind == "flag":
            ones = truth.sum() + 0.5
            parts.append((ones / (len(truth) + 1 - ones)).log()[None])
        else:
            parts.append((truth.sum() / max(len(truth), 1))[None])
    return torch.cat(parts)[None]


def _batch(rows: Tensor, most: int, randomness: Randomness) -> Tensor:
    """The rows of a step for each fold, int64[F, b]: all, or ``most`` drawn with replacement."""
    if rows.shape[1] <= most:
        return rows
    drawn: NDArray[np.int64] = randomness.choices(rows.shape[1], len(rows) * most).reshape(len(rows), most)
    return rows.gather(1, torch.from_numpy(drawn).to(rows.device))


@torch.no_grad()
def _unseen(layers: Sequence[Tensor], known: Tensor, known_at: Tensor, targets: Targets, folds: _Folds) -> Tensor:
    """Loss of each column over the known rows, each predicted by the decoder that has not learnt from it."""
    said = torch.empty(len(known), targets.width, device=known.device)
    said[folds.held.flatten()] = _forward(layers, known[folds.held]).flatten(0, 1)
    return targets.losses(said, known_at)


def _forward(layers: Sequence[Tensor], rows: Tensor) -> Tensor:
    """float32[F, b, d] → float32[F, b, width]."""
    for number in range(0, len(layers), 2):
        if number:
            rows = rows.relu()
        rows = torch.baddbmm(layers[number + 1], rows, layers[number])
    return rows


def _float(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
