"""``mpd``: both bottoms learn which embeddings are of the same row; the labels stay unused.

For a batch of B aligned rows the active party has 2B pairs or more: its row i with the passive party's i, matched; with that of
another row of the batch; and rows outside of the alignment with a row of the batch, all of these unmatched. A head of its own
judges them, matched ones counting as much as the others together.

Source: Li et al. 2022 (VFed-SSD), matched pair detection; FedAds' VFL-MPD. The pairs of rows outside are an addition: the
active party has such rows, and knows that no row of the passive party is theirs.

What the passive party learns: a gradient of each aligned row in each epoch, by which it sees how well the own row fits the
active party's columns, those of rows outside included. It depends on no label, so no defence of labels changes it.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from typing_extensions import override

from vfl_node.models.initial_weights import initialise
from vfl_node.models.layers import linear
from vfl_node.process import failpoints
from vfl_node.training.unaligned.pretraining import PretrainedHalf, Pretraining, Rows
from vfl_node.training.unaligned.specs import MatchedPairs


class MatchedPairsPretraining(Pretraining):
    """At the active party the head learns with its bottom; the passive party's bottom learns by the gradient."""

    def __init__(self, method: MatchedPairs, half: PretrainedHalf) -> None:
        own, theirs = half.widths
        self._head = nn.Sequential(linear(own + theirs, method.hidden), nn.ReLU(), linear(method.hidden, 1))
        initialise(self._head, half.randomness.derive("head"))
        both = nn.ModuleDict({"bottom": half.bottom, "head": self._head}).to(half.device)
        super().__init__(method, half, both if half.active else None)

    @override
    async def step(self, number: int, positions: Rows) -> None:
        failpoints.reach("pretrain")
        answer = partial(self._answer, number, positions) if self._half.active else None
        await self._half.exchange.meet(number, positions, answer)

    def _answer(self, number: int, positions: Rows, received: Tensor) -> Tensor:
        """Learn from the pairs of a batch; the gradient of the mean loss for float32[B, d]."""
        half, rows = self._half, len(positions)
        draws = half.randomness.derive(f"pairs/{number}")
        order, unlike = draws.permutation(rows), np.empty(rows, np.int64)
        unlike[order] = np.roll(order, 1)  # another row for each
        outside = half.rows - half.outside + draws.choices(half.outside, rows)
        strangers = draws.choices(rows, rows)

        self._begin()
        received = received.requires_grad_()
        own, alone = half.bottom(half.shared(positions)), half.bottom(half.own(outside))
        pairs = [(own, received), (alone, received[strangers])]
        if rows > 1:
            pairs.append((own, received[unlike]))
        logits = self._head(torch.cat([torch.cat(pair, dim=1) for pair in pairs])).squeeze(1)
        matched = torch.zeros(len(logits), device=half.device)
        matched[:rows] = 1
        weight = torch.tensor(len(pairs) - 1.0, device=half.device)
        self._learn(binary_cross_entropy_with_logits(logits, matched, pos_weight=weight))
        gradient = received.grad
        assert gradient is not None
        return gradient
