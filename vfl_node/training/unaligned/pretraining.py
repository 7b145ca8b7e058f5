"""What a half does before the training with labels: nothing, unless a method of ``train.unaligned`` pretrains.

The bottom that it trains is that of the joint model; all else that it trains is dropped when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from vfl_node.configuration.registry import load
from vfl_node.crypto.randomness import Randomness
from vfl_node.job.unaligned import Unaligned
from vfl_node.models.inputs import ModelInput
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attachment import Attachment

Rows = NDArray[np.int64]


class Trainable(Protocol):
    """A model with its optimiser."""

    def begin(self, step: int) -> None:
        """Make it ready for training step ``step``."""

    def step(self) -> None:
        """Update the weights from the gradients."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""


class PretrainingExchange(Protocol):
    """What a party may send in a batch of pretraining, and what it receives. All are of the shared ``positions``."""

    async def meet(self, number: int, positions: Rows, answer: Callable[[Tensor], Tensor] | None = None) -> None:
        """Send embeddings and learn by the gradient (passive party), or receive them and send what ``answer`` makes of them."""

    async def swap(self, number: int, positions: Rows, own: Tensor) -> Tensor:
        """Send ``own`` float32[B, p], which has no graph, as the defences leave it; the peer's of the same rows, likewise."""

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint must hold of it while the pretraining lasts."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""


@dataclass(frozen=True, eq=False)
class PretrainedHalf:
    """What a method has of one party's half.

    Attributes:
        active: whether it is the active party's.
        bottom: the network that is pretrained.
        widths: of what the own bottom gives, and of what the passive party sends.
        shared: shared positions int64[B] → the party's columns of these rows.
        own: places int64[B] below ``rows`` → the columns of all rows that may be learnt from, aligned ones first.
        rows: how many these are.
        outside: how many of these have no partner.
        batch_size: of the job.
        exchange: with the peer.
        training: gives a model its optimiser, with masks of dropout from the randomness.
        randomness: the party's own, for this.
        device: of the bottom.
        clock: seconds.
        finite: gives back a loss that is finite, and refuses any other.
    """

    active: bool
    bottom: nn.Module
    widths: tuple[int, int]
    shared: Callable[[Rows], ModelInput]
    own: Callable[[Rows], ModelInput]
    rows: int
    outside: int
    batch_size: int
    exchange: PretrainingExchange
    training: Callable[[nn.Module, Randomness], Trainable]
    randomness: Randomness
    device: torch.device
    clock: Callable[[], float]
    finite: Callable[[Tensor], Tensor]


class Pretraining(Attachment):
    """A method at work at one party.

    Attributes:
        epochs: without labels.
        exchanges: whether each batch of aligned rows has a message each way.

    Args:
        method: the chosen one.
        half: what it works on.
        module: what is trained: the bottom and what the method puts above it, initialised, on the device; None where the half
            itself learns by the gradients that it receives.
    """

    name = "pretraining"

    def __init__(self, method: Unaligned, half: PretrainedHalf, module: nn.Module | None) -> None:
        self.epochs, self.exchanges = method.epochs_before, method.exchanges != "nothing"
        self._half = half
        self._training = half.training(module, half.randomness.derive("masks")) if module else None
        self._steps, self._losses, self._over = 0, (0.0, 0), False
        self._means: list[float] = []
        self._began, self._seconds = half.clock(), 0.0

    async def step(self, number: int, positions: Rows) -> None:
        """Learn from the aligned batch at ``positions``; only where it ``exchanges``."""

    def _learn(self, loss: Tensor) -> None:
        """Take a step by ``loss``, for which :meth:`_begin` has made ready."""
        assert self._training is not None
        self._half.finite(loss).backward()  # type: ignore[no-untyped-call]
        self._training.step()
        total, count = self._losses
        self._losses = total + float(loss.detach()), count + 1

    def _begin(self) -> None:
        """Make ready for a step."""
        assert self._training is not None
        self._steps += 1
        self._training.begin(self._steps)

    def end_epoch(self, epoch: int) -> None:
        """Do what is due at the end of epoch ``epoch`` without labels, from 0; nothing is sent."""
        total, count = self._losses
        self._means.append(total / max(count, 1))
        self._losses, now = (0.0, 0), self._half.clock()
        self._began, self._seconds = now, self._seconds + now - self._began

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`Attachment.tensors`, beside the bottom; empty once it is over."""
        if self._over:
            return {}
        learnt = add_prefix("training", self._training.tensors()) if self._training else {}
        means, seconds = (torch.tensor(values, dtype=torch.float64) for values in (self._means, self._seconds))
        exchanged = add_prefix("exchange", self._half.exchange.tensors())
        return {"steps": torch.tensor(self._steps), "means": means, "seconds": seconds, **learnt, **exchanged}

    @override
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        if not tensors:
            self._over = True  # a checkpoint of the training with labels
            return
        self._steps, self._means, self._seconds = int(tensors["steps"]), tensors["means"].tolist(), float(tensors["seconds"])
        if self._training:
            self._training.restore(take_part("training", tensors))
        self._half.exchange.restore(take_part("exchange", tensors))

    def end(self) -> Mapping[str, Any] | None:
        """Drop all but the bottom. What was done, as JSON; None at a passive party."""
        self._training, self._over = None, True
        if not self._half.active:
            return None
        figures = {"first_loss": self._means[0], "last_loss": self._means[-1]} if self._means else {}
        return {
            "rows": self._half.outside,
            "steps_local": self._steps,
            "generated": 0,
            "seconds": self._seconds,
            "figures": figures,
        }


def pretraining_of(method: Unaligned, half: PretrainedHalf) -> Pretraining:
    """The chosen method at work. Raises UsageError (``E_EXTENSION``): it cannot be loaded."""
    make: Callable[[Unaligned, PretrainedHalf], Pretraining] = load(
        method.implementation, what=f"train.unaligned.method {method.method}"
    )
    return make(method, half)
