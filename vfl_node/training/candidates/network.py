"""Both halves of the network.

::

    passive   a record's columns ─ bottom, linear cut ─► c_j [U, d] ─────┐ the cut: this crosses the wire, once a record
    active    a row's columns ─ bottom, linear cut ─► a_i [B, d'] ───────┴─ local network ─► o_ij [B, K, l] ─ method ─► logits
              similarities ─ scale ─► s_ij [B, K] ─ weight gate ─► w_ij [B, K] ──────────────────────────────────┘

Source: FedSim (arXiv 2106.06312), section 4.4. Deviations: a row's own columns go through their bottom once, not once for each
candidate, which gives the same numbers. The code puts a sigmoid on every o_ij where there are two classes or a number, and
scales targets to 0 … 1. Here o_ij are linear, and what leaves is a logit, or a number in standard deviations, for the losses of
every other network: so methods are compared with the active party's own model alike, and a target outside of the range of those
trained on can be predicted. The code has dropout in the merge by convolution alone. Here, as in every other network, each
hidden layer has it: also those of both bottoms, of the local network and of the active party's own model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import hidden_layers, linear
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import LayerOptions
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.gates import ConvolutionMerge, SimilarityScale, WeightedMean, WeightGate, sort_gate


class LinearCut(nn.Module):
    """One party's columns → its embedding, whose last layer is linear.

    Args:
        schema: of the party's columns.
        sizes: layer widths; the last is the cut layer.
        train: the job's section.
    """

    def __init__(self, schema: InputSchema, sizes: Sequence[int], train: Linked) -> None:
        super().__init__()
        read = schema.numeric + train.embedding_size * len(schema.cardinalities)
        options = LayerOptions.from_job(train)
        self.hidden = MlpBottom(schema, sizes[:-1], embedding_size=train.embedding_size, options=options)
        self.cut = linear(sizes[-2] if len(sizes) > 1 else read, sizes[-1])

    def forward(self, inputs: ModelInput) -> Tensor:
        """Embedding float32[B, d] of the B rows."""
        return self.cut(self.hidden(inputs))


class ActiveNetwork(nn.Module):
    """The active party's half: own columns, embeddings of candidates and their similarities → logits.

    Args:
        train: the job's section.
        schema: of the party's columns; it may be empty.
        similarities: float32[n, K] of the rows trained on.

    Attributes:
        gate: gives the weights of candidates; None for a method without.
    """

    def __init__(self, train: Linked, schema: InputSchema, similarities: NDArray[np.float32]) -> None:
        super().__init__()
        self._method, self._outputs = train.how, train.outputs
        self.scale = SimilarityScale(similarities)
        read = replace(schema, numeric=schema.numeric + 1) if self._method.each else schema
        self.bottom = None if read.empty else LinearCut(read, train.active_bottom, train)
        options = LayerOptions.from_job(train)
        sorts = self._method.gates and train.sorts
        width = train.pair_outputs if sorts else train.outputs
        cuts = train.bottom[-1] + (train.active_bottom[-1] if self.bottom else 0)
        self.local = hidden_layers(cuts, train.top, options)
        self.pair = linear(train.top[-1] if train.top else cuts, width)
        self.gate = WeightGate(train.similarity_hidden) if self._method.gates else None
        self.merge: nn.Module | None = WeightedMean() if self.gate else None
        if sorts:
            self.merge = ConvolutionMerge(
                similarities.shape[1],
                width,
                channels=train.channels,
                kernel=train.kernel,
                sizes=train.merge_hidden,
                outputs=train.outputs,
                options=options,
            )
        self._sorts = sorts

    def forward(self, own: ModelInput, received: Tensor, index: Tensor, similarities: Tensor) -> Tensor:
        """Logits.

        Args:
            own: B rows.
            received: float32[U, d], embeddings of distinct candidates.
            index: int64[B, K], row of ``received`` for each candidate.
            similarities: float32[B, K], as the alignment gave them.

        Returns:
            float32[B], or float32[B, C] of several classes; where each pair is a sample float32[B, K], or float32[B, K, C].
        """
        if self._sorts:
            similarities, index = sort_gate(similarities, index)
        if self._method.nearest:
            index = index.gather(1, find_nearest(similarities))
        scaled = self.scale(similarities)  # (B, K)
        pairs = self._pairs(own, embedding(index, received), scaled)  # (B, K, l)
        if self.merge is not None and self.gate is not None:
            logits = self.merge(pairs, self.gate(scaled))  # (B, C)
        else:
            logits = pairs if self._method.each else pairs.mean(dim=1)
        return logits.squeeze(-1) if self._outputs == 1 else logits

    def _pairs(self, own: ModelInput, candidates: Tensor, scaled: Tensor) -> Tensor:
        """o, float32[B, K, l], of each row beside each of its candidates, float32[B, K, d]."""
        rows, count, _ = candidates.shape
        if self.bottom is not None and self._method.each:
            every = own.take(torch.arange(rows, device=candidates.device).repeat_interleave(count))
            wider = replace(every, numeric=torch.cat([every.numeric, scaled.reshape(-1, 1)], dim=1))
            candidates = torch.cat([self.bottom(wider).view(rows, count, -1), candidates], dim=2)
        elif self.bottom is not None:
            candidates = torch.cat([self.bottom(own).unsqueeze(1).expand(-1, count, -1), candidates], dim=2)
        return self.pair(self.local(candidates.flatten(0, 1))).view(rows, count, -1)


def find_nearest(similarities: Tensor) -> Tensor:
    """Place of the largest similarity of each row, int64[B, 1], among its candidates; the first place of a row without any."""
    present = torch.where(similarities == 0, torch.full_like(similarities, -torch.inf), similarities)
    return present.argmax(dim=1, keepdim=True)
