"""A fixed part of a party's records, if the job limits how many may take part (``align.at_most``).

The cost of training on a union depends on every row of both parties. The larger party may take part with fewer records:
those whose keyed hashes are the smallest. The hashes are of identifiers in the form ``text``, whatever form the
job names. So the part is the same in every job with that partner. With one record more in the table the part differs in
at most one member: the record joins and another one leaves, or nothing changes. If parts were drawn again, each job would
reveal other records.
"""

from __future__ import annotations

import hmac
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Table
from vfl_node.errors import DataError

_BATCH = 1 << 14  # ids that exist as Python objects at a time


def sample(table: Table, most: int | None, key: bytes) -> Table:
    """``table`` itself if it has at most ``most`` records, otherwise a part of this size, in the table's order.

    Args:
        table: n records.
        most: the job's ``align.at_most``; None: all.
        key: a secret of this node for the partner, the same in every job.

    Raises:
        DataError: all labels of the part are the same (``E_ONE_CLASS``).

    Cost: n HMAC-SHA-256 and a sort, about 2 s for a million records (one core of a small server).

    Leaks: nothing by itself. The peer sees ``most`` as the number of records, so it knows that there are at least as many.
    """
    if most is None or len(table) <= most:
        return table
    marks = keyed_marks(table.plain or table.ids, key)
    rows = np.sort(np.lexsort((marks[:, 1], marks[:, 0]))[:most])
    labels = None if table.labels is None else table.labels[rows]
    if labels is not None and labels.min() == labels.max():
        raise DataError(
            f"all labels are the same among the {most} records that take part (align.at_most)",
            code="E_ONE_CLASS",
            hint="training needs records whose labels differ: agree on a larger align.at_most",
        )
    return replace(table.take(rows), plain=None)


def keyed_marks(ids: Identifiers, key: bytes) -> NDArray[np.uint64]:
    """A pseudo-random value of each id, 128 bits in two words, [n, 2]."""
    marks = bytearray()
    for start in range(0, len(ids), _BATCH):
        marks += b"".join([hmac.digest(key, id_, "sha256")[:16] for id_ in ids[start : start + _BATCH]])
    return np.frombuffer(marks, dtype="<u8").reshape(-1, 2)
