"""The rows nearest to some others, sought once, or kept as more rows come."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NEAR = 16
"""Rows beside a row that an attack looks at."""

ROWS_AT_ONCE = 512

MUCH = 1e6
"""How many times as large as all before it a row must be for its squares to be lost beside theirs, or theirs beside its."""


class NearRows:
    """The rows nearest to those that are followed, kept as more rows come: what was compared once is not compared again."""

    def __init__(self) -> None:
        self._which = np.empty(0, dtype=np.int64)
        self._found: _Found | None = None
        self._seen, self._scale = 0, 0.0

    def look(self, rows: Tensor, which: NDArray[np.int64]) -> Tensor:
        """As :func:`nearest_rows` of the rows ``which``, of which some may have been followed before.

        Args:
            rows: float[n, d], those of the last time and then more.
            which: int64[q], ascending.

        Cost: (p·k + (q − p)·n)·d multiplications, where k rows are new, and p of ``which`` were followed before.
        """
        new = rows[self._seen :]
        largest = float(new.abs().amax()) if new.numel() else 0.0
        if largest > MUCH * self._scale:  # so that squares neither vanish nor overflow: all is compared anew
            self._which, self._found, self._seen = self._which[:0], None, 0
            self._scale = max(largest, float(torch.finfo(rows.dtype).tiny))
        kept = np.isin(self._which, which)
        before, entered = self._which[kept], np.setdiff1d(which, self._which[kept], assume_unique=True)
        found = _search(rows, entered, 0, self._scale or 1.0)
        if self._found is not None:
            old = self._found.take(torch.from_numpy(np.flatnonzero(kept)))
            found = old.merge(_search(rows, before, self._seen, self._scale or 1.0)).append(found)
        order = np.argsort(np.concatenate([before, entered]))
        self._which, self._seen, self._found = which, len(rows), found.take(torch.from_numpy(order))
        return self._found.beside[:, : max(min(NEAR, len(rows) - 1), 0)]


def nearest_rows(rows: Tensor, which: Tensor) -> Tensor:
    """The numbers of the 16 rows nearest to each of the rows ``which``, nearest first; fewer where there are no 16 others.

    They are sought in the rows' own precision, where of nearly equally near ones any may win.

    Args:
        rows: float[n, d].
        which: int64[q].

    Returns:
        int64[q, min(16, n − 1)].

    Cost: q·n·d multiplications.
    """
    return _search(rows, which.cpu().numpy(), 0, 1.0).beside[:, : max(min(NEAR, len(rows) - 1), 0)]


class _Found:
    """What was found near some rows.

    Args:
        near: float[q, 16], ½‖r‖² − ⟨q, r⟩ of each, ascending; ∞ where there is none.
        beside: int64[q, 16], their numbers.
    """

    def __init__(self, near: Tensor, beside: Tensor) -> None:
        self.near, self.beside = near, beside

    def take(self, places: Tensor) -> _Found:
        places = places.to(self.near.device)
        return _Found(self.near[places], self.beside[places])

    def append(self, other: _Found) -> _Found:
        return _Found(torch.cat([self.near, other.near]), torch.cat([self.beside, other.beside]))

    def merge(self, other: _Found) -> _Found:
        """The nearest of both, row by row."""
        near, places = torch.cat([self.near, other.near], dim=1).topk(NEAR, dim=1, largest=False)
        return _Found(near, torch.cat([self.beside, other.beside], dim=1).gather(1, places))


def _search(rows: Tensor, which: NDArray[np.int64], start: int, scale: float) -> _Found:
    """What is nearest to the rows ``which`` among those from ``start`` on, all divided by ``scale``."""
    near, beside = rows.new_full((len(which), NEAR), torch.inf), torch.zeros((len(which), NEAR), dtype=torch.int64)
    beside, count = beside.to(rows.device), min(NEAR, len(rows) - start)
    if count and len(which):
        among = rows[start:] / scale if scale != 1 else rows[start:]
        half_norms = among.norm(dim=1).square() / 2
        for first in range(0, len(which), ROWS_AT_ONCE):
            asked = torch.from_numpy(which[first : first + ROWS_AT_ONCE]).to(rows.device)
            distances = torch.addmm(half_norms[None], rows[asked] / scale, among.mT, alpha=-1)  # (q, n), as in near_duplicate
            own = torch.nonzero(asked >= start)[:, 0]
            distances[own, asked[own] - start] = torch.inf  # not itself
            part = slice(first, first + len(asked))
            near[part, :count], beside[part, :count] = distances.topk(count, dim=1, largest=False)
    return _Found(near, beside + start)
