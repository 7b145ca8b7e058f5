"""The active party's rows outside of the alignment: a second branch of its network learns from them.

::

    federated branch   own bottom ─► h_L ──┐
                       peer's bottom ─ h_N ┴─ top ─► logits      aligned rows, by messages; evaluated and kept
    local branch       own bottom ─► h_L ──┐
                       filled in once ─ h̃_N ┴─ own top ─► logits  rows outside, at the active party alone; dropped at the end

Both branches share the weights of the own bottom, but for norms and their averages. The phases of a repeat::

    pretrain    federated batches alone; in the last epoch the embeddings received are noted
    fill        the method makes up h̃_N of every row outside, once; the active half may begin anew    (filled_rows.py)
    train       federated batches, and between them ⌈u/B⌉ local ones an epoch, spread evenly          (local_branch.py)

h̃_N is constant from then on, but for the method that estimates it anew in each batch (estimated_rows.py). A shared row that the
active party does not own takes part in federated batches alone, where its label and columns are made up: nothing here learns
from it.

Nothing of this is sent: the messages are those of a training without it, as many and as long.
What the passive party can see is time. How long an epoch takes tells it about u, which with private set intersection it knows
from the numbers of records, unless these are padded. Where the protocol hides from it how many records are shared, u would tell
that: so the rows outside are repeated there up to n_A, the number of records that this party has announced. As many rows are
then filled in, and ⌈n_A/B⌉ batches are learnt from an epoch, whatever is shared (:func:`repeat_to_announced`).

Source: Wei et al. 2023 (FedAds), section 4.1, algorithm 1. Deviations: a fixed share of local batches an epoch in place of a
coin for each, with the same expectation; each branch has an optimiser of its own; the active half begins anew once the rows are
filled in (``anew``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.alignment.sizes import announced_count
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError
from vfl_node.session.session import Session
from vfl_node.training.network.half import NO_ROWS, Positions
from vfl_node.training.split.config import Train
from vfl_node.training.split.estimated_rows import EstimatedRows
from vfl_node.training.split.filled_rows import FilledRows
from vfl_node.training.split.local_branch import ActiveParts, LocalBranch
from vfl_node.training.trainer import TrainingData

FEWEST_OF_A_CLASS = 2

FOR_PEER = "the active party's records do not allow train.unaligned; set its method to none"
"""The same for all reasons: each would tell something about the records that are shared."""


def rows_outside(session: Session, data: TrainingData, training: Positions) -> NDArray[np.int64]:
    """The rows of the table that are learnt from although no peer has them, int64[u], ascending; none without a method.

    With an order of the rows those after the last shared one that is trained on stay out, too: from later records a model would
    know what no model can know in time.

    Raises:
        DataError: the job has a method, and there is no such row (``E_EMPTY``).
    """
    if not Train.section_of(session.job).unaligned.used:
        return NO_ROWS
    table, alignment = data.table, data.alignment
    outside = np.setdiff1d(np.arange(len(table)), alignment.rows[alignment.owned])
    if table.order is not None and session.job.evaluate.hold_out:
        trained = alignment.rows[training][alignment.owned[training]]
        outside = outside[table.order[outside] <= table.order[trained].max()]
    if len(outside) == 0:
        raise DataError(
            "train.unaligned learns from the active party's rows outside of the alignment, and there is none",
            code="E_EMPTY",
            hint="set train.unaligned: {method: none}, or bring records that the passive party does not have",
            for_peer=FOR_PEER,
        )
    return outside.astype(np.int64)


def repeat_to_announced(
    session: Session, data: TrainingData, rows: NDArray[np.int64], randomness: Randomness
) -> NDArray[np.int64]:
    """``rows``, repeated where their number must not show: int64, ascending.

    Where the alignment hides from the passive party how many records are shared, there are as many as this party has announced
    records; each of ``rows`` is among them as often as any other, or once more.
    """
    if len(rows) == 0 or not data.alignment.hides_intersection:
        return rows
    count = announced_count(data.alignment.ours, session.job.align, session.role)
    return np.sort(np.resize(rows[randomness.derive("repeated").permutation(len(rows))], count))


def make_branch(active: ActiveParts, saved: Mapping[str, Tensor]) -> LocalBranch | None:
    """What the active party does in a repeat with its rows outside of the alignment; ``saved`` is of a checkpoint within it.

    Raises:
        DataError: a class of theirs has hardly any aligned row (``E_ONE_CLASS``).
    """
    method = active.train.unaligned
    if not method.fills:
        return None
    assert active.table.labels is not None
    _check_classes(active.train, active.table.labels, active.aligned_rows, active.rows)
    return EstimatedRows(active, saved) if method.estimates else FilledRows(active, saved)


def _check_classes(train: Train, labels: NDArray[Any], aligned: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
    """Refuse a class that rows outside have and hardly any aligned row. Raises DataError (``E_ONE_CLASS``)."""
    if train.task != "classification":
        return
    known = np.bincount(labels[aligned].astype(np.int64), minlength=train.classes)
    for label in np.unique(labels[rows].astype(np.int64)):
        if known[label] < FEWEST_OF_A_CLASS:
            raise DataError(
                f"rows outside of the alignment have the label {label}, and {known[label]} of the aligned rows trained on: "
                "too few to fill in their embeddings from",
                code="E_ONE_CLASS",
                hint="use more records, a smaller evaluate.test_fraction, or train.unaligned: {method: none}",
                for_peer=FOR_PEER,
            )
