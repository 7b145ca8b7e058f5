"""The label holder's half of a split network: its own bottom, if it has columns, the fusion and the top.

::

    passive   columns ─ bottom ─► embedding [B, d] ──────────┐ the cut: this crosses the wire
    active    columns ─ bottom ─► embedding [B, d'] ─────────┴─ fusion ─ top ─► logits [B], or [B, K]

Source: Song et al. 2021 (FLORIST), Table 4 and section 4.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vfl_node.errors import UsageError
from vfl_node.models.inputs import ModelInput


class Classifier(nn.Module):
    """Own columns and the other parties' embeddings → logits. Without other embeddings it is the local-only model.

    Args:
        bottom: None at a party without columns.
        fusion: joins the embeddings, but for their wide coordinates.
        top: reads what the fusion gives.
        wide: number of coordinates at the end of each embedding that are added to the logits as they are: 0, or one
            for each logit.
    """

    def __init__(self, bottom: nn.Module | None, fusion: nn.Module, top: nn.Module, *, wide: int = 0) -> None:
        super().__init__()
        self.bottom = bottom
        self.fusion = fusion
        self.top = top
        self.wide = wide

    def start_at(self, rate: float) -> None:
        """Let the first probabilities of two classes be about ``rate``, which is above 0 and below 1.

        Raises:
            UsageError: the top cannot (``E_EXTENSION``).
        """
        if not callable(start_at := getattr(self.top, "start_at", None)):
            raise UsageError(
                f"the top {type(self.top).__name__} has no method start_at(rate), which missing.calibration: train needs",
                code="E_EXTENSION",
                hint="write it, or choose another calibration",
                for_peer="its model cannot be trained with missing.calibration: train",
            )
        start_at(rate)

    def forward(self, inputs: ModelInput, received: Sequence[Tensor] = ()) -> Tensor:
        """Logits float32[B], or float32[B, K] of several, of own columns and the embeddings ``received``."""
        own = [] if self.bottom is None else [self.bottom(inputs)]
        return self.head_logits([*own, *received])

    def head_logits(self, embeddings: Sequence[Tensor]) -> Tensor:
        """Logits, as :meth:`forward`, of embeddings float32[B, d] each: the own one, if there is one, before the others."""
        if self.wide:
            deep = [embedding[:, : -self.wide] for embedding in embeddings]
            wide = torch.stack([embedding[:, -self.wide :] for embedding in embeddings]).sum(dim=0)
            logits = self.top(self.fusion(deep)) + wide
        else:
            logits = self.top(self.fusion(embeddings))
        return logits.squeeze(1) if logits.shape[1] == 1 else logits
