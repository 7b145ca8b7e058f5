"""Rows looked up before they are taken."""

from __future__ import annotations

import numpy as np
import torch

from vfl_node.models.inputs import ModelInput
from vfl_node.models.schema import InputSchema
from vfl_node.training.network.positioned_input import PositionedInput


def test_fetched_rows_are_given_once_and_to_nobody_who_asks_for_others() -> None:
    table = torch.arange(12.0).reshape(6, 2)
    inputs = PositionedInput(InputSchema(2), ModelInput.from_tensors(table), np.arange(6)[::-1].copy(), torch.device("cpu"))
    batch, other = np.array([0, 2]), np.array([1])
    inputs.fetch(batch)
    assert torch.equal(inputs.take(other).numeric, table[[4]])
    inputs.fetch(batch)
    first, second = inputs.take(batch), inputs.take(batch)
    assert torch.equal(first.numeric, table[[5, 3]])
    assert torch.equal(second.numeric, table[[5, 3]])
    assert first.numeric.data_ptr() != second.numeric.data_ptr()
