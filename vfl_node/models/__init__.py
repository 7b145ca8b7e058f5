"""The networks a job can name: a new one is one entry of :data:`MODELS`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vfl_node.models.networks import Bottom, Classifier, Top, initialise


@dataclass(frozen=True)
class Architecture:
    """How the halves of one kind of split network are built.

    Attributes:
        wide: each embedding carries one more, linear coordinate for each logit, added to it.
    """

    wide: bool

    def bottom(
        self, *, numeric: int, cardinalities: Sequence[int], embedding_size: int, sizes: Sequence[int], outputs: int = 1
    ) -> Bottom:
        """One party's half up to the cut layer, without initial weights; ``outputs``: logits a row."""
        wide = outputs if self.wide else 0
        return Bottom(numeric=numeric, cardinalities=cardinalities, embedding_size=embedding_size, sizes=sizes, wide=wide)

    def top(self, *, widths: Sequence[int], sizes: Sequence[int], outputs: int = 1) -> Top:
        """The label holder's half from the cut layer on, without initial weights."""
        return Top(widths=widths, sizes=sizes, wide=self.wide, outputs=outputs)

    def cut_width(self, sizes: Sequence[int], outputs: int = 1) -> int:
        """Width of the embedding of a bottom with layers ``sizes``."""
        return sizes[-1] + (outputs if self.wide else 0)


MODELS = {
    "mlp": Architecture(wide=False),
    "wide_deep": Architecture(wide=True),
}
"""Name in the job → architecture."""

__all__ = ["MODELS", "Architecture", "Bottom", "Classifier", "Top", "initialise"]
