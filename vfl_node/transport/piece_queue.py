"""A queue of messages with a bound in bytes."""

from __future__ import annotations

from collections import deque


class PieceQueue(deque[tuple[bytes, ...]]):
    """The messages, each in pieces, that wait in one direction of a stream, which guards them with its lock.

    Args:
        limit_bytes: largest number of bytes that wait; a larger message waits alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self._size_bytes = 0

    def has_room(self, pieces: tuple[bytes, ...]) -> bool:
        """Whether a message in these pieces may wait."""
        return not self or self._size_bytes + _cost(pieces) <= self._limit_bytes

    def append(self, pieces: tuple[bytes, ...]) -> None:
        """Put a message last."""
        super().append(pieces)
        self._size_bytes += _cost(pieces)

    def popleft(self) -> tuple[bytes, ...]:
        """Take the first message."""
        pieces = super().popleft()
        self._size_bytes -= _cost(pieces)
        return pieces

    def clear(self) -> None:
        """Drop all."""
        super().clear()
        self._size_bytes = 0


def _cost(pieces: tuple[bytes, ...]) -> int:
    return sum(map(len, pieces)) + 64 * (len(pieces) + 1)  # Python objects: a flood of empty messages must count, too
