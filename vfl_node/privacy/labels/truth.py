"""What labels of each kind are to the attacks on them: which rows are judged, which are known, and how well a score tells them.

A figure is .5 at chance and 1 if all is told, whatever kind the labels are of, so that one limit holds for all:

* two classes: AUC, folded;
* K classes: the mean over classes of the AUC of one against the others, groups named in the way that tells most;
* numbers: of two rows whose numbers differ, how often the score says which has the larger one, folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.metrics.classes import NotNumbers, auc
from vfl_node.privacy.attacks.attack import Positions
from vfl_node.privacy.labels.attacks import OF_NUMBERS, OF_TWO_CLASSES, Attacks
from vfl_node.privacy.labels.classes import class_attacks
from vfl_node.privacy.labels.evidence import Names

MOST = 2048
"""Rows of one of two classes that are judged, at most. Of other labels twice as many in all."""

LEAST = 10
"""Rows of a class that must be left to judge, and of numbers three times as many; with fewer a figure says little."""

KNOWN = 16
"""Rows of each class, or of numbers, whose label the peer is assumed to know, at most."""

DRAWS = 3
"""Choices of such rows; what one of them tells differs, so the mean counts."""

PAIRS = 1 << 16
"""Pairs of rows whose numbers are compared: a figure is exact to .002."""

Labels = NDArray[np.float64]


class Truth(Protocol):
    """The labels of the rows that are followed.

    Attributes:
        attacks: that there are on labels of this kind.
        columns: of the scores that add up over trainings.
        rows: shared ones, m.
        followed: int64[k], shared positions, ascending.
        known: rows of these that the peer is assumed to know, one choice after another; they are not judged.
    """

    attacks: Attacks
    columns: int
    rows: int
    followed: Positions
    known: Sequence[NDArray[np.int64]]

    @property
    def enough(self) -> bool:
        """Whether there are enough rows left to judge."""

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """What is known of such rows, as :class:`~vfl_node.privacy.labels.shown.KnownRows` has it."""

    def figure(self, score: Tensor) -> float | None:
        """How well ``score``, of all that are followed, float32[k] or float32[k, K], tells the labels of those judged.

        None where it is not defined.
        """


class _Followed:
    """What all kinds have in common."""

    def __init__(self, rows: int, followed: Positions, known: Sequence[Positions]) -> None:
        self.rows = rows
        order = np.argsort(followed)
        self.followed = followed[order]
        self.known: Sequence[NDArray[np.int64]] = [
            np.searchsorted(self.followed, np.sort(rows)).astype(np.int64) for rows in known
        ]
        self._judged = np.ones(len(followed), dtype=np.bool_)
        self._judged[np.concatenate(self.known)] = False


class TwoClassLabels(_Followed):
    """Labels 0 and 1.

    Args:
        labels: float64[m], at each shared position.
        judged: int64[t], shared positions trained on with a real label.
        names: uint64[m], of the records there; those of the smallest are judged, so the same ones in every training.
    """

    attacks, columns = OF_TWO_CLASSES, 1

    def __init__(self, labels: Labels, judged: Positions, names: Names) -> None:
        drawn = _choose_by_class(labels, judged, names, 2, MOST)
        super().__init__(len(labels), np.concatenate(drawn), _choices(drawn, KNOWN))
        self._positive = labels[self.followed] == 1

    @property
    def enough(self) -> bool:
        """As :attr:`Truth.enough`."""
        left = self._positive[self._judged]
        return min(int(left.sum()), int((~left).sum())) >= LEAST

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """As :meth:`Truth.targets`."""
        return torch.from_numpy(self._positive[rows].astype(np.float32))[:, None]

    def figure(self, score: Tensor) -> float | None:
        """As :meth:`Truth.figure`."""
        rows = self._judged
        value = auc(self._positive[rows], score.double().numpy()[rows])
        return None if value is None else max(value, 1 - value)


class SeveralClassLabels(_Followed):
    """Labels 0, 1, … of K classes; args as :class:`TwoClassLabels`."""

    def __init__(self, labels: Labels, judged: Positions, names: Names, classes: int) -> None:
        self.attacks, self.columns = class_attacks(classes), classes
        drawn = _choose_by_class(labels, judged, names, classes, 2 * MOST // classes)
        super().__init__(len(labels), np.concatenate(drawn), _choices(drawn, KNOWN))
        self._one_hot = labels[self.followed][:, None] == np.arange(classes)

    @property
    def enough(self) -> bool:
        """As :attr:`Truth.enough`: of two classes at least."""
        return int(np.count_nonzero(self._one_hot[self._judged].sum(axis=0) >= LEAST)) >= 2

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """As :meth:`Truth.targets`."""
        return torch.from_numpy(self._one_hot[rows].astype(np.float32))

    def figure(self, score: Tensor) -> float | None:
        """As :meth:`Truth.figure`."""
        from scipy.optimize import linear_sum_assignment  # loads scipy, which a node needs only here

        rows = self._judged
        told, truth = score.double().numpy()[rows], self._one_hot[rows]
        present = np.flatnonzero((truth.sum(axis=0) >= LEAST) & (truth.sum(axis=0) < len(truth)))
        if not len(present):
            return None
        values = np.array([_areas(column, truth[:, present]) for column in told.T])
        groups, classes = linear_sum_assignment(-values)
        return float(values[groups, classes].mean())


class NumberLabels(_Followed):
    """Numbers of a regression; args as :class:`TwoClassLabels`."""

    attacks, columns = OF_NUMBERS, 1

    def __init__(self, labels: Labels, judged: Positions, names: Names) -> None:
        drawn = _first(judged, names, 2 * MOST)
        super().__init__(len(labels), drawn, _choices([drawn], KNOWN))
        self._labels = labels[self.followed]
        values, at = np.unique(self._labels, return_inverse=True)
        self._places = at / max(len(values) - 1, 1)
        places = np.flatnonzero(self._judged)
        numbers = Randomness(bytes(32)).derive("pairs").uint64(2 * PAIRS if len(places) else 0)
        self._pairs = places[(numbers % max(len(places), 1)).astype(np.int64)].reshape(2, -1)

    @property
    def enough(self) -> bool:
        """As :attr:`Truth.enough`: and not all are the same."""
        left = self._labels[self._judged]
        return len(left) >= 3 * LEAST and bool(np.ptp(left) > 0)

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """As :meth:`Truth.targets`: its place among all that are followed, 0 to 1; no single number outweighs the others."""
        return torch.from_numpy(self._places[rows].astype(np.float32))[:, None]

    def figure(self, score: Tensor) -> float | None:
        """As :meth:`Truth.figure`."""
        one, two = self._pairs
        truth, told = np.sign(self._labels[one] - self._labels[two]), score.double().numpy()
        if np.isnan(told).any():
            raise NotNumbers
        counts = truth != 0
        if not counts.any():
            return None
        value = float((truth * np.sign(told[one] - told[two]))[counts].mean() + 1) / 2
        return max(value, 1 - value)


def attacks_on(classes: int) -> Attacks:
    """All attacks on labels of so many classes; 0: numbers."""
    return OF_TWO_CLASSES if classes == 2 else class_attacks(classes) if classes else OF_NUMBERS


def truth_of(labels: Labels, judged: Positions, names: Names, *, classes: int) -> Truth:
    """The labels of so many classes; 0: numbers. Args as :class:`TwoClassLabels`."""
    if not classes:
        return NumberLabels(labels, judged, names)
    return TwoClassLabels(labels, judged, names) if classes == 2 else SeveralClassLabels(labels, judged, names, classes)


def _areas(score: Labels, truth: NDArray[np.bool_]) -> Labels:
    """float64[c], the AUC of one ``score`` for each column of ``truth``, bool[k, c]: as :func:`auc`, with one sort for all.

    Raises:
        NotNumbers: the score holds NaN.
    """
    if np.isnan(score).any():
        raise NotNumbers
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positives = truth.sum(axis=0)
    negatives = len(score) - positives
    return np.asarray((ranks @ truth - positives * (positives + 1) / 2) / (positives * negatives))


def _first(rows: Positions, names: Names, most: int) -> Positions:
    """Those of the smallest names, in their order."""
    return rows[np.argsort(names[rows], kind="stable")[:most]]


def _choose_by_class(labels: Labels, judged: Positions, names: Names, classes: int, most: int) -> list[Positions]:
    """The positions of each class that are followed, in the order of their names."""
    return [_first(judged[labels[judged] == kind], names, most) for kind in range(classes)]


def _choices(drawn: Sequence[Positions], most: int) -> list[Positions]:
    """Choices of known rows, of each group alike: together at most a fourth of a group, and none has a row of another."""
    shares = [max(0, min(most, len(rows) // (4 * DRAWS), (len(rows) - LEAST) // DRAWS)) for rows in drawn]
    return [
        np.concatenate([rows[number * share : (number + 1) * share] for rows, share in zip(drawn, shares, strict=True)])
        for number in range(DRAWS)
    ]
