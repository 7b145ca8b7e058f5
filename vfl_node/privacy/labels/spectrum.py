"""The leading direction of rows."""

from __future__ import annotations

import torch
from torch import Tensor


def leading(rows: Tensor) -> Tensor:
    """The right singular vector of the largest singular value of ``rows``, float32[k, d]; its sign is that of the rows' mean.

    Costs k·d² multiplications. Rows are scaled by their largest number first: squares of very large ones would overflow.
    """
    scaled = rows.double() / rows.abs().max().double().clamp_min(1e-300)
    along = torch.linalg.eigh(scaled.T @ scaled).eigenvectors[:, -1]
    if scaled.mean(dim=0) @ along < 0:
        along = -along
    return along.to(rows.dtype)
