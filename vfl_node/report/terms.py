"""Words of a page that explain themselves, beside each and in a list at the end; docs/glossary.md has the same sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping

TERMS: Mapping[str, str] = {
    "AUC": "how often scores put a positive before a negative, of all pairs of one of each. 1 is perfect, .5 is a coin.",
    "PR AUC": "the mean precision over all thresholds. 1 is perfect; the share of positives is what a coin gets.",
    "Accuracy": "the share of rows that are put in the right class.",
    "F1": "the harmonic mean of precision and recall, so that both must be good. 1 is perfect.",
    "KS": "the largest distance between the shares of both classes below a score. 1 is perfect, 0 is a coin.",
    "Lift": "how many times more positives the highest tenth of scores has than all rows have.",
    "ACE": "how far predicted probabilities are from what happens, in groups of equal size. 0 is perfect.",
    "NLL": "how surprised a model is by the truth. Confident mistakes cost most. 0 is perfect.",
    "RMSE": "the root of the mean squared error. Large errors count most. 0 is perfect.",
    "MAE": "the mean size of an error. 0 is perfect.",
    "MSE": "the mean squared error. 0 is perfect.",
    "R²": "the share of the target's variance that is explained. 1 is perfect, 0 is as good as always saying the mean.",
    "95 % interval": "where the true value lies with 95 % confidence, as far as these rows can tell.",
    "Model alone": "a model of the same kind that the active party trains on its own columns only.",
    "Boosted tree": "a strong model for tables. The active party trains it on its own columns only, for comparison.",
}
"""Term → its explanation, which goes on with a small letter."""


def anchor(term: str) -> str:
    """The id of ``term`` in the list at the end of a page."""
    return f"word-{re.sub('[^a-z0-9]+', '-', term.lower().replace('²', '2'))}"
