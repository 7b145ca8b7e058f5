"""What a defence is, and what it may know of the tensor that it changes.

A defence works at the one place where a half's tensors leave (:class:`~vfl_node.privacy.outgoing.Exit`). The half's own
update uses the clean tensor; the peer and the audit get the protected one. There are four points at which it may act:

* :meth:`Defence.prepare`, before the tensor of a training step is computed: it may move the model that computes it, as
  forward-backward splitting does;
* :meth:`Defence.settle`: it may move that model again, before weights are measured, kept and served;
* :meth:`Defence.protect`: it returns what is sent instead, as clipping and noise do;
* :meth:`Defence.penalty`: a term of the half's own loss, as distance correlation is.

What it needs it takes from :class:`Sender` (the same for a whole repeat) and :class:`Leaving` (one tensor). One that needs
more adds a field there, which the halves fill.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.configuration.registry import load
from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.crypto.randomness import Randomness
from vfl_node.models.inputs import ModelInput
from vfl_node.privacy.features.targets import Targets
from vfl_node.settings.defences import DEFENCES, DefenceParams, Direction


@dataclass(frozen=True, eq=False)
class Sender:
    """The half whose tensors leave. Everything here is its own, and none of it is sent.

    Attributes:
        direction: what leaves.
        real: bool[m], which shared rows are real at this party.
        model: what computes the embeddings; None where gradients leave.
        inputs: shared positions, int64[B] → the columns that it reads; None where gradients leave.
        columns: names of columns → what a decoder of them is to give at the shared positions; none: all. None where gradients
            leave, and in predictions.
    """

    direction: Direction
    real: NDArray[np.bool_]
    model: nn.Module | None = None
    inputs: Callable[[NDArray[np.int64]], ModelInput] | None = None
    columns: Callable[[Sequence[str]], Targets] | None = None


@dataclass(frozen=True, eq=False)
class Leaving:
    """One tensor that is about to leave, [B, d]. Everything here is the sender's own, and none of it is sent.

    Attributes:
        label: names the tensor within its repeat, the same in every attempt at the job; secret draws derive from it.
        positions: int64[B], shared positions; empty where rows are not named.
        rows: gives a name for each row, where it may leave again under the same weights (held out, or predicted); None in
            training.
        labels: float32[B] or float32[B, K], the targets of the step; None where embeddings leave.
        mean_of: of how many rows' losses a gradient is the mean, divided by the largest class weight: times this, the gradient
            of a row is no longer than it would be without weights. 1 for embeddings.
    """

    label: str
    positions: NDArray[np.int64]
    rows: Callable[[], Sequence[str]] | None = None
    labels: Tensor | None = None
    mean_of: float = 1


def names_of_positions(positions: NDArray[np.int64], epoch: int = 0) -> list[str]:
    """Names of rows of the training's shared order, for :attr:`Leaving.rows`.

    Args:
        positions: int64[B], shared positions.
        epoch: by whose weights they are embedded: a row has another name under other weights. 0 where named rows only ever
            meet those at the end.
    """
    return [f"{epoch}/{position}" if epoch else str(position) for position in positions.tolist()]


class Defence:
    """Base of all defences, which changes nothing.

    Args:
        params: its keys in the settings.
        sender: the half that it protects.
        randomness: of this alone: for this repeat, these keys and its place among the defences. Every secret draw derives
            from it by the step's or row's name, so that a run that was killed repeats the same bytes.
    """

    def __init__(self, params: DefenceParams, sender: Sender, randomness: Randomness) -> None:
        """Nothing to remember."""

    def prepare(self, leaving: Leaving) -> None:
        """Prepare for embeddings of a training step that are computed next; may change the sender's model.

        The model computes as in that step, with norms by the batch, but without dropout. Its buffers are put back afterwards.
        """

    def settle(self, rows: Sequence[Leaving]) -> None:
        """Prepare for embeddings by weights that stay as they are: before validation, evaluation and predictions.

        The model computes as it will then: norms by their running averages, and no dropout.

        Args:
            rows: the batches of all rows trained on; none of them leaves for it. May change the sender's model.
        """

    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """What is sent in place of ``tensor``, float32[B, d] without a graph; ``tensor`` itself is not changed."""
        return tensor

    def penalty(self, embedding: Tensor, leaving: Leaving) -> Tensor | None:
        """A term of the half's loss, a scalar with a graph through ``embedding``, float32[B, d]; None for none."""
        return None

    def figures(self) -> Mapping[str, float]:
        """What the owner's report says of the steps since the last call: name → mean over these steps; empty for nothing."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint between two epochs must hold."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state` gave; the defence must be made with the same arguments."""


def noise(randomness: Randomness, leaving: Leaving, tensor: Tensor, name: str = "noise") -> Randomness:
    """What a defence draws from for one tensor of training: other values under the same name have other draws.

    A resumed step on a device that rounds in another way gives slightly other values, and the difference of two values with the
    same noise would be without noise.

    Args:
        randomness: of the defence.
        leaving: the tensor's name.
        tensor: float32[B, d], which is to be changed.
        name: of these draws among those for the tensor.
    """
    digest = hashlib.sha256(tensor.cpu().contiguous().numpy().data).hexdigest()
    return randomness.derive(f"{leaving.label}/{digest}/{name}")


def normal(randomness: Randomness, like: Tensor) -> Tensor:
    """Standard normal numbers of the shape and type and on the device of ``like``."""
    return torch.from_numpy(randomness.normal(tuple(like.shape))).to(device=like.device, dtype=like.dtype)


def build(chosen: Sequence[DefenceParams], sender: Sender, randomness: Randomness) -> list[Defence]:
    """The defences of a half, in the order in which they change a tensor.

    Args:
        chosen: as in the settings.
        sender: the half.
        randomness: of its defences in this repeat. Another key or order of the settings gives other draws: two noises of
            different strength on one tensor must not be multiples of each other.

    Raises:
        UsageError: a defence of another package cannot be loaded (``E_EXTENSION``).
    """
    defences = []
    for number, params in enumerate(chosen):
        implementation = load(DEFENCES[params.name].implementation, what=f"defence {params.name!r}")
        keys = params.model_dump_json(context=LASTING_NAMES)
        defences.append(implementation(params, sender, randomness.derive(f"{number}/{keys}")))
    return defences
