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

from vfl_node.models.architecture import Architecture
from vfl_node.models.inputs import ModelInput
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import NetworkSettings


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
        """Let the first probabilities of two classes be about ``rate``, which is above 0 and below 1."""
        self.top.start_at(rate)  # type: ignore[operator]

    def forward(self, inputs: ModelInput, received: Sequence[Tensor] = ()) -> Tensor:
        """Logits float32[B], or float32[B, K] of several, of own columns and the embeddings ``received``."""
        own = [] if self.bottom is None else [self.bottom(inputs)]
        embeddings = [*own, *received]
        if self.wide:
            deep = [embedding[:, : -self.wide] for embedding in embeddings]
            wide = torch.stack([embedding[:, -self.wide :] for embedding in embeddings]).sum(dim=0)
            logits = self.top(self.fusion(deep)) + wide
        else:
            logits = self.top(self.fusion(embeddings))
        return logits.squeeze(1) if logits.shape[1] == 1 else logits


def classifier(
    architecture: Architecture, settings: NetworkSettings, schema: InputSchema, received: Sequence[int]
) -> Classifier:
    """The label holder's half, without initial weights.

    Args:
        architecture: that the job names.
        settings: the job's section.
        schema: of the label holder's own columns; it may be empty.
        received: width of each embedding that other parties send; none for the local-only model.
    """
    wide = architecture.wide(settings.outputs)
    bottom, own = None, []
    if not schema.empty:
        bottom = architecture.bottom(schema, settings.active_bottom, settings)
        own = [architecture.cut_width(settings.active_bottom, settings.outputs)]
    widths = [width - wide for width in (*own, *received)]
    return Classifier(bottom, architecture.fusion(widths, settings), architecture.top(widths, settings), wide=wide)
