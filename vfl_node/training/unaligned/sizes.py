"""What a method is told when it says, before anything runs, what it will compute."""

from __future__ import annotations

from dataclasses import dataclass

from vfl_node.computing import Network


@dataclass(frozen=True)
class Sizes:
    """A training of one repeat.

    Attributes:
        outside: rows of the active party that are learnt from without a partner.
        aligned: shared rows that are trained on.
        passive: rows of the passive party that may be learnt from, aligned ones included.
        epochs: with labels.
        batch: rows of a batch.
        own: d', width of what the active party's bottom gives.
        received: d, width of the passive party's embedding.
        top: widths of the hidden layers above them.
        outputs: logits a row.
    """

    outside: int
    aligned: int
    passive: int
    epochs: int
    batch: int
    own: int
    received: int
    top: tuple[int, ...]
    outputs: int

    @property
    def above(self) -> tuple[int, ...]:
        """The joint model's layers above both embeddings, what they read first."""
        return (self.own + self.received, *self.top, self.outputs)

    @property
    def branch(self) -> Network:
        """The active party's half."""
        return Network(bottom=True, dense=self.above)
