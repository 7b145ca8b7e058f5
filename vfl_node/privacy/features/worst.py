"""The worst of many attacks on one column, without the bias of a maximum.

The largest of many figures is large by chance, too: of 20 epochs at chance the best AUC of 1,000 rows is about .53. So the
attack and the epoch are chosen on one half of the judged rows, and the figure that counts is the one of the other half.

The paper takes the minimum of privacy over all epochs (arXiv 2104.14383, section 5.1), which has this bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vfl_node.privacy.features.measures import FIGURES, Score
from vfl_node.privacy.features.targets import Target, Targets


@dataclass(frozen=True)
class Found:
    """What one attack found of one column.

    Attributes:
        chosen_by: its gain over a constant on the half that chooses.
        epoch: after how many epochs, from 1.
        score: on the other half.
    """

    chosen_by: float
    epoch: int
    score: Score


class Worst:
    """For each attack and column the epoch in which most was rebuilt.

    Args:
        targets: the columns.
        attacks: names of the attacks.
    """

    def __init__(self, targets: Targets, attacks: Sequence[str]) -> None:
        self._columns, self._attacks = targets.columns, tuple(attacks)
        self._found: dict[tuple[str, str], Found] = {}

    def take(self, attack: str, epoch: int, choosing: Mapping[str, Score], measured: Mapping[str, Score]) -> None:
        """Take in what ``attack`` shows in one epoch: column → score on each half of the judged rows."""
        for column, score in choosing.items():
            gain, before = score.gain, self._found.get((attack, column))
            if gain is not None and measured[column].success is not None and (before is None or gain > before.chosen_by):
                self._found[attack, column] = Found(gain, epoch, measured[column])

    def find(self, attack: str, column: str) -> Found | None:
        """What ``attack`` found of ``column`` in its worst epoch; None where nothing was defined."""
        return self._found.get((attack, column))

    def overall(self, column: str) -> tuple[str, Found] | None:
        """The worst attack, and what it found."""
        found = {attack: self._found[attack, column] for attack in self._attacks if (attack, column) in self._found}
        return max(found.items(), key=lambda entry: entry[1].chosen_by, default=None)

    def tensors(self) -> dict[str, Tensor]:
        """``ATTACK`` → float64[c, 3 + 2·f], NaN where nothing was found, or a figure is not defined."""
        return {attack: torch.stack([self._row(attack, column) for column in self._columns]) for attack in self._attacks}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""
        self._found = {}
        for attack, rows in tensors.items():
            for column, row in zip(self._columns, rows.tolist(), strict=True):
                if not math.isnan(row[0]):
                    self._found[attack, column.name] = _read_found(column, row)

    def _row(self, attack: str, column: Target) -> Tensor:
        row = torch.full((WIDTH,), math.nan, dtype=torch.float64)
        if found := self.find(attack, column.name):
            score = found.score
            values = [found.chosen_by, found.epoch, score.rows, *score.figures.values(), *score.constants.values()]
            row[: len(values)] = torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)
        return row


WIDTH = 3 + 2 * max(map(len, FIGURES.values()))
"""Numbers that a checkpoint holds of one attack on one column."""


def _read_found(column: Target, row: Sequence[float]) -> Found:
    chosen_by, epoch, rows, *values = row
    names = FIGURES[column.kind]
    read = [None if math.isnan(value) else value for value in values]
    figures, constants = (dict(zip(names, part, strict=False)) for part in (read, read[len(names) :]))
    return Found(chosen_by, int(epoch), Score(names[0], figures, constants, int(rows)))
