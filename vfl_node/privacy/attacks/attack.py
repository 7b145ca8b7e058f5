"""What an attack is: it sees what a party receives, step by step, and says how well it tells a secret.

A new attack is a file with a subclass of :class:`Attack` and an entry of :data:`~vfl_node.privacy.attacks.ATTACKS`. The
same code judges a whole transcript (:func:`~vfl_node.privacy.attacks.follow`) and runs in a party's own audit while it
trains (:mod:`vfl_node.privacy.audit`). The two differ in the :class:`Scope`: everything compared exactly, or bounded work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks.transcript import Batch, TranscriptEpoch

Need = Literal["rows", "gradients"]
"""A field of :class:`~vfl_node.privacy.attacks.transcript.Batch`; an attack that needs more adds a field there."""

Span = Literal["epoch", "repeat", "job"]

Positions = NDArray[np.int64]
Scores = NDArray[np.float64]


class Subset:
    """Some of ``size`` shared positions, each with its place among them.

    Args:
        positions: int64[k], distinct.
        size: number of shared positions m.
    """

    def __init__(self, positions: Positions, size: int) -> None:
        self.positions = positions
        self._places = np.full(size, -1, dtype=np.int32)
        self._places[positions] = np.arange(len(positions))

    def __len__(self) -> int:
        return len(self.positions)

    def places(self, positions: Positions) -> NDArray[np.int32]:
        """The place of each of ``positions`` among the subset, int32[B]; −1 for one that is not in it."""
        return self._places[positions]


class Scope(Protocol):
    """How much of what it receives an attack looks at, and how rows are compared: it bounds an attack's work.

    Attributes:
        met: the positions of which every row is seen.
        followed: those of which rows are judged one by one.
    """

    met: Subset
    followed: Subset

    def alone(self, batch: Batch) -> Batch:
        """The rows of a step that are followed, on the CPU: for attacks that judge each row by itself."""

    def select_beside(self, batch: Batch) -> NDArray[np.int64]:
        """int64[q], numbers of the rows of a step that are judged beside all of it; may be none."""

    def score_between(self, batch: Batch) -> tuple[Positions, Scores]:
        """Positions of these rows, and how nearly each lies between two of the rows nearest to it."""

    def select_together(self, batch: Batch) -> Batch | None:
        """The rows of a step that are judged by their common distribution; None to pass over the step."""

    def reduce(self, batch: Batch) -> Tensor:
        """float32[B, w], what remains of a step's rows for :meth:`twins`, :meth:`nearest` and :meth:`ratios`."""

    def twins(self, steps: Sequence[Tensor]) -> NDArray[np.bool_]:
        """bool[S, B] of S steps of B reduced rows: which rows are equal to another one of their step up to rounding."""

    def nearest(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """Positions of an epoch, and the distance of each reduced row to the nearest other one."""

    def ratios(self, epoch: TranscriptEpoch) -> tuple[Positions, Scores]:
        """Positions of an epoch that are followed, and minus the ratio of two distances of each reduced row."""


class Attack(ABC):
    """One attack, which sees a training as its peer does and is asked at any time how well it tells the truth.

    A subclass says what it needs:

    Attributes:
        title: its name for people.
        reading: what it goes by, a clause: "how near the nearest row of the epoch is".
        finds: what it tells apart: ``membership`` (which shared rows are synthetic at the sender).
        needs: the fields of a batch without which it has nothing to say.
        epochs: after how many epochs it says something; one of a single epoch also judges rows held out or predicted.
        lasts: over what time its evidence adds up in an audit: an ``epoch`` (then it begins anew), a ``repeat``, or all
            repeats of the ``job``, where what it looks for is the same in each.

    Args:
        truth: bool[m], the secret at each shared position, which no attacker has. Only :meth:`score` depends on it.
        scope: what it looks at.
    """

    title: ClassVar[str]
    reading: ClassVar[str]
    finds: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[Need]] = frozenset({"rows"})
    epochs: ClassVar[int] = 1
    lasts: ClassVar[Span] = "repeat"

    def __init__(self, truth: NDArray[np.bool_], scope: Scope) -> None:
        self._truth, self._scope = truth, scope

    @abstractmethod
    def see(self, batch: Batch) -> None:
        """Take in one step. Steps come in order; each position once an epoch."""

    @abstractmethod
    def score(self) -> float | None:
        """The AUC so far, .5 at chance, not folded; None where it is not defined. To be called between epochs."""

    @property
    @abstractmethod
    def judged(self) -> int | None:
        """How many rows are behind :meth:`score`; None before it can say anything."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What a checkpoint between epochs must hold, on the CPU; later steps do not change it."""

    @abstractmethod
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state` gave; the attack must be made with the same arguments."""

    def carry_over(self) -> dict[str, Tensor]:
        """What all repeats so far have shown, by shared position, where evidence lasts for the job."""
        raise NotImplementedError

    def follow_on(self, earlier: Mapping[str, Tensor]) -> None:
        """Add, for such an attack, what :meth:`carry_over` gave at the end of the repeat before to all that is seen now."""
        raise NotImplementedError


class Tally:
    """Sums of scores by position, and of how many scores each is.

    Args:
        judged: the positions.
    """

    def __init__(self, judged: Subset) -> None:
        self.judged = judged
        self.sums = np.zeros(len(judged))
        self.counts = np.zeros(len(judged), dtype=np.int32)

    def add(self, positions: Positions, scores: Scores | NDArray[np.bool_]) -> None:
        """Add a score to each of ``positions``."""
        places = self.judged.places(positions)
        np.add.at(self.sums, places, scores.astype(np.float64, copy=False))
        np.add.at(self.counts, places, 1)

    def raise_to(self, positions: Positions, scores: Scores) -> None:
        """Hold the larger of the score so far and the new one, of each of ``positions``, which are distinct."""
        places = self.judged.places(positions)
        met = self.counts[places] > 0
        self.sums[places] = np.where(met, np.fmax(self.sums[places], scores), scores)
        self.counts[places] = 1


class ScoringAttack(Attack):
    """Base of attacks that give each position a score, the larger the likelier; they are judged by the AUC of the means."""

    def __init__(self, truth: NDArray[np.bool_], scope: Scope) -> None:
        super().__init__(truth, scope)
        self._tally = Tally(self._judging(scope))
        self._earlier: Tally | None = None

    @staticmethod
    def _judging(scope: Scope) -> Subset:
        """The positions that get a score."""
        return scope.followed

    @property
    def _known(self) -> NDArray[np.bool_]:
        """bool[k], which of the positions have a score."""
        return self._tally.counts > 0

    def scores(self) -> Scores:
        """The mean score at each shared position, float64[m]; NaN where there is none."""
        self._settle()
        tally = self._tally
        sums, counts = tally.sums, tally.counts
        if self._earlier:
            places = tally.judged.positions
            sums, counts = sums + self._earlier.sums[places], counts + self._earlier.counts[places]
        scores, known = np.full(len(self._truth), np.nan), self._known
        scores[tally.judged.positions[known]] = sums[known] / counts[known]
        return scores

    @override
    def score(self) -> float | None:
        scores = self.scores()
        known = ~np.isnan(scores)
        return auc(self._truth[known], scores[known])

    @property
    @override
    def judged(self) -> int | None:
        self._settle()
        return int(self._known.sum())

    @override
    def state(self) -> dict[str, Tensor]:
        self._settle()
        return {"sums": torch.from_numpy(self._tally.sums.copy()), "counts": torch.from_numpy(self._tally.counts.copy())}

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._forget()
        self._tally.sums[:] = state["sums"].numpy()
        self._tally.counts[:] = state["counts"].numpy()

    @override
    def carry_over(self) -> dict[str, Tensor]:
        self._settle()
        whole = Tally(Subset(np.arange(len(self._truth)), len(self._truth)))
        whole.sums[self._tally.judged.positions] = self._tally.sums
        whole.counts[self._tally.judged.positions] = self._tally.counts
        if self._earlier:
            whole.sums += self._earlier.sums
            whole.counts += self._earlier.counts
        return {"sums": torch.from_numpy(whole.sums), "counts": torch.from_numpy(whole.counts)}

    @override
    def follow_on(self, earlier: Mapping[str, Tensor]) -> None:
        self._earlier = Tally(Subset(np.arange(len(self._truth)), len(self._truth)))
        self._earlier.sums[:] = earlier["sums"].numpy()
        self._earlier.counts[:] = earlier["counts"].numpy()

    def _settle(self) -> None:
        """Take in what waits until an epoch is over."""

    def _forget(self) -> None:
        """Drop what waits."""


class EpochAttack(ScoringAttack):
    """Base of attacks that compare the rows of a whole epoch; a position that was not met in every epoch has no score."""

    def __init__(self, truth: NDArray[np.bool_], scope: Scope) -> None:
        super().__init__(truth, scope)
        self._epoch = TranscriptEpoch(0)
        self._number = 0
        """Epochs taken in."""

    @override
    def see(self, batch: Batch) -> None:
        if batch.epoch != self._epoch.number:
            self._settle()
            self._epoch = TranscriptEpoch(batch.epoch)
        positions, rows = self._gather(batch)
        self._epoch.positions.append(positions)
        self._epoch.rows.append(rows)

    @override
    def state(self) -> dict[str, Tensor]:
        return {**super().state(), "epochs": torch.tensor(self._number)}

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        super().restore(state)
        self._number = int(state["epochs"])

    @abstractmethod
    def _judge(self, epoch: TranscriptEpoch) -> None:
        """Score the rows of ``epoch``."""

    def _gather(self, batch: Batch) -> tuple[Positions, Tensor]:
        """What is gathered of a step."""
        return batch.positions, self._scope.reduce(batch)

    @property
    def _known(self) -> NDArray[np.bool_]:
        return (self._tally.counts > 0) & (self._tally.counts == self._number)

    def _settle(self) -> None:
        if self._epoch.positions:
            epoch, self._epoch = self._epoch, TranscriptEpoch(self._epoch.number)
            self._judge(epoch)
            self._number += 1

    def _forget(self) -> None:
        self._epoch = TranscriptEpoch(0)
