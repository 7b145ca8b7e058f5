"""Losses of columns, against torch's own of each column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy


@pytest.mark.parametrize("size", [1.0, 500.0])
def test_categories_together_have_the_losses_of_each_alone(targets: Any, size: float) -> None:
    rng = np.random.default_rng(0)
    of = targets({name: rng.integers(0, levels, 200).astype(str) for name, levels in (("a", 3), ("b", 11), ("c", 4))})
    outputs = (size * torch.from_numpy(rng.normal(size=(200, of.width))).float()).requires_grad_()
    rows = torch.from_numpy(rng.permutation(200))
    losses, known = of.row_losses(outputs, rows)
    alone, start = [], 0
    for column in of.columns:
        logits = outputs[:, start : start + column.width]
        alone.append(cross_entropy(logits, column.truth[rows], reduction="none"))
        start += column.width
    expected = torch.stack(alone, dim=1)
    assert known.all()
    torch.testing.assert_close(losses, expected)
    ours, theirs = (torch.autograd.grad(of.sum(), outputs, retain_graph=True)[0] for of in (losses, expected))
    torch.testing.assert_close(ours, theirs)
