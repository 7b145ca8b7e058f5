"""How a network of the active party alone is trained: the same kind of bottom and top, epochs, batch size and optimiser.

Such a network is what the joint model is compared with (alone.py), and another one gives calibration its q (active.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError
from vfl_node.job.costs import ROWS_AT_ONCE
from vfl_node.models.classifier import Classifier
from vfl_node.progress import LocalEpochTrained, Progress
from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.network.learner import Learner
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.network.stopping import Stopping
from vfl_node.training.schedule import cut
from vfl_node.transport.codec import is_usable


def train_local(
    model: Classifier,
    train: NetworkConfig,
    inputs: PositionedInput,
    targets: Tensor,
    positions: NDArray[np.int64],
    randomness: Randomness,
    progress: Progress,
    *,
    counted: Tensor,
    losses: Callable[[Tensor, Tensor], Tensor],
    weights: Tensor | None = None,
    offsets: Tensor | None = None,
    validation: NDArray[np.int64] | None = None,
) -> None:
    """Train ``model`` on the rows at ``positions``; nothing is sent.

    Args:
        model: with its initial weights, on the device.
        train: how the federated model is trained.
        inputs: the active party's columns.
        targets: float32[m] on the device: labels 0 and 1, or scaled targets; float32[m, K] of more classes: one a row is 1.
        positions: shared positions to train on.
        randomness: gives the order of the rows, and masks of dropout.
        progress: each epoch is emitted there.
        counted: bool[m] on the device, which rows have a label. The others take as long and
            change nothing but what ``train.batch_norm`` averages.
        losses: logits and targets of B rows → loss of each, float32[B].
        weights: float32[m] on the device, how much each row counts, 1 in the mean; None: all count alike.
        offsets: float32[m] on the device, what is added to the logit of each row; None: nothing.
        validation: shared positions of rows of which those ``counted`` decide, as for the federated model, when training
            stops and which epoch's weights count; None or empty: all epochs, and the last one's.

    Raises:
        DataError: the loss is no longer a number (``E_DIVERGED``).
    """

    def mean_loss(logits: Tensor, batch: NDArray[np.int64]) -> Tensor:
        rows = torch.from_numpy(batch)
        there = counted[rows].float()
        each = losses(logits, targets[rows]) if weights is None else losses(logits, targets[rows]) * weights[rows]
        return (each * there).sum() / there.sum().clamp_min(1)

    learner, steps = Learner(model, train, randomness), count()
    stopping, best = Stopping(train.patience, train.epochs), model.state_dict()
    every = train.epochs * -(-len(positions) // train.batch_size)
    for epoch in range(1, train.epochs + 1):
        total = 0.0
        for batch in cut(positions[randomness.permutation(len(positions))], train.batch_size):
            step = next(steps)
            learner.begin(step)
            learner.pace(step, every)
            loss = mean_loss(_add(model(inputs.take(batch)), offsets, batch), batch)
            loss.backward()  # type: ignore[no-untyped-call]
            learner.step()
            total += len(batch) * check_finite(loss).item()
        progress.emit(LocalEpochTrained(total / len(positions), epoch, train.epochs))
        if validation is None or not len(validation):
            continue
        validated = check_finite(mean_loss(local_logits(model, inputs, validation, offsets), validation)).item()
        if improved := stopping.improves(validated):
            best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        stopping.count(improved, validated)
        if stopping.over:
            break
    model.load_state_dict(best)


def local_logits(
    model: Classifier, inputs: PositionedInput, positions: NDArray[np.int64], offsets: Tensor | None = None
) -> Tensor:
    """Logits of the trained local model, float32[len(positions)], or float32[len(positions), K]; ``offsets`` as in training."""
    model.eval()
    with torch.no_grad():
        parts = cut(positions, ROWS_AT_ONCE) or [positions]
        return torch.cat([_add(model(inputs.take(part)), offsets, part) for part in parts])


def _add(logits: Tensor, offsets: Tensor | None, positions: NDArray[np.int64]) -> Tensor:
    return logits if offsets is None else logits + offsets[torch.from_numpy(positions)]


def check_finite(value: Tensor) -> Tensor:
    """``value`` itself, if all of it is finite, and within what a peer lets in (:data:`~vfl_node.transport.codec.MOST`).

    Raises:
        DataError: training has diverged (``E_DIVERGED``).
    """
    if not is_usable(value):
        raise DataError(
            "training diverged: the loss, or what leaves, is no longer a finite number, or is larger than 1e15",
            code="E_DIVERGED",
            hint="lower train.learning_rate, look for extreme values in the numeric columns, or weaken a defence",
            for_peer="training diverged; a lower train.learning_rate may help",
            peer_code="E_DIVERGED",
        )
    return value
