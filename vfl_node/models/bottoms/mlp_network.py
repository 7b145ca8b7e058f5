"""The network of the bottoms ``mlp`` and ``wide_deep``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import hidden, linear, lookup_tables
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import PLAIN, LayerOptions


class MlpBottom(nn.Module):
    """One party's columns → its embedding at the cut layer.

    Every categorical column has an embedding table. Their rows and the numeric columns,
    side by side, go through hidden layers (:func:`vfl_node.models.layers.hidden`). With ``wide`` so many more coordinates are
    appended that are linear in the columns: no norm, ReLU or dropout follows.

    Args:
        schema: of the party's columns; images and sequences are not read.
        sizes: layer widths; the last is the cut layer.
        embedding_size: width of an embedded category.
        wide: number of linear coordinates to append; 0: none.
        options: of each hidden layer.
    """

    def __init__(
        self,
        schema: InputSchema,
        sizes: Sequence[int],
        *,
        embedding_size: int = 1,
        wide: int = 0,
        options: LayerOptions = PLAIN,
    ) -> None:
        super().__init__()
        self.categories = lookup_tables(schema.cardinalities, embedding_size)
        self.layers = hidden(schema.numeric + embedding_size * len(schema.cardinalities), sizes, options)
        self.wide = wide
        self.wide_numeric = linear(schema.numeric, wide, bias=False) if wide and schema.numeric else None
        self.wide_categories = lookup_tables(schema.cardinalities if wide else (), wide)

    def forward(self, inputs: ModelInput) -> Tensor:
        """Embedding float32[B, d + wide] of the B rows."""
        deep = self.layers(torch.cat([inputs.numeric, *_rows(self.categories, inputs.categorical)], dim=1))  # [B, d]
        if not self.wide:
            return deep
        wide = _rows(self.wide_categories, inputs.categorical)  # c × [B, wide]
        if self.wide_numeric is not None:
            wide.append(self.wide_numeric(inputs.numeric))
        return torch.cat([deep, torch.stack(wide).sum(dim=0)], dim=1)


def _rows(tables: nn.ModuleList, categorical: Tensor) -> list[Tensor]:
    """c × [B, width]."""
    return [table(categorical[:, column]) for column, table in enumerate(tables)]
