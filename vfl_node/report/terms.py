"""Words of a page that explain themselves, beside each and in a list at the end; docs/glossary.md has the same sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping

TERMS: Mapping[str, str] = {
    "AUC": "how often a positive row has a higher score than a negative one, over all pairs. 1 is perfect, .5 is guessing.",
    "PR AUC": "the area under the curve of precision by recall. 1 is perfect, and guessing gives the share of positives.",
    "Accuracy": "the share of rows whose class is predicted correctly.",
    "F1": "the harmonic mean of precision and recall. It is high only if both are high. 1 is perfect.",
    "KS": "the largest difference between the shares of the two classes below the same score. 1 is perfect, 0 is guessing.",
    "Lift": "the share of positives in the tenth of rows with the highest scores, divided by that in all rows. 1 is guessing.",
    "ACE": "the mean difference between predicted and observed frequency, over equally large groups of rows. 0 is perfect.",
    "NLL": "the mean of −log p, with p predicted for the true class. Confident mistakes cost most. 0 is perfect.",
    "RMSE": "the root of the mean squared error. Large errors count most. 0 is perfect.",
    "MAE": "the mean absolute error of predicted numbers. 0 is perfect.",
    "MSE": "the mean squared error. 0 is perfect.",
    "Deviance": "how far predicted counts are from the true ones. 0 is perfect.",
    "D²": "the share of the deviance that is explained. 1 is perfect.",
    "R²": "the share of the target's variance that is explained. 1 is perfect, 0 is as good as always predicting the mean.",
    "95 % interval": "the range that contains the true value with 95 % confidence, computed from the measured rows or seeds.",
    "Model alone": "a model of the same kind that the active party trains on its own columns only.",
    "Boosted tree": "a strong model for tables. The active party trains it on its own columns only, for comparison.",
}
"""Term → its explanation, which goes on with a small letter."""


def anchor(term: str) -> str:
    """The id of ``term`` in the list at the end of a page."""
    return f"word-{re.sub('[^a-z0-9]+', '-', term.lower().replace('²', '2'))}"
