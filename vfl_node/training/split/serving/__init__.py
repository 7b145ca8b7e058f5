"""Predictions by the halves of a trained network, which stay where they are.

Known rows (:func:`serve`, which may run for months) are hidden in batches that all parties have agreed on. The
asker names whole batches and picks its rows from the answer::

    to: active      asker                     answers
                    Ask b₁ < b₂ < … ───────►  of each batch all B rows
                    p = σ(top(…, H))  ◄─ H ─  H = bottom(X_p)  [B, d]
    to: passive     Ask b₁ < b₂ < …, H ────►  p = σ(top(bottom(X_a), H))
                    picks its rows  ◄─── p ─

Of several passive parties each one answers the same Ask, H is all their embeddings, and the active party passes on what one of
them asks (:mod:`~vfl_node.training.split.serving.asking`).

If the active party has no columns, the only passive party does not name the rows for which it asks. It sends embeddings of any
rows of its own, in full batches: a known row together with its agreed batch, new rows mixed with synthetic ones.

All predictions are computed with the same weights, so they reveal more than a short training about which rows a party owns.
Therefore everything that is sent is counted and attacked first (:mod:`~vfl_node.training.split.serving.shown`).

New rows (:func:`predict_once`) are all rows of a new intersection, in its order.

A row that a party does not own has the same synthetic columns as in training, and known rows are predicted from the columns
of training. So the same batch gives the same bytes whenever it is asked for. Otherwise a row that changed while the others
did not would be recognised as the one that was asked for.

Source: Song et al. 2021 (FLORIST), Appendix D. Deviations: batches are cut by the training's
jointly tossed seed, each filled up to the same size; rows that are not named hide as well.

What each party learns: :func:`learnt`.
"""

from __future__ import annotations

from vfl_node.training.split.serving.disclosures import learnt
from vfl_node.training.split.serving.new_records import predict_once
from vfl_node.training.split.serving.predictor import SplitPredictor
from vfl_node.training.split.serving.served_model import ServedModel, column_kinds
from vfl_node.training.split.serving.service import serve
from vfl_node.training.split.serving.sides import Embedder, Scorer

__all__ = [
    "Embedder",
    "Scorer",
    "ServedModel",
    "SplitPredictor",
    "column_kinds",
    "learnt",
    "predict_once",
    "serve",
]
