"""What hangs on one party's half of a network beside its learning: audits, meters, a recorder, rows outside of the alignment.

A half calls its attachments in their order at fixed points of a repeat. So what a paper or an audit adds to training is one
class in the folder of its idea. Neither the loop nor the step of a half knows it; pretraining alone has steps of its own, which
the loop calls::

    follow_on
    each epoch:     epoch_begins
        each step:  loss_beside ─ (the tensors leave) ─ step_done
                    wait, for the epoch before ─ epoch_ends, or epoch_without_labels_ends
    break_off, where training fails
    findings, so_far
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Forward:
    """One batch at the active party, before its loss is computed.

    Attributes:
        positions: int64[B], shared positions.
        own: float32[B, d'], what the own bottom makes of them; None without an own bottom.
        embeddings: float32[B, d] of each passive party, as they were received.
        targets: float32[B] or [B, K], as the loss reads them.
    """

    positions: NDArray[np.int64]
    own: Tensor | None
    embeddings: Sequence[Tensor]
    targets: Tensor


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """One step of training at the active party, when it is over.

    Attributes:
        positions: int64[B], shared positions.
        embeddings: float32[B, d] of each passive party, as they were received.
        gradients: float32[B, d] for each, as they were sent; of the batch's mean loss.
    """

    positions: NDArray[np.int64]
    embeddings: Sequence[Tensor]
    gradients: Sequence[Tensor]


class Attachment:
    """Base of all: each method does nothing. A subclass overrides those that it needs.

    Attributes:
        name: before the names of its tensors in a checkpoint.
        carries: before those of what it carries from repeat to repeat.
    """

    name = ""
    carries = ""

    def follow_on(self, carried: Mapping[str, Tensor]) -> None:
        """Take in what :meth:`carry_over` gave at the end of the repeat before; nothing in the first."""

    def epoch_begins(self, epoch: int, steps: int) -> None:
        """Make ready for epoch ``epoch``, from 0, of so many steps.

        Raises:
            PolicyError: as :meth:`epoch_ends`.
        """

    def loss_beside(self, forward: Forward) -> Tensor | None:
        """An additional loss of this batch, a scalar with a graph; None: there is none."""
        return None

    def step_done(self, step: TrainingStep) -> None:
        """Look at a step, and do what is due after it. Nothing is sent."""

    def wait(self) -> Mapping[str, Any]:
        """What was still being found when the epoch before ended, as :meth:`epoch_ends`; waits for it."""
        return {}

    def epoch_ends(self) -> Mapping[str, Any]:
        """Do what is due at the end of the epoch; what its record says of it: field of ``Epoch`` → value. Nothing is sent.

        Raises:
            PolicyError: the peer has got more than the owner allows (``E_LEAK``; it is told ``E_STOPPED``).
        """
        return {}

    def epoch_without_labels_ends(self) -> None:
        """Do what is due at the end of an epoch before the training with labels in which batches have crossed the wire.

        Raises:
            PolicyError: as :meth:`epoch_ends`.
        """

    def break_off(self) -> None:
        """Take in what was seen of an epoch that does not come to its end."""

    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """What the report is to say of it after this repeat, as JSON.

        Args:
            before: what was found until the repeat before; None in the first repeat.
        """
        return {}

    def carry_over(self) -> dict[str, Tensor]:
        """What this repeat and all before it leave to the next one."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold, once :meth:`wait` was called."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave; it must be made with the same arguments."""
