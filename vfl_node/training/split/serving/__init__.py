"""Predictions by the halves of a trained network, which stay where they are.

Known rows (:func:`serve`, long-lived) hide in batches that both parties have agreed on; the
asker names whole batches and picks its rows from the answer::

    to: active      asker                     answers
                    Ask b₁ < b₂ < … ───────►  of each batch all B rows
                    p = σ(top(…, H))  ◄─ H ─  H = bottom(X_p)  [B, d]
    to: passive     Ask b₁ < b₂ < …, H ────►  p = σ(top(bottom(X_a), H))
                    picks its rows  ◄─── p ─

Where the active party has no columns, a passive asker names nothing. It sends embeddings of any
rows of its own, in full batches: known rows in the company of their agreed batch, new ones among
made-up rows.

All rows meet the same weights, so they tell more of who owns them than a short training did: what leaves is counted and
attacked first (:mod:`~vfl_node.training.split.serving.shown`).

New rows (:func:`predict_once`) are all rows of a new intersection, in its order.

A row that a party does not own has the same synthetic columns as in training, and known rows
are predicted from the columns of training, so that asking twice gives the same bytes: a row
that changed among others that do not would be the wanted one.

Source: Song et al. 2021 (FLORIST), Appendix D. Deviations: batches are cut by the training's
jointly tossed seed, each filled up to the same size; rows that are not named hide as well.

What each party learns: :func:`learnt`.
"""

from __future__ import annotations

from vfl_node.training.split.serving.disclosures import learnt
from vfl_node.training.split.serving.protocol import Predicted, Request, RequestQueue, Served, Tally, predict_once, serve
from vfl_node.training.split.serving.served_model import ServedModel, check_allowed, column_kinds
from vfl_node.training.split.serving.shown import ShownRows
from vfl_node.training.split.serving.sides import Embedder, Scorer

__all__ = [
    "Embedder",
    "Predicted",
    "Request",
    "RequestQueue",
    "Scorer",
    "Served",
    "ServedModel",
    "ShownRows",
    "Tally",
    "check_allowed",
    "column_kinds",
    "learnt",
    "predict_once",
    "serve",
]
