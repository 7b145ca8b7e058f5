"""Decoders trained to convergence on few rows, and chosen by rows that they have not learnt from.

The k known rows are cut into folds. For each shape (linear, two hidden layers) and each view of the rows one decoder a fold
learns from the other folds. All decoders of a shape are trained side by side, as one product of batches of matrices. Every few
steps each of them predicts the fold that it has not seen, so that together they predict every known row. These predictions are
also moved towards a constant, by several factors: a decoder that learns a weak signal from few rows is too sure of it. For each
column the view, the shape, the step and the factor with the smallest of these losses are chosen, and what is given is the mean
of these decoders.

So columns that are hard to learn stop early, and no decoder fits the known rows by heart. Training begins at the best constant:
output weights are 0, and the bias is that of the frequencies among the known rows. Where nothing can be learnt, the smallest
factor leaves nearly this constant, and the order of its answers is that of chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

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
        every: so many steps lie between two looks at the folds, after a few early ones.
        patience: training ends after so many looks without a smaller mean loss.
        factors: how far from the constant predictions are taken; 1: as they are.
        batch: rows of a step at most; all that a fold leaves where they are no more.
        rate: learning rate of a decoder with hidden layers; of a linear one 10 times that.
    """

    shapes: tuple[tuple[int, ...], ...] = ((), (64, 64))
    folds: int = 3
    steps: int = 300
    every: int = 10
    patience: int = 3
    factors: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1, 0.02)
    batch: int = 256
    rate: float = 8e-3


EFFORT = Effort()

EARLY = (1, 2, 4, 7)
"""Steps after which the folds are looked at before the first of every so many."""


@dataclass(frozen=True, eq=False)
class _Look:
    """Decoders of one shape at one step, for one view: weights and biases of each layer, [folds, …]."""

    view: int
    layers: tuple[Tensor, ...]


def fit_decoders(
    views: Sequence[tuple[Tensor, Tensor]], known_at: Tensor, targets: Targets, randomness: Randomness, effort: Effort = EFFORT
) -> Tensor:
    """What decoders that learn from known rows give for others, float32[n, targets.width].

    Args:
        views: the known rows, float32[k, d], and the others, float32[n, d], standardised; in each view d is another. k is at
            least ``effort.folds``.
        known_at: int64[k], shared positions of the known rows.
        targets: what to learn.
        randomness: of initial weights, folds and batches.
        effort: how much is tried.

    Cost: a step takes 6·folds·min(k, batch) multiplications for each weight of a decoder; at most ``steps`` steps a shape,
        usually about a third of it. Memory: the weights at each look.
    """
    folds = _Folds(len(known_at), effort.folds, randomness.derive("folds"), known_at.device)
    looks: list[_Look] = []
    losses: list[Tensor] = []
    constant = _constant(targets, known_at).to(known_at.device)
    with torch.enable_grad():
        for (view, (known, _)), shape in product(enumerate(views), effort.shapes):
            own = randomness.derive(f"{view}/{shape}")
            for layers, loss in _train(known, known_at, targets, constant, folds, shape, own, effort):
                looks.append(_Look(view, layers))
                losses.append(loss)
    best = torch.cat(losses).argmin(dim=0)  # (c)
    chosen, factors = (best // len(effort.factors)).tolist(), (best % len(effort.factors)).tolist()
    outputs = constant.repeat(len(views[0][1]), 1)
    for number in sorted(set(chosen)):
        others = views[looks[number].view][1]
        said = _forward(looks[number].layers, others.expand(effort.folds, *others.shape)).mean(dim=0) - constant
        start = 0
        for column, look, factor in zip(targets.columns, chosen, factors, strict=True):
            if look == number:
                outputs[:, start : start + column.width] += effort.factors[factor] * said[:, start : start + column.width]
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


def _train(
    known: Tensor,
    known_at: Tensor,
    targets: Targets,
    constant: Tensor,
    folds: _Folds,
    shape: Sequence[int],
    randomness: Randomness,
    effort: Effort,
) -> list[tuple[tuple[Tensor, ...], Tensor]]:
    """Layers of the decoders of one shape at each look, and for each factor each column's loss over the known rows."""
    layers = _initial(known.shape[1], shape, constant, len(folds.held), randomness.derive("weights"))
    optimiser = torch.optim.AdamW(layers, lr=effort.rate if shape else 10 * effort.rate, weight_decay=0.01, fused=True)
    drawn = randomness.derive("batches")
    looks: list[tuple[tuple[Tensor, ...], Tensor]] = []
    smallest, since = float("inf"), 0
    for step in range(effort.steps + 1):
        if step in EARLY or (step and step % effort.every == 0):
            loss = _validation_loss(layers, known, known_at, targets, constant, folds, effort.factors)
            looks.append((tuple(layer.detach().clone() for layer in layers), loss))
            mean = float(loss.mean(dim=1).min())
            smallest, since = (mean, 0) if mean < smallest else (smallest, since + 1)
            if since > effort.patience:
                break
        rows = _batch(folds.learnt, effort.batch, drawn)  # (F, b)
        said = _forward(layers, known[rows])  # (F, b, width)
        optimiser.zero_grad()
        targets.losses(said.flatten(0, 1), known_at[rows].flatten()).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return looks


def _initial(width: int, shape: Sequence[int], constant: Tensor, folds: int, randomness: Randomness) -> list[Tensor]:
    """Weights [F, d, h] and biases [F, 1, h] of each layer, which differ from fold to fold in the hidden layers."""
    layers: list[Tensor] = []
    for before, after in zip([width, *shape], shape, strict=False):
        bound = before**-0.5
        weights = bound * (2 * randomness.uniform((folds, before, after)) - 1)
        layers += [_float(weights), torch.zeros(folds, 1, after)]
    outputs = torch.zeros(folds, [width, *shape][-1], constant.shape[1])
    layers += [outputs, constant.expand(folds, 1, -1).clone()]
    return [layer.to(constant.device).requires_grad_() for layer in layers]


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
def _validation_loss(
    layers: Sequence[Tensor],
    known: Tensor,
    known_at: Tensor,
    targets: Targets,
    constant: Tensor,
    folds: _Folds,
    factors: Sequence[float],
) -> Tensor:
    """Loss of each column over the known rows, each predicted by the decoder that has not learnt from it: [factors, c]."""
    said = torch.empty(len(known), targets.width, device=known.device)
    said[folds.held.flatten()] = _forward(layers, known[folds.held]).flatten(0, 1)
    moved = torch.cat([constant + factor * (said - constant) for factor in factors])
    losses, counted = targets.row_losses(moved, known_at.repeat(len(factors)))
    parts = (losses * counted).view(len(factors), len(known), -1), counted.view(len(factors), len(known), -1)
    return parts[0].sum(dim=1) / parts[1].sum(dim=1).clamp(min=1)


def _forward(layers: Sequence[Tensor], rows: Tensor) -> Tensor:
    """float32[F, b, d] → float32[F, b, width]."""
    for number in range(0, len(layers), 2):
        if number:
            rows = rows.relu()
        rows = torch.baddbmm(layers[number + 1], rows, layers[number])
    return rows


def _float(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
