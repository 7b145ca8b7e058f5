"""What a partner that asks for predictions can tell of labels by them, with all that trainings have told of the same rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.errors import PolicyError
from vfl_node.privacy.labels.evidence import Evidence, History, Names, served_by
from vfl_node.privacy.labels.truth import Labels, attacks_on, truth_of
from vfl_node.privacy.served import ENOUGH, GROWN
from vfl_node.session.memory import Memory

SERVED = "served"
"""The attack in reports: by predictions, alone or with what trainings told."""


class ServedLabels:
    """Judges predictions before they leave; each row counts once, whatever service it was asked in.

    Args:
        memory: of the partner.
        table: this party's, by its name in the settings.
        model: the job that trained the model.
        names: uint64[n], of all records of the table, by :func:`~vfl_node.privacy.labels.evidence.record_names`.
        labels: float64[n].
        classes: how many; 0: numbers.
        limit: the largest figure that the owner allows; None: any.

    Attributes:
        figure: the newest one; None before there was enough to judge.
    """

    def __init__(
        self, memory: Memory, table: str, model: str, *, names: Names, labels: Labels, classes: int, limit: float | None
    ) -> None:
        self._names, self._labels, self._classes, self._limit = names, labels, classes, limit
        columns = classes if classes > 2 else 1
        summed = attacks_on(classes).summed
        self._histories = [History(memory, table, attack, columns, served_by(model), names) for attack in summed]
        self._told = self._histories[0].own  # the same in each
        self._attacked = 0
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
        self._told = self._told.replaced_by(Evidence(names, sums, np.ones(len(names), np.int32)))
        if len(self._told.names) >= max(1, self._attacked) * GROWN:
            self._attacked = len(self._told.names)
            self._judge()
        for history in self._histories:
            history.keep(self._told)

    def _judge(self) -> None:
        names = self._told.names
        order = np.argsort(self._names)
        labels = self._labels[order[np.searchsorted(self._names, names, sorter=order)]]
        counts = np.sort(np.unique(labels, return_counts=True)[1])[::-1]
        if len(labels) < 2 * ENOUGH or (self._classes and (len(counts) < 2 or counts[1] < ENOUGH)):
            return
        truth = truth_of(labels, np.arange(len(labels)), names, classes=self._classes)
        now = torch.from_numpy(self._told.sums)
        alone = now if now.shape[1] > 1 else now[:, 0]
        together = [history.earlier.plus(Evidence.of(names, now)).scores(names) for history in self._histories]
        places = torch.from_numpy(truth.followed)
        figures = [truth.figure(each[places]) for each in (alone, *together)]
        self.figure = max((of for of in figures if of is not None), default=None)
        if self._limit is None or self.figure is None or self.figure <= self._limit:
            return
        raise PolicyError(
            f"predictions for {len(labels)} of its rows would let a partner read this party's labels at an AUC of "
            f"{self.figure:.2f}, with all that trainings have told; limits.max_label_auc allows {self._limit:g}",
            code="E_LEAK",
            hint="let the active party alone ask for predictions (serve.to), or allow more",
            for_peer="its owner's policy does not allow more predictions by this model",
            peer_code="E_STOPPED",
        )
