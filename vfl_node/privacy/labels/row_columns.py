"""The active party's own attacks on its weights and offsets of rows (``data.weight``, ``data.offset``, ``data.exposure``).

A gradient is its row's weight times its residual times a direction, and an offset is part of the residual. At first all rows
have about the same residual, so that lengths show weights; later on they show both. So lengths are attacked beside what the
attacks on numbers go by. The figure is theirs: of two rows that differ, how often the larger one is told, folded; .5 is chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from typing_extensions import override

from vfl_node.privacy.attacks.attack import Positions
from vfl_node.privacy.labels.attacks import OF_NUMBERS, Attacks, mean_norm, norm
from vfl_node.privacy.labels.evidence import Names
from vfl_node.privacy.labels.meter import LabelMeter, Leaks, larger
from vfl_node.privacy.labels.shown import TINY, Shown
from vfl_node.privacy.labels.truth import Labels, NumberLabels


def side_norm(shown: Shown) -> Tensor:
    """How long a row's mean gradient is among those that reach to the same side.

    The side stands for the label: rows of the rarer class have longer gradients, whatever they weigh.
    """
    return _centre_on_side(shown, mean_norm(shown).clamp_min(TINY).log())


def side_direction(shown: Shown) -> Tensor:
    """How far it reaches among these: a residual, prediction minus label, grows with the offset whatever the label is."""
    return _centre_on_side(shown, shown.reach.clone())


def _centre_on_side(shown: Shown, score: Tensor) -> Tensor:
    for side in (shown.reach > 0, shown.reach <= 0):
        if bool(side.any()):
            score[side] -= score[side].median()
    return score


OF_ROW_COLUMNS = Attacks(
    {"norm": norm, "mean_norm": mean_norm, "side_norm": side_norm, "side_direction": side_direction, **OF_NUMBERS.blind},
    OF_NUMBERS.informed,
    (),
)


class RowNumbers(NumberLabels):
    """A weight or an offset of each row, as labels that are numbers."""

    attacks = OF_ROW_COLUMNS


class RowColumnMeter(LabelMeter):
    """How well one such column can be read from what each peer has, in this job alone.

    Args:
        column: what it is, among the names of attachments.
        values: float64[m], at each shared position.
        judged: int64[t], own shared positions trained on.
        names: as :class:`~vfl_node.privacy.labels.truth.TwoClassLabels`.
        peers: names of the passive parties.
        party: the active party's name.

    Cost: as the base.
    """

    def __init__(
        self, column: str, values: Labels, judged: Positions, names: Names, peers: Sequence[str], *, party: str
    ) -> None:
        super().__init__(RowNumbers(values, judged, names), peers, party=party)
        self.name, self.carries = column, f"{column} told"

    @override
    def wait(self) -> Mapping[str, Any]:
        self.judge()
        return {}

    @override
    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Leaks]:
        worst, now = (before or {}).get(self.name, {}), self.result()
        return {self.name: {name: larger(worst.get(name), now.get(name)) for name in {**worst, **now}}}
