"""Lists that this party computes: each chunk is stored as soon as it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vfl_node.alignment.lists.columns import Column
from vfl_node.crypto.rows import Rows


class Computed:
    """A list that is computed as it is asked for, and stored as it is computed.

    Args:
        column: where it is stored; what lies there is not computed again.
        count: elements when it is whole.
        compute: gives the elements from a place on, chunk by chunk.
    """

    def __init__(self, column: Column, count: int, compute: Callable[[int], Iterator[Rows]]) -> None:
        self._column, self._count, self._compute = column, count, compute

    def __len__(self) -> int:
        return self._count

    def chunks(self, start: int = 0) -> Iterator[Rows]:
        """The elements from ``start`` on, a chunk at a time: stored ones first, then the rest as it is computed."""
        stored = len(self._column)
        yield from self._column.chunks(start)
        for rows in self._rest():
            yield rows[max(0, start - stored) :]
            stored += len(rows)

    def whole(self) -> Column:
        """All of it, computed to its end."""
        for _ in self._rest():
            pass
        return self._column

    def _rest(self) -> Iterator[Rows]:
        for rows in self._compute(len(self._column)):
            self._column.append(rows)
            yield rows
