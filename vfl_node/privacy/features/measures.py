"""How well columns were rebuilt, each beside what a constant answer gives.

===========  =======================  ========================================  ==============================
kind         success                  beside it                                 the constant
===========  =======================  ========================================  ==============================
categories   accuracy                 error                                     the commonest category
flag         AUC                      error, recall, F1, accuracy               the commoner value; of AUC ½
number       R²                       MSE, in squared standard deviations       the mean; of R² 0
===========  =======================  ========================================  ==============================

Of a rare flag no figure is enough by itself: to answer 1 always has recall 1, and to answer 0 always has a small error. The
constant is the best one for the very rows that are measured, so chance alone hardly beats it.

Source: arXiv 2104.14383, section 5.1, "Privacy metrics", with error rates and MSE; AUC and R² are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.privacy.features.targets import Kind, Target, Targets

Floats = NDArray[np.float64]

FIGURES: Mapping[Kind, tuple[str, ...]] = {
    "categories": ("accuracy", "error"),
    "flag": ("auc", "error", "recall", "f1", "accuracy"),
    "number": ("r2", "mse"),
}
"""Kind of a column → its metrics; the first is its success."""


@dataclass(frozen=True)
class Score:
    """How well one column was rebuilt.

    Attributes:
        metric: which of ``figures`` is the success.
        figures: metric → value; None where it is not defined: no row, one value only, or answers that
            are no finite numbers, as of embeddings that are too large to compute with.
        constants: metric → what the best constant answer gives on the same rows; likewise.
        rows: number of rows measured.
    """

    metric: str
    figures: Mapping[str, float | None]
    constants: Mapping[str, float | None]
    rows: int

    @property
    def success(self) -> float | None:
        """Accuracy, AUC or R²."""
        return self.figures[self.metric]

    @property
    def constant(self) -> float | None:
        """What a constant answer gives."""
        return self.constants[self.metric]

    @property
    def gain(self) -> float | None:
        """How much better than a constant; None where one of the two is not defined."""
        return None if self.success is None or self.constant is None else self.success - self.constant


def measure(targets: Targets, outputs: Tensor, at: Tensor) -> dict[str, Score]:
    """Column → how well ``outputs`` rebuild it.

    Args:
        targets: the columns and their truth.
        outputs: float32[n, targets.width], as a decoder gives them: logits, and numbers in standard deviations.
        at: int64[n], shared positions of the rows; those of which a column's value is not known are left out of its score.

    Cost: a sort of n numbers a flag; all flags are sorted together.
    """
    scores: dict[str, Score] = {}
    start, values = 0, outputs.detach().cpu().double().numpy()
    flags = [column for column in targets.columns if column.kind == "flag"]
    for column in targets.columns:
        part, start = values[:, start : start + column.width], start + column.width
        if column.kind == "categories":
            scores[column.name] = _categories(*_select_known(column, part, at))
        elif column.kind == "number":
            scores[column.name] = _number(*_select_known(column, part, at))
    if flags:
        first = sum(column.width for column in targets.columns if column.kind == "categories")
        scores |= _flags(flags, values[:, first : first + len(flags)], at)
    usable = np.isfinite(values).all(axis=0)
    ends = np.cumsum([column.width for column in targets.columns])
    for column, rows in zip(targets.columns, np.split(usable, ends[:-1]), strict=True):
        if not rows.all():
            scores[column.name] = _undefined_score(column.kind, scores[column.name].rows)
    return {column.name: scores[column.name] for column in targets.columns}


def _select_known(column: Target, outputs: Floats, at: Tensor) -> tuple[NDArray[np.generic], Floats]:
    """Truth and outputs of the rows whose value is known."""
    known = column.known[at].cpu().numpy()
    return column.truth[at].cpu().numpy()[known], outputs[known]


def _categories(truth: NDArray[np.generic], logits: Floats) -> Score:
    if not len(truth):
        return _undefined_score("categories", 0)
    right = float((logits.argmax(axis=1) == truth).mean())
    commonest = float(np.bincount(truth.astype(np.int64)).max() / len(truth))
    figures = {"accuracy": right, "error": 1 - right}
    return Score("accuracy", figures, {"accuracy": commonest, "error": 1 - commonest}, len(truth))


def _number(truth: NDArray[np.generic], outputs: Floats) -> Score:
    numbers = truth.astype(np.float64)
    spread = float(numbers.var()) if len(numbers) else 0.0
    if not spread:
        return _undefined_score("number", len(numbers))
    error = float(np.square(outputs[:, 0] - numbers).mean())
    return Score("r2", {"r2": 1 - error / spread, "mse": error}, {"r2": 0.0, "mse": spread}, len(numbers))


def _flags(columns: Sequence[Target], logits: Floats, at: Tensor) -> dict[str, Score]:
    truth = np.stack([column.truth[at].cpu().numpy() > 0 for column in columns], axis=1)
    known = np.stack([column.known[at].cpu().numpy() for column in columns], axis=1)
    said = (logits > 0) & known
    rows, ones = known.sum(axis=0), (truth & known).sum(axis=0)
    told, found = said.sum(axis=0), (said & truth).sum(axis=0)
    right = ((said == truth) & known).sum(axis=0)
    areas = _areas(truth & known, known, logits)
    scores = {}
    for place, column in enumerate(columns):
        n, p = int(rows[place]), int(ones[place])
        if not n:
            scores[column.name] = _undefined_score("flag", 0)
            continue
        figures = _decisions(n, p, int(told[place]), int(found[place]), int(right[place]))
        commoner = _decisions(n, p, n, p, p) if 2 * p > n else _decisions(n, p, 0, 0, n - p)
        area = float(areas[place]) if 0 < p < n else None
        constants = {"auc": None if area is None else 0.5, **commoner}
        scores[column.name] = Score("auc", {"auc": area, **figures}, constants, n)
    return scores


def _decisions(rows: int, ones: int, told: int, found: int, right: int) -> dict[str, float | None]:
    """Score of a flag: ``told`` of the rows are said to be 1, ``found`` of them are, and ``right`` answers are right."""
    return {
        "error": 1 - right / rows,
        "recall": found / ones if ones else None,
        "f1": 2 * found / (told + ones) if ones else None,
        "accuracy": right / rows,
    }


def _areas(ones: NDArray[np.bool_], known: NDArray[np.bool_], scores: Floats) -> Floats:
    """AUC of each column of [n, c]; ties count ½. It means nothing where a column has one value only."""
    n, c = scores.shape
    scores = np.where(known, scores, -np.inf)  # below all others, so their ranks move all of those alike
    order = np.argsort(scores, axis=0, kind="stable")
    ordered = np.take_along_axis(scores, order, axis=0)
    new = np.ones((n, c), dtype=bool)
    new[1:] = ordered[1:] != ordered[:-1]
    groups = np.cumsum(new.T.ravel()) - 1  # ties within a column are a group; columns one after the other
    means = np.bincount(groups, np.tile(np.arange(1, n + 1), c)) / np.bincount(groups)
    ranks = means[groups].reshape(c, n).T
    positive = np.take_along_axis(ones, order, axis=0)
    ones_count, rows = ones.sum(axis=0), known.sum(axis=0)
    above = (ranks * positive).sum(axis=0) - ones_count * (n - rows) - ones_count * (ones_count + 1) / 2
    return above / np.maximum(ones_count * (rows - ones_count), 1)


def _undefined_score(kind: Kind, rows: int) -> Score:
    names = FIGURES[kind]
    return Score(names[0], dict.fromkeys(names), dict.fromkeys(names), rows)
