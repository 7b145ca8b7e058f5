"""Many byte strings in one buffer, as Arrow's large strings are: no object for each, so that C reads whole blocks of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]
"""Where each string begins in its text, and where the last one ends: int64[n + 1]."""


class Texts(Protocol):
    """Byte strings that a worker lays out when it needs them."""

    def __len__(self) -> int:
        """The number of strings."""

    def part(self, start: int, stop: int) -> Texts:
        """Those from ``start`` to ``stop``."""

    def lay_out(self) -> tuple[bytes, Offsets]:
        """One text, and where in it each string begins and ends."""


class LaidOut:
    """Strings that are laid out already.

    Args:
        text: one behind the other.
        offsets: where each begins and ends.
    """

    def __init__(self, text: bytes, offsets: Offsets) -> None:
        self._text, self._offsets = text, offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def part(self, start: int, stop: int) -> LaidOut:
        """Those from ``start`` to ``stop``, of the same text."""
        return LaidOut(self._text, self._offsets[start : stop + 1])

    def lay_out(self) -> tuple[bytes, Offsets]:
        """As they are."""
        return self._text, self._offsets


def laid_out(strings: Sequence[bytes]) -> tuple[bytes, Offsets]:
    """``strings`` one behind the other, and where each begins and ends."""
    offsets = np.zeros(len(strings) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=offsets[1:])
    return b"".join(strings), offsets


def check_offsets(text: bytes, offsets: Offsets) -> Offsets:
    """``offsets`` as C reads them: contiguous, each within ``text`` and none before the one in front of it.

    Raises:
        ValueError: they are not offsets into ``text``.
    """
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    if not len(offsets) or offsets[0] < 0 or offsets[-1] > len(text) or (offsets[1:] < offsets[:-1]).any():
        raise ValueError(f"no offsets of strings in a text of {len(text)} bytes")
    return offsets


def strings_of(text: bytes, offsets: Offsets) -> list[bytes]:
    """Each string as an object of its own. Raises ValueError as :func:`check_offsets`."""
    places = check_offsets(text, offsets).tolist()
    return [text[start:end] for start, end in pairwise(places)]
