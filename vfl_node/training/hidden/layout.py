"""The shared rows in the order in which two parties without a dealer go through them: in blocks, since a block is a ciphertext.

::

    rows trained on, in one random order, filled up with rows that nobody owns to whole blocks
    rows held out, likewise
    a batch of a later epoch: whole blocks, in a new order of the blocks

Source: ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.paired.blocks import block_rows, fill, tile_rows
from vfl_node.crypto.shares.ring import Ring
from vfl_node.training.schedule import Schedule

Positions = NDArray[np.int64]


def batch_rows(batch: int, trained: int) -> int:
    """Rows of a batch as whole blocks, of about so many, and of all rows trained on at most."""
    size = tile_rows(min(batch, trained))
    if batch >= trained:
        return fill(trained, size)  # a step over all rows is one over all of them
    return min(max(size, round(batch / size) * size), fill(trained, size))


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """Where each row lies.

    Attributes:
        order: position in the shared order of each row, int64[n]; −1: nobody owns it.
        trained: so many of the first ones are trained on.
        tested: positions in this order that are measured on.
        tile_rows: rows of a block.
    """

    order: Positions
    trained: int
    tested: Positions
    tile_rows: int

    @classmethod
    def make(cls, schedule: Schedule, training: Positions, testing: Positions, batch: int, columns: int) -> BlockLayout:
        """The layout of rows trained on and measured on, if any are, for batches of so many rows, whole blocks.

        Args:
            schedule: that everybody has.
            training, testing: positions in the shared order.
            batch: rows of a batch.
            columns: of the party that has more.
        """
        size, held_out = block_rows(batch, columns), not np.array_equal(training, testing)
        turned = training[Randomness(schedule.derive("blocks")).permutation(len(training))]
        trained = max(fill(len(training), size), batch)
        parts = [turned, np.full(trained - len(training), -1, np.int64)]
        if held_out:
            parts += [testing, np.full(fill(len(testing), size) - len(testing), -1, np.int64)]
        order = np.concatenate(parts)
        return cls(order, trained, np.arange(trained, len(order)) if held_out else np.arange(trained), size)

    def __len__(self) -> int:
        return len(self.order)

    def lay_out(self, values: Ring) -> Ring:
        """Rows of the shared order in this one, uint64[n, …]; zeros where nobody owns one."""
        laid = values[np.maximum(self.order, 0)]
        laid[self.order < 0] = 0
        return laid

    def batches(self, schedule: Schedule, epoch: int, batch: int) -> list[Positions]:
        """Those of an epoch, all of one size, as rows of this order; the blocks left over wait for the next."""
        blocks, each = self.trained // self.tile_rows, batch // self.tile_rows
        order = Randomness(schedule.derive(f"blocks of epoch {epoch}")).permutation(blocks)
        if each == blocks:
            return [np.arange(self.trained)]
        groups = (np.sort(order[first : first + each]) for first in range(0, blocks - each + 1, each))
        return [(group[:, None] * self.tile_rows + np.arange(self.tile_rows)).ravel() for group in groups]
