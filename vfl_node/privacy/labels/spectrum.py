"""The leading direction of rows."""

from __future__ import annotations

import torch
from torch import Tensor


def leading(rows: Tensor) -> Tensor:
    """The right singular vector of the largest singular value of ``rows``, float32[k, d]; its sign is that of the rows' mean.

    Costs k·d·min(k, d) multiplications: of the two matrices of inner products the smaller one is taken, so that wide rows, and
    those of several peers side by side, cost no d². Rows are scaled by their largest number first: squares of very large ones
    would overflow.
    """
    scaled = rows.double() / rows.abs().max().double().clamp_min(1e-300)
    if len(rows) < rows.shape[1]:
        along = scaled.T @ torch.linalg.eigh(scaled @ scaled.T).eigenvectors[:, -1]
        along = along / along.norm() if along.norm() > 0 else torch.eye(1, rows.shape[1], dtype=along.dtype)[0]
    else:
        along = torch.linalg.eigh(scaled.T @ scaled).eigenvectors[:, -1]
    if scaled.mean(dim=0) @ along < 0:
        along = -along
    return along.to(rows.dtype)
