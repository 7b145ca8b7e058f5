"""A party's own attacks on what it sends for predictions, over all services, before more of it leaves.

In training the weights move between steps, and a row has few others of the same step beside it. A model that is asked
for predictions stays as it is, so all that was sent of it is compared, row with row
(:func:`~vfl_node.privacy.equal_weights.audit_equal_weights`). And what a partner that asks can tell of labels is judged
together with all that trainings have told of the same rows.
"""

from __future__ import annotations

import threading

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.privacy.equal_weights import EqualWeights, Judged
from vfl_node.privacy.labels.evidence import MOST_ROWS, Evidence, History, Names, Said, labels_key, predictions_by
from vfl_node.privacy.labels.truth import Labels, attacks_on, truth_of
from vfl_node.session.memory import Memory

ENOUGH = 100
"""Fewest rows of each kind that are judged by themselves: at chance their AUC deviates by .04."""

GROWN = 1.01
"""By how much the rows grow until they are attacked anew."""

SERVED = "served"
"""The attack in reports: by predictions, alone or with what trainings told."""


class PredictionAudit:
    """What the peer could make of the rows it has received, each of which is counted once.

    Args:
        randomness: of this alone.
        limit: the largest AUC, folded, that the owner allows; None: any.
        active: whether any attack runs.

    Rows may be taken in on one thread while they are attacked on another one.

    Cost: as :class:`~vfl_node.privacy.equal_weights.EqualWeights`; whether an audit is due depends on the number of rows alone,
        not on which rows are synthetic.
    """

    def __init__(self, randomness: Randomness, *, limit: float | None, active: bool = True) -> None:
        self._limit, self._active = limit, active
        self._audit = EqualWeights(randomness)
        self._waiting: list[tuple[Tensor, NDArray[np.bool_]]] = []
        self._lock = threading.Lock()
        self._size = self._synthetic = self._attacked = 0
        self.judged = Judged()
        """What the attacks found."""

    def see(self, rows: Tensor, synthetic: NDArray[np.bool_]) -> None:
        """Take in rows that were not sent before; they must not change after.

        Args:
            rows: float[n, d].
            synthetic: bool[n], which of them are.
        """
        if not self._active or len(rows) == 0:
            return
        with self._lock:
            self._waiting.append((rows.detach().cpu().float(), synthetic))
        self._size += len(rows)
        self._synthetic += int(synthetic.sum())

    def attack(self) -> None:
        """Attack all rows, if they have grown enough for it."""
        if self._size >= GROWN * self._attacked:
            self.catch_up()

    def catch_up(self) -> None:
        """Bring :attr:`judged` up to date."""
        with self._lock:
            new, self._waiting = self._waiting, []
        for rows, synthetic in new:
            self._audit.add(rows, synthetic)
            self._attacked += len(rows)
        if new:
            self.judged = self._audit.judge()

    @property
    def strongest(self) -> float:
        """The largest of the figures, folded; .5 without any."""
        aucs = [value for value in self.judged.attacks.values() if value is not None]
        return max((0.5 + abs(value - 0.5) for value in aucs), default=0.5)

    def check(self, expected: PredictionAudit | None = None) -> None:
        """Stop where the rows seen tell more than the owner allows; call it before they leave.

        Args:
            expected: an audit of what may be sent at most. Few rows deviate from it by chance, by which alone nothing is
                stopped. None: not known; fewer than :data:`ENOUGH` rows of either kind are not judged then.

        Raises:
            PolicyError: the strongest attack, folded, is above the limit (``E_LEAK``; the peer is told ``E_STOPPED``).

        Leaks: by stopping, that some limit would be passed.
        """
        if self._limit is None or self.strongest <= self._limit:
            return
        fewest = min(self._synthetic, self._size - self._synthetic)
        by_chance = fewest < ENOUGH if expected is None else expected.strongest <= self._limit
        if by_chance:
            return
        raise PolicyError(
            f"this party's own attacks would tell synthetic rows from real ones at an AUC of {self.strongest:.2f} among "
            f"{self._size} rows of this model, which meet the same weights; attacks.rows allows {self._limit:g}",
            code="E_LEAK",
            hint="train with a strategy in train.missing.features whose rows have no twins, or align by psi; or allow more",
            for_peer="its owner's policy does not allow more predictions by this model",
            peer_code="E_STOPPED",
        )


class PredictionLabelAudit:
    """Counts predictions before they leave, and where the owner limits what they tell, judges them.

    Each row counts once, whatever service it was asked in.

    Args:
        memory: of the partner.
        table: this party's, by its name in the settings.
        model: the job that trained the model.
        names: uint64[n], of all records of the table, by :func:`~vfl_node.privacy.labels.evidence.record_names`.
        labels: float64[n].
        column: their name.
        classes: how many; 0: numbers.
        limit: the largest figure that the owner allows; None: any.

    Attributes:
        figure: the newest one; None before there was enough to judge.
    """

    def __init__(
        self,
        memory: Memory,
        table: str,
        model: str,
        *,
        names: Names,
        labels: Labels,
        column: str,
        classes: int,
        limit: float | None,
    ) -> None:
        self._names, self._labels, self._classes, self._limit = names, labels, classes, limit
        columns = classes if classes > 2 else 1
        about = labels_key(table, column, classes)
        summed = attacks_on(classes).summed
        self._said = Said(memory, f"{about} said", columns, predictions_by(model), names)
        self._histories = [History(memory, f"{about} {name}", columns, predictions_by(model), names) for name in summed]
        self._attacked, self._admitted = 0, len(self._said.own.names)  # an earlier attempt may have ended before it judged
        self.figure: float | None = None

    def admit(self, rows: NDArray[np.int64], scores: Tensor) -> None:
        """Count and judge predictions that are about to leave.

        Args:
            rows: int64[B], of the table; negative where this party has no record.
            scores: float64[B] or float64[B, K].

        Raises:
            PolicyError: with them labels can be read better than the owner allows (``E_LEAK``; the peer gets ``E_STOPPED``).
        """
        own = rows >= 0
        names, first = np.unique(self._names[rows[own]], return_index=True)
        sums = scores.reshape(len(scores), -1).float().numpy()[own][first]
        self._admitted += len(names)
        due = self._limit is not None and self._admitted >= self._attacked * GROWN
        judged: list[Evidence] = []

        def add(own: Evidence) -> Evidence:  # to what other services of this model may be adding to, too
            told = self._limit_rows(own.replace_rows(names, sums))
            if due and (predicted := self._judge(told)):
                judged.append(predicted)
            return told

        self._said.change_own(add)
        self._attacked = self._admitted if due else self._attacked
        for predicted in judged:
            self._keep(predicted)

    def catch_up(self) -> None:
        """Bring :attr:`figure` up to date where nothing is limited, so that :meth:`admit` judges nothing.

        It may be called on another thread than :meth:`admit`.
        """
        admitted = self._admitted
        if self._limit is None and admitted > self._attacked:
            self._attacked = admitted
            if predicted := self._judge(self._said.own):
                self._keep(predicted)

    def _keep(self, predicted: Evidence) -> None:
        for history in self._histories:
            history.keep(predicted)

    def _limit_rows(self, told: Evidence) -> Evidence:
        """At most :data:`MOST_ROWS` rows, of each class alike, by the smallest names: a rare class is not crowded out."""
        if len(told.names) <= MOST_ROWS:
            return told
        labels, most = self._labels_of(told.names), MOST_ROWS // max(self._classes, 1)
        kinds = np.unique(labels) if self._classes else [None]
        kept = [(np.flatnonzero(labels == kind) if self._classes else np.arange(len(labels)))[:most] for kind in kinds]
        return told.select(np.sort(np.concatenate(kept)))

    def _labels_of(self, names: Names) -> Labels:
        """float64[k], of records with these names; NaN of those that the table does not have any more."""
        order = np.argsort(self._names)
        places = order[np.searchsorted(self._names, names, sorter=order).clip(max=len(order) - 1)]
        return np.where(self._names[places] == names, self._labels[places], np.nan)

    def _judge(self, told: Evidence) -> Evidence | None:
        """What the predictions are as evidence; None where there are too few to judge. Raises as :meth:`admit`."""
        labels = self._labels_of(told.names)
        told = told.select(np.flatnonzero(~np.isnan(labels)))
        names, labels = told.names, labels[~np.isnan(labels)]
        counts = np.sort(np.unique(labels, return_counts=True)[1])[::-1]
        if len(labels) < 2 * ENOUGH or (self._classes and (len(counts) < 2 or counts[1] < ENOUGH)):
            return None
        truth = truth_of(labels, np.arange(len(labels)), names, classes=self._classes)
        now, places = torch.from_numpy(told.sums), torch.from_numpy(truth.followed)
        alone = now[places] if now.shape[1] > 1 else now[places, 0]
        followed = names[truth.followed]
        predicted = Evidence.from_scores(followed, now[places], truth.targets(np.arange(len(followed))), trainings=0)
        together = [history.earlier.add(predicted).scores(followed) for history in self._histories]
        figures = [truth.figure(each) for each in (alone, *together)]
        self.figure = max((figure for figure in figures if figure is not None), default=None)
        if self._limit is None or self.figure is None or self.figure <= self._limit:
            return predicted
        raise PolicyError(
            f"predictions for {len(labels)} of its rows would let a partner read this party's labels at an AUC of "
            f"{self.figure:.2f}, with all that trainings have told; attacks.labels allows {self._limit:g}",
            code="E_LEAK",
            hint="let the active party alone ask for predictions (serve.to), or allow more",
            for_peer="its owner's policy does not allow more predictions by this model",
            peer_code="E_STOPPED",
        )
