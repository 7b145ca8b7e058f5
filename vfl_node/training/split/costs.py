"""How much split training exchanges: counted before it runs, from the number of shared rows alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.job import Evaluate, Train
from vfl_node.models import cut_width
from vfl_node.training.split.matched import KEY_BITS, bins_of

FRAME_BYTES = 74
"""Of a message beside the values of its tensor: about so many at 256 rows of width 128."""


@dataclass(frozen=True)
class TrainingCost:
    """What training over some number of shared rows takes, all repeats together unless it says otherwise.

    Attributes:
        rows: trained on in an epoch.
        batches: in an epoch.
        steps: embeddings sent and their gradients awaited, one after the other.
        active_bytes: sent by the active party: gradients.
        passive_bytes: sent by the passive party: embeddings, those of held-out rows included, and for
            ``evaluate.matched`` a flag of each of these, encrypted.
    """

    rows: int
    batches: int
    steps: int
    active_bytes: int
    passive_bytes: int

    @property
    def bytes(self) -> int:
        """Both ways."""
        return self.active_bytes + self.passive_bytes


def cost(train: Train, evaluate: Evaluate, m: int, protocol: str) -> TrainingCost:
    """What training over ``m`` shared rows takes, up to a few messages around it.

    Args:
        train: the job's section.
        evaluate: the job's section.
        m: length of the shared order.
        protocol: name of the alignment; where matched rows cannot be counted ``evaluate.matched`` costs nothing.
    """
    held_out = math.ceil(m * evaluate.test_fraction)
    rows, tested = m - held_out, held_out or m
    batches, tests = (-(-count // train.batch_size) for count in (rows, tested))
    row_bytes = 4 * cut_width(train)
    counted = evaluate.matched and ALIGNMENTS[protocol].can_count_matched_rows and bins_of(tested)
    flags = tested * 2 * KEY_BITS // 8 if counted else 0  # a ciphertext each
    epochs = evaluate.repeats * train.epochs
    each_way = epochs * (rows * row_bytes + batches * FRAME_BYTES)
    return TrainingCost(
        rows=rows,
        batches=batches,
        steps=epochs * batches,
        active_bytes=each_way,
        passive_bytes=each_way + evaluate.repeats * (tested * row_bytes + tests * FRAME_BYTES) + flags,
    )
