"""What a method knows when it fills in rows outside of the alignment, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.configuration.registry import load
from vfl_node.crypto.randomness import Randomness
from vfl_node.job.unaligned import Unaligned
from vfl_node.models.inputs import ModelInput

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class OwnPart:
    """What the active party has of n rows.

    Attributes:
        inputs: places among the n, int64[B] → their columns as a bottom reads them.
        own: a run of places → float32[B, d'], what its own bottom makes of these rows, at rest. It is computed whenever it is
            asked for: of all rows together it may take more memory than there is.
        targets: float32[n], or [n, K] for K above 2, as the loss reads them.
        rows: int64[n], where they stand in its table.
        groups: int64[n], records of equal codes belong together, −1: to none; None where the table has no groups.
    """

    inputs: Callable[[Rows], ModelInput]
    own: Callable[[slice], Tensor]
    targets: Tensor
    rows: Rows
    groups: Rows | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> Tensor:
        """The targets as columns, float32[n, 1] or [n, K]."""
        return self.targets[:, None] if self.targets.dim() == 1 else self.targets


@dataclass(frozen=True, eq=False)
class AlignedRows:
    """The k aligned rows that are trained on.

    Attributes:
        part: of the active party.
        received: float32[k, d], the embeddings that the passive party sent in the newest epoch.
    """

    part: OwnPart
    received: Tensor


class Optimiser(Protocol):
    """Changes the weights of a model."""

    def zero_grad(self) -> None:
        """Leave no gradient."""

    def step(self) -> None:
        """Change the weights by their gradients."""


@dataclass(frozen=True, eq=False)
class JointModel:
    """What a method may ask of the active party's half of the joint model, whose weights do not change meanwhile.

    Attributes:
        logits: own float32[B, d'] and received float32[B, d] → float32[B], or [B, K].
        losses: logits and targets → the loss of each row, float32[B].
        new_bottom: gives another network like the own bottom, without initial weights, on the device.
        adam: gives a model on the device its Adam of a learning rate, and what sparse tables need beside it.
        outputs: logits a row.
    """

    logits: Callable[[Tensor, Tensor], Tensor]
    losses: Callable[[Tensor, Tensor], Tensor]
    new_bottom: Callable[[], nn.Module]
    adam: Callable[[nn.Module, float], Optimiser]
    outputs: int


@dataclass(frozen=True, eq=False)
class Filling:
    """What a method made up.

    Attributes:
        embeddings: float32[u, d], one for each row outside.
        figures: what the method says of it, by name, for the report.
    """

    embeddings: Tensor
    figures: Mapping[str, float] = field(default_factory=dict)


EVERY = slice(None)
"""All places of a part."""


class Filler(Protocol):
    """A method at work."""

    def __call__(self, aligned: AlignedRows, outside: OwnPart, joint: JointModel, randomness: Randomness) -> Filling:
        """Make up the embeddings of the rows ``outside``.

        Args:
            aligned: what it learns from.
            outside: what it fills in.
            joint: the model that is trained.
            randomness: the active party's own for this; the same gives the same embeddings.
        """


def filler_of(method: Unaligned) -> Filler:
    """The chosen method at work. Raises UsageError (``E_EXTENSION``): it cannot be loaded."""
    make: Callable[[Unaligned], Filler] = load(method.implementation, what=f"train.unaligned.method {method.method}")
    return make(method)


@dataclass(frozen=True, eq=False)
class Standardised:
    """Columns with mean 0 and standard deviation 1 over the fitted rows; constant ones stay 0.

    Attributes:
        mean: float32[d].
        scale: float32[d], the standard deviations.
        varies: bool[d], which columns are not constant.
    """

    mean: Tensor
    scale: Tensor
    varies: Tensor

    @classmethod
    def fit(cls, values: Tensor) -> Standardised:
        """The mean and scale of ``values``, float32[k, d], k ≥ 1."""
        deviation = values.std(dim=0, correction=0)
        varies = deviation > 1e-6 * values.abs().amax(dim=0).clamp_min(1e-6)
        return cls(values.mean(dim=0), torch.where(varies, deviation, 1.0), varies)

    def apply(self, values: Tensor) -> Tensor:
        """Standardised ``values``, float32[n, d], of the same shape."""
        return (values - self.mean) / self.scale * self.varies

    def undo(self, standard: Tensor) -> Tensor:
        """Back, float32[n, d]; a constant column has its constant."""
        return self.mean + self.scale * standard * self.varies
