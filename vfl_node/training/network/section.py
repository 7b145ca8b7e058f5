"""What trainers of networks report alike."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from vfl_node.training.network.config import NetworkConfig
from vfl_node.training.section import Section
from vfl_node.training.words import Term


class EarlyStopping(Section):
    """Where training ended, and which epochs' weights were measured and kept."""

    best_epochs: tuple[int, ...] = Field(description="of each repeat, the epoch of the smallest validation loss, from 1")
    last_epochs: tuple[int, ...] = Field(description="of each repeat, the epoch after which training ended")

    @classmethod
    def from_epochs(cls, stopped: Sequence[tuple[int, int]]) -> EarlyStopping:
        """The section for (best epoch, last epoch) of each repeat."""
        best, last = zip(*stopped, strict=True)
        return cls(best_epochs=best, last_epochs=last)

    def term(self, train: NetworkConfig) -> Term:
        """In words."""
        each = (
            f"epoch {best} of {last} has the smallest validation loss"
            for best, last in zip(self.best_epochs, self.last_epochs, strict=True)
        )
        rule = f"its weights are measured and kept; training ends after {train.patience} epochs without a smaller one"
        return Term("Early stopping", (*((words,) for words in each), (f"{rule}, or after {train.epochs}",)))
