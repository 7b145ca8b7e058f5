"""Representations of two parts and, by attention, estimates of those that are missing.

::

    h_L ─┬─ head ─► u_L  unique      h_N = [u_N | c_N], as the passive party sends it
         └─ head ─► c_L  common

    ũ_N(i) = Σ_j softmax_j(u_L(i)·u_L(j) / (√w·T)) · u_N(j)         over aligned rows j
    c̃_N(i) = Σ_j softmax_j(c_L(i)·c_N(j) / (√w·T)) · c_N(j)
    h̃_N(i) = [ũ_N(i) | c̃_N(i)]

    beside the joint loss of a batch of aligned rows:
        CE of [u_L | c_L] alone + CE of [u_N | c_N] alone + common·mean(c_L − c_N)²
        + orthogonal·(‖U_L·C_Lᵀ‖ + ‖U_N·C_Nᵀ‖) / B + estimate·mean(h̃_N − h_N)²,  row i out of its own estimate

All of it is computed at the active party, which has the labels. The literature's version sends the active party's
representations to the passive one, which computes its own part of the losses; here their gradient goes to it, with that of the
joint loss, and no representation does. Where it must not know which rows are shared, it gets the joint loss's gradient alone.
The last loss teaches the active party's side alone. The passive party's rows outside stay unused: FedAds has none.

Source: Kang et al. 2022, FedCVT: Semi-supervised Vertical Federated Learning with Cross-view Training, section 4.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from vfl_node.models.layers import linear
from vfl_node.training.unaligned.specs import FedCvt


class Estimator(nn.Module):
    """The heads above the own bottom, the classifiers of one party's view each, and what is computed with them.

    Args:
        settings: of the job.
        own: d', of h_L.
        received: d, of h_N; even.
        outputs: logits a row.
    """

    def __init__(self, settings: FedCvt, own: int, received: int, outputs: int) -> None:
        super().__init__()
        part = received // 2
        self._settings, self._scale = settings, settings.temperature * part**0.5
        self.unique, self.common = linear(own, part), linear(own, part)
        self.own_view, self.received_view = linear(2 * part, outputs), linear(2 * part, outputs)

    def estimates(self, own: Tensor, keys: Tensor, received: Tensor, never: Tensor | None = None) -> Tensor:
        """h̃_N of rows, float32[B, d]. No gradient flows into ``keys`` and ``received``.

        Args:
            own: h_L of the rows, float32[B, d'].
            keys: h_L of c aligned rows, float32[c, d'].
            received: h_N of these, float32[c, d].
            never: bool[B, c], which of them a row must not use.
        """
        keys, (unique, common) = keys.detach(), received.detach().chunk(2, dim=1)
        with torch.no_grad():
            of_keys = self.unique(keys)
        return torch.cat(
            [
                self._attend(self.unique(own), of_keys, unique, never),
                self._attend(self.common(own), common, common, never),
            ],
            dim=1,
        )

    def losses_beside(
        self,
        own: Tensor,
        received: Tensor,
        targets: Tensor,
        rows: Tensor,
        candidates: Tensor,
        losses: Callable[[Tensor, Tensor], Tensor],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What is learnt from a batch of aligned rows beside the joint loss; and each part of it.

        Args:
            own: h_L, float32[B, d'].
            received: h_N, float32[B, d].
            targets: float32[B], or [B, K].
            rows: int64[B], equal where the batch has a row several times.
            candidates: int64[c], places in the batch from which estimates are made.
            losses: logits and targets → the loss of each row.
        """
        unique, common = self.unique(own), self.common(own)
        theirs, shared = received.chunk(2, dim=1)
        views = [
            losses(_logits(view(torch.cat(parts, dim=1))), targets).mean()
            for view, parts in ((self.own_view, (unique, common)), (self.received_view, (theirs, shared)))
        ]
        parts = {
            "own_view": views[0],
            "received_view": views[1],
            "common": self._settings.common * (common - shared).square().mean(),
            "orthogonal": self._settings.orthogonal * (overlap(unique, common) + overlap(theirs, shared)) / len(own),
        }
        if len(own) > 1:
            never = rows[candidates][None, :] == rows[:, None]
            never &= ~never.all(dim=1, keepdim=True)
            made = self.estimates(own, own[candidates], received[candidates], never)
            parts["estimate"] = self._settings.estimate * (made - received.detach()).square().mean()
        return torch.stack(list(parts.values())).sum(), {name: part.detach() for name, part in parts.items()}

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, never: Tensor | None) -> Tensor:
        scores = queries @ keys.T / self._scale  # (B, c)
        if never is not None:
            scores = scores.masked_fill(never, -torch.inf)
        return scores.softmax(dim=1) @ values


def overlap(unique: Tensor, common: Tensor) -> Tensor:
    """‖U·Cᵀ‖ (Frobenius) of float32[B, w] each, without the B×B matrix: the root of Σ (UᵀU ⊙ CᵀC)."""
    return ((unique.T @ unique) * (common.T @ common)).sum().clamp_min(1e-12).sqrt()


def _logits(column: Tensor) -> Tensor:
    return column.squeeze(1) if column.shape[1] == 1 else column
