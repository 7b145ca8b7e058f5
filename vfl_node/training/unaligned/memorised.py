"""Whether made-up embeddings are copies of real ones: how near they are to these, compared with real ones to each other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

ASKED = 1000
"""Rows of either kind whose nearest one is looked for."""

ROWS_AT_ONCE = 8192


def nearest_real(made: Tensor, real: Tensor) -> float | None:
    """The median distance of made-up rows to the nearest real one, over that of real rows to the nearest *other* real one.

    A draw from where the real ones came from is as far from them as they are from each other: about 1. A method that
    memorises makes copies: about 0. Real rows that were not learnt from are no further from the others than these are from
    each other, so none need be held back.

    Args:
        made: float16[u, d] or float32[u, d], u ≥ 1.
        real: float32[k, d].

    Returns:
        None where it is not defined: fewer than two real rows, or half of them have an equal one.

    Cost: distances of up to 1,000 rows of each kind, evenly spaced, to all real rows.
    """
    if len(real) < 2:
        return None
    places = _spread_places(len(real)).to(real.device)
    between = _nearest(real[places], real, places).median()
    if between <= 0:
        return None
    return float(_nearest(made[_spread_places(len(made)).to(made.device)].float(), real).median() / between)


def _spread_places(rows: int) -> Tensor:
    return torch.from_numpy(np.unique(np.linspace(0, rows - 1, min(rows, ASKED)).astype(np.int64)))


def _nearest(asked: Tensor, real: Tensor, own: Tensor | None = None) -> Tensor:
    """The distance of each row to the nearest of the ``real`` ones, float32[n]; ``own`` are the places that are not counted."""
    nearest = torch.full((len(asked),), float("inf"), device=real.device)
    for start in range(0, len(real), ROWS_AT_ONCE):
        part = real[start : start + ROWS_AT_ONCE]
        distances = torch.cdist(asked, part, compute_mode="donot_use_mm_for_euclid_dist")
        if own is not None:
            within = torch.nonzero((own >= start) & (own < start + len(part)))[:, 0]
            distances[within, own[within] - start] = float("inf")
        nearest = torch.minimum(nearest, distances.amin(dim=1))
    return nearest
