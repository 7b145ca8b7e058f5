"""Predictions by the halves of a split network, which stay where they are.

They are asked by :mod:`vfl_node.training.prediction`::

    embedding(X_p) = bottom(X_p)  [B, d]        p = σ(top(bottom(X_a), H))

If the active party has no columns, the only passive party does not name the rows for which it asks. It sends embeddings of any
rows of its own, in full batches: a known row together with its agreed batch, new rows mixed with synthetic ones.

All predictions are computed with the same weights, so they reveal more than a short training about which rows a party owns.

A row that a party does not own has the same synthetic columns as in training, and known rows are predicted from the columns
of training. So the same batch gives the same bytes whenever it is asked for. Otherwise a row that changed while the others
did not would be recognised as the one that was asked for.

Source: Song et al. 2021 (FLORIST), Appendix D.

What each party learns: :func:`learnt`.
"""

from __future__ import annotations

from vfl_node.training.split.prediction.model import SplitModel, column_kinds
from vfl_node.training.split.prediction.predictor import SplitPredictor, learnt
from vfl_node.training.split.prediction.sides import Embedder, Scorer

__all__ = [
    "Embedder",
    "Scorer",
    "SplitModel",
    "SplitPredictor",
    "column_kinds",
    "learnt",
]
