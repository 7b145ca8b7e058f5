"""How much logistic regression exchanges: counted before it runs, from the job and the number of rows alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import HEAD_BYTES, Computing, Operations, TableShape, TrainingCost, TrainingPlan
from vfl_node.training.glm.scales import Scales

if TYPE_CHECKING:
    from vfl_node.job import Evaluate
    from vfl_node.roles import DataRole, Role
    from vfl_node.training.glm.config import GeneralisedLinear

SCORE_BYTES = 8
"""A score in clear: a float64."""

ROUND_TRIPS = 2
"""Round trips of an iteration: scores for residuals, and a masked gradient for its decryption."""


USUAL_COLUMNS = 16
"""Encoded columns of a party, where nobody says how many it has."""

PACE = "vfl_node.training.glm.pace:EncryptionPace"


def cost(train: GeneralisedLinear, evaluate: Evaluate, m: int, passive_parties: int = 1) -> TrainingCost:
    """What training over ``m`` shared rows takes: what the data parties send each other for every row.

    Not counted are the masked gradients, about one ciphertext for every 24 columns and output of a key of 3072 bits, nor a
    coordinator's conversations, in which there is nothing else. With ``tolerance`` training may end before the last
    iteration, and this is the most that it takes.

    Args:
        train: the job's section.
        evaluate: the job's section.
        m: length of the shared order.
        passive_parties: how many there are; each has a conversation of its own with the active party.

    Raises:
        UsageError: values that do not fit the key (``E_OVERFLOW``).
    """
    held_out = math.ceil(m * evaluate.test_fraction)
    trained, tested = m - held_out, held_out or m
    rows = min(train.batch_size or trained, trained)
    active, passive = _bytes_a_row(train, passive_parties)
    ciphertext = 2 * train.key_bits // 8
    products = ciphertext if passive_parties > 1 and train.flow == "coordinator" and train.tolerance > 0 else 0
    measuring = tested * SCORE_BYTES * train.outputs if train.labels == "active" else 0
    return TrainingCost(
        rows=rows,
        batches=1 if rows else 0,
        steps=ROUND_TRIPS * train.iterations,
        active_bytes=passive_parties * train.iterations * rows * active,
        passive_bytes=passive_parties * (train.iterations * (rows * passive + products) + measuring),
    )


def computing(
    train: GeneralisedLinear, evaluate: Evaluate, m: int, passive_parties: int, columns: tuple[int, ...]
) -> Computing:
    """Encryption over ``m`` shared rows; ``columns`` as :attr:`~vfl_node.job.costs.Beside.columns`.

    Each ciphertext is encrypted by its sender, once for all peers, and checked by its receiver, who multiplies it with a
    number of each of its columns. Products with single numbers and the masked gradients are left out.
    """
    trained = m - math.ceil(m * evaluate.test_fraction)
    active, passive = (
        sent // (2 * train.key_bits // 8) * train.iterations * min(train.batch_size or trained, trained)
        for sent in _bytes_a_row(train, passive_parties)
    )
    own, *theirs = (count or USUAL_COLUMNS for count in columns or (0,) * (1 + passive_parties))
    owner = "own " if train.flow == "two-party" else ""
    holder: Role = "active" if train.flow == "two-party" else "coordinator"
    work = (
        Operations(holder, "key", 1),
        Operations("active", f"{owner}encryption", active, shared=True),
        Operations("active", "check", passive * passive_parties),
        Operations("active", "entry", passive * passive_parties * own, shared=True),
        Operations("passive", "encryption", passive, shared=True),
        Operations("passive", "check", active),
        Operations("passive", "entry", active * max(theirs), shared=True),
    )
    return Computing(work, PACE)


def _bytes_a_row(train: GeneralisedLinear, passive_parties: int) -> tuple[int, int]:
    """What the active party sends to each passive one, and each to it, for a row in an iteration (see the flows' modules)."""
    ciphertext = 2 * train.key_bits // 8
    groups = len(Scales.from_config(train, passive_parties).groups) * ciphertext
    squares = ciphertext if train.tolerance > 0 and passive_parties == 1 else 0  # for the loss
    if train.flow != "coordinator":
        return groups, SCORE_BYTES * train.outputs
    if train.labels == "active":
        return groups, groups + squares
    return 2 * ciphertext + squares, ciphertext


class GlmPlan(TrainingPlan["GeneralisedLinear"]):
    """Plan of a generalised linear model under encryption."""

    def steps(self, evaluate: Evaluate, rows: int) -> int:
        """Iterations, however many rows there are."""
        return self.train.iterations

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost | None:
        """Ciphertexts and scores of the rows; the masked gradients, which depend on columns, are not counted."""
        if "passive" in ALIGNMENTS[protocol].synthetic_rows_at:
            return None
        return cost(self.train, evaluate, rows, self.passive_parties)

    def computing(self, evaluate: Evaluate, rows: int, protocol: str, records: Mapping[DataRole, int]) -> Computing:
        """Encryptions, checks and products under encryption."""
        return computing(self.train, evaluate, rows, self.passive_parties, self.beside.columns)

    def batch_bytes(self, role: DataRole, table: TableShape) -> int:
        """Ciphertexts of an iteration."""
        train = self.train
        rows = table.rows if train.batch_size is None else min(train.batch_size, table.rows)
        return 4 * rows * (1 + train.outputs) * train.key_bits // 4  # a ciphertext has twice the bits of the key

    def reported_epochs(self, evaluate: Evaluate) -> int:
        """Iterations."""
        return self.train.iterations

    def served_message_bytes(self, rows: int) -> int:
        """A party's scores of a batch, or what is predicted from them."""
        return 8 * self.train.outputs * rows + HEAD_BYTES

    def message_bytes(self, evaluate: Evaluate) -> int:
        """The scores of an iteration; ciphertexts travel in chunks."""
        rows = sys.maxsize if self.train.batch_size is None else self.train.batch_size
        return 8 * self.train.outputs * rows + HEAD_BYTES
