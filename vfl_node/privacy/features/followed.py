"""What has left of the rows that an audit of features follows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vfl_node.privacy.attacks.attack import Positions, Subset
from vfl_node.privacy.features.attacks import depth, stack_epochs, views
from vfl_node.privacy.outgoing import Sent


class Followed:
    """Embeddings, or projections, of the followed rows in the last epochs, and their mean over all.

    Args:
        rows: which shared positions are followed; k of them.

    Attributes:
        epochs: float32[k, d] of each of the last epochs that are over, oldest first.
        count: how many are over.

    Memory: at most 16 epochs and about 256 numbers a row, and their mean; all of it also in a checkpoint.
    """

    def __init__(self, rows: Subset) -> None:
        self._rows, self._now, self._mean = rows, torch.empty(0), torch.empty(0)
        self.epochs: list[Tensor] = []
        self.count = 0

    @torch.no_grad()
    def see(self, sent: Sent) -> None:
        """Take in what leaves in one step."""
        self.take(sent)

    def judge(self, positions: Positions, rows: Tensor) -> None:
        """Nothing: held-out rows are no part of it."""

    def take(self, sent: Sent) -> tuple[Tensor, Tensor]:
        """As :meth:`see`; bool[B], which of the step's rows are followed, and the places of these among all that are, int64."""
        if not len(self._now):
            self._now = sent.rows.new_zeros(len(self._rows), sent.rows.shape[1])
        places = torch.from_numpy(self._rows.places(sent.positions)).to(sent.rows.device, torch.int64)
        followed = places >= 0
        self._now[places[followed]] = sent.rows[followed]
        return followed, places[followed]

    def epoch_done(self) -> bool:
        """Whether anything has left since the last call: then that was an epoch, which is over."""
        if not len(self._now):
            return False
        now, self._now = self._now, torch.empty(0)
        self.epochs = [*self.epochs, now][-depth(now.shape[1]) :]
        self.count += 1
        self._mean = now.clone() if self.count == 1 else self._mean + (now - self._mean) / self.count
        return True

    def view_epochs(self) -> tuple[Tensor, ...]:
        """What its epochs say of the rows: :func:`~vfl_node.privacy.features.attacks.views`; there must be one."""
        return views(self.epochs, self._mean)

    def stack_last(self) -> Tensor:
        """The last epochs side by side, float32[k, e·d]; there must be one."""
        return stack_epochs(self.epochs)

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold; empty before the first one is over."""
        if not self.count:
            return {}
        return {"count": torch.tensor(self.count), "embeddings": torch.stack(self.epochs), "mean": self._mean}

    def restore(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Take back what :meth:`tensors` gave."""
        if "embeddings" in tensors:
            self.count, self.epochs = int(tensors["count"]), list(tensors["embeddings"].to(device))
            self._mean = tensors["mean"].to(device)
