"""An attacker outside of the product: what a passive party makes of all that it has, with scikit-learn.

It has its own columns, which the product's meter does not, every gradient and every embedding, and labels of some rows or none.
Nothing here is shared with the product's attacks but the idea: trees, logistic regression and clusters of scikit-learn, and
figures by its metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import kendalltau, rankdata
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

KNOWN = 16
"""Rows of each class, or of numbers, that are known."""

DRAWS = 10
"""Choices of these."""


@dataclass(frozen=True)
class Taken:
    """What one training gave the attacker.

    Attributes:
        rows: int64[k], records of its table, ascending.
        gradients: float64[epochs, k, d], of each row's own loss.
        embeddings: float64[epochs, k, d].
        steps: int64[epochs, k], which step of its epoch a row was in.
    """

    rows: Rows
    gradients: Floats
    embeddings: Floats
    steps: Rows


def figure(labels: Floats, score: Floats, classes: int) -> float:
    """.5 at chance and 1 if all is told: AUC, folded; the best mean of one class against the others; pairs in order, folded."""
    if classes == 2:
        value = float(roc_auc_score(labels, score))
    elif classes == 0:
        value = (1 + float(kendalltau(labels, score).statistic)) / 2
    else:
        areas = np.array([[roc_auc_score(labels == class_, column) for class_ in range(classes)] for column in score.T])
        return float(areas[linear_sum_assignment(-areas)].mean())
    return max(value, 1 - value)


def blind(taken: Taken, columns: Floats, classes: int) -> dict[str, Floats]:
    """Attack → its score of each row, of an attacker that knows no label."""
    means, last = taken.gradients.mean(axis=0), taken.embeddings[-1]
    if classes > 2:
        directions = _unit(means)
        return {
            "first epoch": _nearness(_unit(taken.gradients[0]), classes),
            "directions": _nearness(directions, classes),
            "embeddings": _nearness(_standard(last), classes),
            "both": _nearness(np.hstack([_standard(directions), _standard(last)]), classes),
        }
    along, steady = means @ _leading(means), _steady(taken)
    by_embeddings = _standard(last) @ _leading(_standard(last)) if classes == 0 else _two_means(last)
    found = {"direction": along, "steady": steady, "embeddings": by_embeddings}
    found |= {"direction and embeddings": _z(along) + _align(along, by_embeddings)}
    found |= {"steady and embeddings": _z(steady) + _align(steady, by_embeddings)}
    if classes == 2:
        for name in ("direction and embeddings", "steady and embeddings"):
            found[f"guesses by {name}"] = _learn_guesses(found[name], columns, taken)
    return found


def informed(taken: Taken, columns: Floats, labels: Floats, classes: int, seed: int) -> float:
    """The best figure of an attacker that knows some rows, the mean over choices of them: by several views, and ``blind``."""
    means, last, rng = taken.gradients.mean(axis=0), taken.embeddings[-1], np.random.default_rng(seed)
    paths = np.stack([gradients @ _leading(means) for gradients in taken.gradients], axis=1)
    blinds = blind(taken, columns, classes)
    views = {
        "embeddings": last,
        "gradients and embeddings": np.hstack([means, last]),
        "paths and embeddings": np.hstack([paths, last]),
        "all": np.hstack([means, paths, last, columns]),
        "directions and embeddings": np.hstack([_unit(means), last]),
    }
    if classes <= 2:
        views["scores"] = np.stack([_z(scores) for scores in blinds.values()], axis=1)
    found: dict[str, list[float]] = {}
    for _ in range(DRAWS):
        groups = [np.flatnonzero(labels == class_) for class_ in range(classes)] or [np.arange(len(labels))]
        known = np.concatenate([rng.permutation(group)[:KNOWN] for group in groups])
        rest = np.setdiff1d(np.arange(len(labels)), known)
        for name, view in views.items():
            wide = StandardScaler().fit_transform(view)
            if classes == 0:
                said = Ridge(10.0).fit(wide[known], labels[known]).predict(wide)
            else:
                said = LogisticRegression(C=0.1, max_iter=500).fit(wide[known], labels[known]).decision_function(wide)
            found.setdefault(name, []).append(figure(labels[rest], said[rest], classes))
            if classes == 2:
                both = _z(said) + _align(said, blinds["direction and embeddings"])
                found.setdefault(f"{name}, joined", []).append(figure(labels[rest], both[rest], classes))
    return max(float(np.mean(values)) for values in found.values())


def score_together(trainings: Sequence[Mapping[str, Floats]], rows: Sequence[Rows], labels: Floats, classes: int) -> float:
    """The best figure of one attack's scores, added up over trainings with the sign, or the groups, that fit."""
    best = 0.0
    for name in trainings[0]:
        width = classes if classes > 2 else 1
        sums, counts = np.zeros((len(labels), width)), np.zeros(len(labels))
        for training, places in zip(trainings, rows, strict=True):
            score = np.stack([_z(column) for column in training[name].reshape(len(places), width).T], axis=1)
            likeness = sums[places].T @ score
            signed = -score if likeness[0, 0] < 0 else score
            score = signed if width == 1 else score[:, linear_sum_assignment(-likeness)[1]]
            sums[places] += score
            counts[places] += 1
        met = counts > 0
        joined = sums[met] / np.sqrt(counts[met])[:, None]
        best = max(best, figure(labels[met], joined if width > 1 else joined[:, 0], classes))
    return best


def _learn_guesses(score: Floats, columns: Floats, taken: Taken) -> Floats:
    """Trees over own columns and embeddings, learnt from guesses, beside the score itself."""
    score = score if (_z(score) ** 3).mean() >= 0 else -score
    likely = (_z(score) > 1).astype(int)
    view, said = np.hstack([columns, taken.embeddings[0], taken.embeddings[-1]]), np.zeros(len(score))
    for others, fold in KFold(3, shuffle=True, random_state=0).split(view):
        if 0 < likely[others].sum() < len(others):
            trees = HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=15).fit(view[others], likely[others])
            said[fold] = trees.decision_function(view[fold])
    return _z(said) + _align(said, score) if said.std() else score


def _steady(taken: Taken) -> Floats:
    """Projections on each epoch's leading direction, in units of the step; the first epochs count most."""
    total, before = np.zeros(len(taken.rows)), None
    for number, (gradients, steps) in enumerate(zip(taken.gradients, taken.steps, strict=True)):
        even = gradients.copy()
        for step in np.unique(steps):
            rows = steps == step
            even[rows] /= np.median(np.linalg.norm(even[rows], axis=1)) + 1e-30
        along = _leading(even)
        along = -along if before is not None and along @ before < 0 else along
        before, reach = along, even @ along
        for step in np.unique(steps):
            rows = steps == step
            centred = reach[rows] - np.median(reach[rows])
            reach[rows] = centred / (np.median(np.abs(centred)) + 1e-30)
        total += np.exp(-number / 3) * reach
    return total


def _two_means(rows: Floats) -> Floats:
    near = KMeans(2, n_init=5, random_state=0).fit(rows).transform(rows)
    return np.asarray(near[:, 0] - near[:, 1])


def _nearness(rows: Floats, groups: int) -> Floats:
    return -np.asarray(KMeans(groups, n_init=10, random_state=0).fit(rows).transform(rows))


def _leading(rows: Floats) -> Floats:
    return np.asarray(np.linalg.svd(rows, full_matrices=False)[2][0])


def _unit(rows: Floats) -> Floats:
    return np.asarray(rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-30))


def _standard(rows: Floats) -> Floats:
    return np.asarray(StandardScaler().fit_transform(rows))


def _z(score: Floats) -> Floats:
    return np.asarray((score - score.mean()) / (score.std() + 1e-30))


def _align(score: Floats, other: Floats) -> Floats:
    """``other`` standardised, with the sign with which it goes along with ``score``."""
    like = np.corrcoef(rankdata(score), rankdata(other))[0, 1] if other.std() and score.std() else 0.0
    return -_z(other) if like < 0 else _z(other)
