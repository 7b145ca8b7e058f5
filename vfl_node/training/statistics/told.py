"""What a party makes of the numbers of records in its own bins, and tells the active party of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from vfl_node.data.bins import Cuts
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.computation import StatisticsOutcome
from vfl_node.training.statistics.figures import (
    DIGITS,
    diverge,
    find_evidence,
    measure_distance,
    measure_independence,
    pool,
    promise_area,
)
from vfl_node.training.statistics.plan import StatisticsPlan
from vfl_node.training.statistics.section import BinFigures, CountedColumn
from vfl_node.training.trainer import TrainingData

Floats = NDArray[np.float64]

FIGURES = ("iv", "iv_noise", "ks", "ks_noise", "chi2", "freedom", "stability")
"""What is told of a column, in this order; NaN where there is none."""

_MOST = (64, 64, 1, 64, 1 << 24, 1 << 10, 64)
"""No figure of a column is larger."""

_NONE = np.zeros(0)


@dataclass(frozen=True, eq=False)
class ToldColumns:
    """The figures of a party's columns.

    Attributes:
        figures: float64[C, 7], as :data:`FIGURES`.
        shared: float64[C], stability of the shared records against the whole table; empty of another party's columns.
        evidence: float64[C, cells], weights of evidence; empty likewise.
        counts: float64[C, cells, 2], numbers of records of rows trained on; empty likewise, and if they are not opened.
        worth, areas: float64[C], bits of each beyond the active party's own columns, and the AUC that these promise; empty
            where the job does not ask for it, and the areas at passive parties.
        described: names of columns and their bins; empty likewise.
        records: of each label, trained on.
    """

    figures: Floats
    shared: Floats = field(default_factory=lambda: _NONE)
    evidence: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    counts: Floats = field(default_factory=lambda: np.zeros((0, 0, 2)))
    worth: Floats = field(default_factory=lambda: _NONE)
    areas: Floats = field(default_factory=lambda: _NONE)
    described: tuple[tuple[str, tuple[str, ...]], ...] = ()
    records: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def from_values(cls, values: Floats, columns: int) -> ToldColumns:
        """What another party says of so many columns. Raises ValueError: it cannot be."""
        figures = values.reshape(columns, len(FIGURES))
        freedom = figures[:, FIGURES.index("freedom")]
        if not ((np.isnan(figures) | (figures >= 0)) & ~(figures > np.array(_MOST))).all():
            raise ValueError("no figures")
        if (freedom[~np.isnan(freedom)] % 1).any():
            raise ValueError("no degrees of freedom")
        return cls(figures)

    def columns(self, party: str) -> tuple[CountedColumn, ...]:
        """The same for a report."""
        return tuple(self._column(party, number) for number in range(len(self.figures)))

    def _column(self, party: str, number: int) -> CountedColumn:
        iv, noise, ks, ks_noise, independence, freedom, stability = (
            None if np.isnan(each) else each for each in self.figures[number].tolist()
        )
        name, bins = self.described[number] if self.described else (None, ())
        return CountedColumn(
            party=party,
            number=number + 1,
            name=name,
            iv=iv,
            iv_noise=noise,
            ks=ks,
            ks_noise=ks_noise,
            chi2=independence,
            freedom=None if freedom is None else int(freedom),
            p_value=float(chi2.sf(independence, freedom)) if freedom and independence is not None else None,
            stability=stability,
            worth=float(self.worth[number]) if len(self.worth) else None,
            area=float(self.areas[number]) if len(self.areas) else None,
            shared=None if not len(self.shared) or np.isnan(self.shared[number]) else float(self.shared[number]),
            bins=tuple(
                BinFigures(
                    bin=words,
                    counts=tuple(self.counts[number, place].tolist()) if len(self.counts) else None,
                    woe=float(self.evidence[number, place]),
                )
                for place, words in enumerate(bins)
                if words
            ),
        )


def tell_columns(columns: CountedColumns, data: TrainingData, opened: Floats, deviation: float, least: int) -> ToldColumns:
    """The figures of this party's columns, of numbers with noise.

    Args:
        columns: its own.
        data: its table.
        opened: float64[groups, C, cells, 2].
        deviation: σ of each number.
        least: records of either label in a bin.
    """
    whole = columns.find_bins(data.whole or data.table)
    fitted = np.stack([fit_totals(group, deviation) for group in opened])
    totals = fitted.sum(axis=-1)
    figures, shared, evidence = [], [], []
    for number, counts in enumerate(fitted[0]):
        ordered = isinstance(columns.columns[number], Cuts)
        pooled = pool(counts, least, deviation, ordered=ordered)
        iv, noise = diverge(pooled.counts[:, 1], pooled.counts[:, 0], deviation**2 * pooled.bins)
        ks, ks_noise = measure_distance(pooled, deviation) if ordered else (np.nan, np.nan)
        independence, freedom = measure_independence(pooled, deviation)
        held_out = np.nan
        if len(fitted) > 1:
            held_out = _compare(totals[1, number], totals[0, number], deviation, ordered=ordered)
        figures.append(
            (
                iv,
                noise if deviation else np.nan,
                ks,
                ks_noise if deviation else np.nan,
                independence,
                freedom or np.nan,
                held_out,
            )
        )
        own = np.bincount(whole[:, number], minlength=columns.bins + 1).astype(np.float64)
        shared.append(_compare(totals[0, number], own, deviation, ordered=ordered, known=True))
        evidence.append(find_evidence(pooled))
    described = tuple((each.name, columns.describe(number)) for number, each in enumerate(columns.columns))
    zeros, ones = fitted[0, 0].sum(axis=0).tolist()
    found = np.round(figures, DIGITS), np.round(shared, DIGITS), np.array(evidence)
    return ToldColumns(*found, fitted[0], described=described, records=(zeros, ones))


def tell_exact(
    own: CountedColumns, outcome: StatisticsOutcome, plan: StatisticsPlan, place: int, judged: tuple[float, float] | None
) -> list[ToldColumns]:
    """What was opened without noise: of this party's columns, and at the active one of those of each other party.

    Args:
        own: this party's.
        outcome: of the computation.
        plan: of it.
        place: of this party.
        judged: at the active party the AUC of its own score and the share of label 1, over its whole table.
    """
    exact, worth, found = outcome.exact, outcome.worth, []
    assert exact is not None
    ends = np.cumsum([0, *plan.columns])
    for owner in range(len(plan.columns)) if place == 0 else (place,):
        columns = slice(ends[owner], ends[owner + 1])
        unknown = np.full(plan.columns[owner], np.nan)
        figures = exact.information, unknown, exact.distance, unknown, exact.chi_square, unknown, exact.stability
        bits = areas = _NONE
        if worth is not None and owner:
            bits = worth[ends[owner] - ends[1] : ends[owner + 1] - ends[1]]
            areas = np.array([promise_area(judged[0], each, judged[1]) for each in bits]) if judged else _NONE
        told = ToldColumns(
            np.stack([each if each is unknown else each[columns] for each in figures], axis=1), worth=bits, areas=areas
        )
        if owner == place:
            evidence = exact.evidence.reshape(-1, plan.cells)[columns]
            described = tuple((each.name, own.describe(number)) for number, each in enumerate(own.columns))
            told = replace(told, evidence=evidence, described=described)
        found.append(told)
    return found


def fit_totals(counts: Floats, deviation: float) -> Floats:
    """Numbers of all columns, float64[C, cells, 2], with the same totals, as they have without noise."""
    if not deviation:
        return counts
    totals = counts.sum(axis=1, keepdims=True)
    return np.asarray(counts + (totals.mean(axis=0, keepdims=True) - totals) / counts.shape[1])


def _compare(first: Floats, second: Floats, deviation: float, *, ordered: bool, known: bool = False) -> float:
    """The stability index of two groups of records; NaN where noise leaves less than two bins of them.

    Args:
        first, second: float64[cells], of both labels together.
        deviation: σ of each label's numbers.
        ordered: whether bins are intervals.
        known: whether the second ones have no noise.
    """
    of_both = math.sqrt(2) * deviation
    pooled = pool(np.stack([first, second], axis=1), 1.0, of_both, ordered=ordered)
    noise = of_both**2 * pooled.bins
    return diverge(pooled.counts[:, 0], pooled.counts[:, 1], noise, 0.0 * noise if known else noise)[0]
