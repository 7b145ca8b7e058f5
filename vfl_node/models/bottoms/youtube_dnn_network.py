"""The network of the bottom ``youtube_dnn``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import mean_tables


class YoutubeDnnBottom(nn.Module):
    """One party's lists and other columns → its embedding at the cut layer.

    Every column of lists has an embedding table. The mean of the embeddings of a row's items, an item counting as often as it
    occurs, goes into the dense layers beside the numeric columns; of an empty list it is 0.

    Args:
        lists: number of codes and length of each column of lists.
        embedding_size: width of an embedded item.
        dense: reads the party's numeric columns, followed by the means, and its categories.
    """

    def __init__(self, lists: Sequence[tuple[int, int]], embedding_size: int, dense: nn.Module) -> None:
        super().__init__()
        self.lengths = [length for _, length in lists]
        self.items = mean_tables([codes for codes, _ in lists], embedding_size)
        self.dense = dense

    def forward(self, inputs: ModelInput) -> Tensor:
        """Embedding float32[B, d] of the B rows."""
        assert inputs.bags is not None
        ends = itertools.accumulate(self.lengths)
        bags = (inputs.bags[:, end - length : end] for length, end in zip(self.lengths, ends, strict=True))
        means = [table(bag) for table, bag in zip(self.items, bags, strict=True)]  # l × (B, embedding_size)
        embedding: Tensor = self.dense(replace(inputs, numeric=torch.cat([inputs.numeric, *means], dim=1), bags=None))
        return embedding
