"""What was made lately, kept as far as there is room for it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

V = TypeVar("V")

MOST_BYTES = 64 << 20


class Recent(Generic[V]):
    """Number → what was made for it; what was not used for longest goes first.

    Args:
        most_bytes: of all together.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[int, tuple[V, int]] = OrderedDict()

    def find(self, number: int) -> V | None:
        """What was kept; None if that is not there any more, or never was."""
        if number not in self._kept:
            return None
        self._kept.move_to_end(number)
        return self._kept[number][0]

    def keep(self, number: int, value: V, size: int) -> V:
        """Keep ``value``, of ``size`` bytes, in place of what there was; returns it."""
        self._bytes += size - self._kept.pop(number, (None, 0))[1]
        self._kept[number] = value, size
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1][1]
        return value
