"""The one place where a half's tensors leave: defend → observe → send.

::

    embedding or gradient ── defences, in the order of the settings ──► protected ──► observers, the peer
              └──► the half's own update

Without defences and observers a tensor passes as it is, and nothing is drawn or copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.defences.defence import Defence, Leaving
from vfl_node.process import failpoints


@dataclass(frozen=True, eq=False)
class Sent:
    """One step of training, as the peer sees it.

    Attributes:
        positions: int64[B], shared positions of the batch.
        rows: float32[B, d], what the peer received: embeddings, gradients or projections; not changed afterwards.
        gradients: float32[B, d], gradients of the batch's mean loss that crossed in this step; not changed afterwards. Where
            projections leave there are none, and these are the peer's projections of the same rows.
    """

    positions: NDArray[np.int64]
    rows: Tensor
    gradients: Tensor


class Observer(Protocol):
    """Sees each tensor where it leaves, and changes none."""

    def see(self, sent: Sent) -> None:
        """Look at a step of training, once it is over."""

    def judge(self, positions: NDArray[np.int64], rows: Tensor) -> None:
        """Look at held-out rows, int64[n] and float32[n, d], before the first of them leaves.

        Raises:
            PolicyError: they must not leave.
        """


class Exit:
    """What stands between a half and the wire.

    Args:
        defences: change what leaves, one after the other. Clipping, where it is wanted, is the first of them.
        observers: see what has left.
    """

    def __init__(self, defences: Sequence[Defence] = (), observers: Sequence[Observer] = ()) -> None:
        self._defences, self._observers = defences, observers
        self._step: tuple[Leaving, Tensor] | None = None

    @property
    def defends(self) -> bool:
        """Whether there are defences."""
        return bool(self._defences)

    def prepare(self, leaving: Leaving) -> None:
        """Let the defences prepare for embeddings of a training step, which are computed next."""
        for defence in self._defences:
            defence.prepare(leaving)

    def settle(self, rows: Sequence[Leaving]) -> None:
        """Let the defences prepare for embeddings by weights that stay; ``rows`` are the batches of all rows trained on."""
        for defence in self._defences:
            defence.settle(rows)
        failpoints.reach("settled")

    @torch.no_grad()
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """What may be sent in place of ``tensor``, float32[B, d], which has no graph."""
        for defence in self._defences:
            tensor = defence.protect(tensor, leaving)
        return tensor

    def step(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        """As :meth:`protect`, in a step of training; :meth:`step_done` shows the result to the observers."""
        sent = self.protect(tensor, leaving)
        self._step = leaving, sent
        return sent

    def step_done(self, gradients: Tensor | None = None) -> None:
        """Show what left in this step to the observers.

        Args:
            gradients: float32[B, d], what came back: gradients, or the peer's projections; None where gradients are what left.
        """
        assert self._step is not None
        leaving, sent = self._step
        self._step = None
        for observer in self._observers:
            observer.see(Sent(leaving.positions, sent, sent if gradients is None else gradients))

    def protect_held_out(
        self, tensors: Sequence[Tensor], leaving: Sequence[Leaving], *, earlier: Sequence[tuple[Tensor, Leaving]] = ()
    ) -> list[Tensor]:
        """What may be sent in place of ``tensors``, once the observers have judged all of it together.

        Args:
            tensors: embeddings by one set of weights, float32[B, d] each.
            leaving: of each.
            earlier: others by the same weights that have left before; they are judged with these.

        Raises:
            PolicyError: an observer refuses.
        """
        sent = [self.protect(tensor, details) for tensor, details in zip(tensors, leaving, strict=True)]
        known = [self.protect(tensor, details) for tensor, details in earlier]
        positions = [sent_at.positions for sent_at in (*leaving, *(sent_at for _, sent_at in earlier))]
        for observer in self._observers:
            observer.judge(np.concatenate(positions), torch.cat([*sent, *known]))
        return sent

    def penalty(self, embedding: Tensor, leaving: Leaving) -> Tensor | None:
        """What the defences add to the half's loss, a scalar with a graph; None for nothing."""
        terms = [term for defence in self._defences if (term := defence.penalty(embedding, leaving)) is not None]
        return torch.stack(terms).sum() if terms else None

    def figures(self) -> list[Mapping[str, float]]:
        """What each defence, in their order, says of the steps since the last call."""
        return [defence.figures() for defence in self._defences]

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold of the defences."""
        tensors: dict[str, Tensor] = {}
        for number, defence in enumerate(self._defences):
            tensors |= add_prefix(str(number), defence.state())
        return tensors

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state` gave; the exit must be made with the same defences."""
        for number, defence in enumerate(self._defences):
            defence.restore(take_part(str(number), tensors))
