"""An attacker that has everything an active party has: what it heard, its own columns, the labels, and some rows of the victim.

=============  ============================================================================================================
line           from what a column of the victim is guessed
=============  ============================================================================================================
constant       nothing: the best constant answer
imputation     the attacker's own columns and the labels: no embedding. The best of three: the decoder of the attacks,
               logistic (ridge) regression, a random forest
static-epoch   what one epoch sent
static-pass    what predictions of all rows would send, by the trained weights
adaptive       what each epoch sent, by one decoder that learns from each batch as it comes
stacked        what several epochs sent of a row, side by side
joined         the attacker's own columns and labels beside what one epoch sent
=============  ============================================================================================================

The leakage of embeddings is attack − imputation. All lines know the same rows. A row that is attacked has other columns than
each known one, or it would not be a guess. Where there is something to choose (the epoch of an attack, the method of
imputation) it is chosen on one half of the attacked rows, and figures are those of the other half.

Source: arXiv 2104.14383, sections 4.1 and 5.1; imputation is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from experiments.inference.data import ACTIVE, Split
from experiments.inference.training import Heard
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import CategoricalColumn, Table, values_of
from vfl_node.privacy.features.attacks import rebuild
from vfl_node.privacy.features.measures import Score, measure
from vfl_node.privacy.features.targets import Target, Targets, targets_of

Figures = dict[str, float]
"""``success`` (accuracy, AUC or R²), and the other metrics of the kind of column, means over the attacked columns."""

STATIC, PASS, ADAPTIVE, STACKED, JOINED = "static-epoch", "static-pass", "adaptive", "stacked", "joined"
ATTACKS = (STATIC, PASS, ADAPTIVE, STACKED, JOINED)

TREES = 100
SURE = 1e-3
"""No answer of imputation is surer than that, in probability."""


@dataclass(frozen=True, eq=False)
class Poison:
    """The rows that the attacker knows of one victim, and those that it attacks.

    Attributes:
        targets: the attacked columns.
        known: int64[k], places among the rows trained on; :attr:`known_at` their shared positions.
        others: int64[n], places of the attacked rows; :attr:`others_at` their positions.
        halves: bool[n], which of them choose; the rest is reported.
    """

    targets: Targets
    training: NDArray[np.int64]
    known: NDArray[np.int64]
    others: NDArray[np.int64]
    halves: NDArray[np.bool_]

    @classmethod
    def of(cls, heard: Heard, party: str, share: float, randomness: Randomness) -> Poison:
        """A ``share`` of the rows trained on, drawn at random, as known rows of ``party``."""
        split, size = heard.split, len(heard.training)
        order = randomness.derive("known").permutation(size)
        known, rest = np.split(order, [max(8, round(share * size))])
        features = split.features(party)[heard.training]
        features[np.isnan(features)] = np.inf  # a missing value is equal to a missing value
        own = {row.tobytes() for row in features[known]}
        others = np.sort([place for place in rest.tolist() if features[place].tobytes() not in own])
        halves = randomness.derive("halves").permutation(len(others)) % 2 == 0
        targets = targets_of(split.tables[party], np.arange(len(split)), split.attacked_of(party))
        return cls(targets, heard.training, np.sort(known), others, halves)

    @property
    def known_at(self) -> Tensor:
        """int64[k]."""
        return torch.from_numpy(self.training[self.known])

    @property
    def others_at(self) -> Tensor:
        """int64[n]."""
        return torch.from_numpy(self.training[self.others])

    def parts(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What :func:`rebuild` takes first, of rows of all training rows, [t, …]."""
        return rows[torch.from_numpy(self.known)], self.known_at, rows[torch.from_numpy(self.others)]

    def judged(self, outputs: Tensor) -> tuple[Figures, Figures]:
        """Figures of the half that chooses, and of the half that is reported; ``outputs`` float32[n, width]."""
        halves = [torch.from_numpy(rows) for rows in (self.halves, ~self.halves)]
        one, other = (summary(measure(self.targets, outputs[half], self.others_at[half])) for half in halves)
        return one, other


def summary(scores: Mapping[str, Score], *, constant: bool = False) -> Figures:
    """Means over columns of what is defined."""
    each = [
        {"success": score.constant, **score.constants} if constant else {"success": score.success, **score.figures}
        for score in scores.values()
    ]
    return {name: _mean([one.get(name) for one in each]) for name in dict.fromkeys(name for one in each for name in one)}


def _mean(values: Sequence[float | None]) -> float:
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else float("nan")


def own_columns(split: Split) -> Tensor:
    """What the attacker has of each row without any embedding, float32[n, c]: standardised numbers, categories and labels as
    flags.
    """
    table = split.tables[ACTIVE]
    assert table.labels is not None
    parts = [np.eye(split.classes)[table.labels.astype(np.int64)], *(_encoded(table, name) for name in table.columns)]
    return torch.from_numpy(np.column_stack(parts).astype(np.float32))


def _encoded(table: Table, name: str) -> NDArray[np.float64]:
    column = table.columns[name]
    values = values_of(column)
    if isinstance(column, CategoricalColumn):
        levels, codes = np.unique(values, return_inverse=True)
        return np.eye(len(levels))[codes]
    known = np.where(np.isnan(values), np.nanmean(values), values)
    return ((known - known.mean()) / (known.std() or 1.0))[:, None]


def imputations(poison: Poison, own: Tensor, randomness: Randomness) -> dict[str, Tensor]:
    """Method → guesses from the attacker's own columns, float32[n, width], as a decoder gives them."""
    known, known_at, others = poison.parts(own)
    return {
        "decoder": rebuild(known, known_at, others, poison.targets, randomness.derive("decoder")),
        "regression": _fitted(poison, known.numpy(), others.numpy(), _regression),
        "forest": _fitted(poison, known.numpy(), others.numpy(), _forest),
    }


def _regression(target: Target) -> Any:
    return Ridge(10.0) if target.kind == "number" else LogisticRegression(C=0.1, max_iter=200)


def _forest(target: Target) -> Any:
    kind = RandomForestRegressor if target.kind == "number" else RandomForestClassifier
    return kind(TREES, min_samples_leaf=3, random_state=0)


def _fitted(poison: Poison, known: NDArray[np.float32], others: NDArray[np.float32], model: Callable[[Target], Any]) -> Tensor:
    """What a model of scikit-learn for each column gives, as a decoder would."""
    parts = []
    for target in poison.targets.columns:
        has = target.known[poison.known_at].numpy()
        truth = target.truth[poison.known_at].numpy()[has]
        if target.kind == "number":
            parts.append(model(target).fit(known[has], truth).predict(others)[:, None])
            continue
        shares = np.full((len(others), max(target.width, 2)), SURE)
        values = np.unique(truth).astype(np.int64)
        if len(values) > 1:
            shares[:, values] = model(target).fit(known[has], truth).predict_proba(others)
        else:
            shares[:, values] = 1 - SURE
        logs = np.log(np.clip(shares, SURE, 1 - SURE))
        parts.append(logs if target.kind == "categories" else logs[:, 1:] - logs[:, :1])
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))
