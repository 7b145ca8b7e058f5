"""Table 3: how much each way to learn from rows that one party alone has is worth, between Vanilla and Oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.fedads import paper
from experiments.fedads.outside import LOCAL_ALIGNED, LOCAL_ALL, ORACLE, RESAMPLED, RowsPlan, trial
from experiments.fedads.resampling import Floats, half_width
from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.experiment import Expectation, Found, cell, interval, lower, mean, table

PICTURE = "unaligned.svg"

GAIN, WITHIN, NOISE = 0.01, 0.005, 0.015
"""What a method must gain at 2 %; how far one may be above Oracle; what the rows held out of ``criteo`` cannot show."""

Line = tuple[str, str]
"""Whose training, and which of its values."""

VANILLA, ALONE = ("none", "auc"), (LOCAL_ALL, "alone")
LINES: Mapping[str, Line] = {"Vanilla": VANILLA, "alone": ALONE}
"""What a method must beat."""


class Outcomes:
    """What was found on one table at one share of aligned rows, a value for each seed."""

    def __init__(self, plan: RowsPlan, found: Found, data: str, share: float) -> None:
        self.data, self.share, self.methods, self.seeds = data, share, plan.methods(data), plan.seeds_of(data, share)
        self._found = found

    def values(self, method: str, value: str = "auc") -> list[float]:
        """``auc``, ``nll``, ``constant`` or ``alone``."""
        return [self._found[self._name(method, seed)][value] for seed in self.seeds]

    def differences(self, method: str, other: list[float], value: str = "auc") -> list[float]:
        """Paired differences of ``method`` and ``other``."""
        return [one - two for one, two in zip(self.values(method, value), other, strict=True)]

    @property
    def local_aligned(self) -> list[float]:
        """AUC of the label party alone, by the aligned rows."""
        return self.values(LOCAL_ALIGNED, "alone")

    @property
    def local_all(self) -> list[float]:
        """AUC of the label party alone, by all its rows."""
        return self.values(*ALONE)

    def resampled(self, method: str, value: str = "auc") -> Floats:
        """``auc`` or ``alone`` on each resample of the rows held out, the mean over seeds; of tables that are ``RESAMPLED``."""
        kept = [self._found[self._name(method, seed)]["resampled"][value] for seed in self.seeds]
        return np.mean(kept, axis=0, dtype=np.float64)

    def difference(self, method: str, line: Line) -> str:
        """The gain over a line with its interval over seeds; of tables that are ``RESAMPLED`` one over rows comes before."""
        over_seeds = interval(self.differences(method, self.values(*line)))
        if self.data not in RESAMPLED:
            return over_seeds
        low, high = self.row_interval(method, line)
        gain, ends = over_seeds.split(" ", 1) if " " in over_seeds else (over_seeds, "")
        return f"{gain} [{low:+.3f}, {high:+.3f}]" + f"; {ends}" * bool(ends)

    def row_interval(self, method: str, line: Line) -> tuple[float, float]:
        """The 95 % interval of a gain over the rows held out, by the paired bootstrap; of tables that are ``RESAMPLED``."""
        gain, half = (
            mean(self.differences(method, self.values(*line))),
            half_width(self.resampled(method), self.resampled(*line)),
        )
        return gain - half, gain + half

    def claimed(self, method: str) -> str:
        """Lines that it is said to be above or below: by :data:`NOISE` at least, and 0 in neither interval."""
        found = []
        for name, line in LINES.items():
            values = self.differences(method, self.values(*line))
            for word, sign in (("above", 1), ("below", -1)):
                signed = [sign * value for value in values]
                over_rows = min(sign * end for end in self.row_interval(method, line))
                if mean(signed) >= NOISE and lower(signed) > 0 and over_rows > 0:
                    found.append(f"{word} {name}")
        return ", ".join(found) or "–"

    def calibration(self, method: str) -> list[float]:
        """NLL above that of a constant."""
        return self.differences(method, self.values(method, "constant"), "nll")

    def _name(self, method: str, seed: int) -> str:
        return trial(self.data, 1.0 if method == ORACLE else self.share, method, seed).name


def page(plan: RowsPlan, found: Found) -> list[str]:
    """A table for each pair of data and share."""
    lines = [f"![AUC by method and share of aligned rows]({PICTURE})", "", "## The paper", "", *_paper(), ""]
    for data, share in plan.cells:
        outcomes = Outcomes(plan, found, data, share)
        gains = ["− Vanilla (`none`)", "− label party alone, all rows"]
        if data in RESAMPLED:
            gains = [f"{gain}: over rows; over seeds" for gain in gains] + ["claimed"]
        rows = [
            ["label party alone, aligned rows", cell(outcomes.local_aligned), *[""] * len(gains), ""],
            ["label party alone, all its rows", cell(outcomes.local_all), *[""] * len(gains), ""],
        ]
        for method in (*outcomes.methods, ORACLE):
            differences = ["" if (method, "auc") == line else outcomes.difference(method, line) for line in LINES.values()]
            if data in RESAMPLED:
                differences.append(outcomes.claimed(method))
            name = "Oracle" if method == ORACLE else f"`{method}`"
            rows.append([name, cell(outcomes.values(method)), *differences, cell(outcomes.calibration(method))])
        title = f"## {data}, {share:.0%} aligned, {len(outcomes.seeds)} seeds"
        lines += [title, "", *table(["", "AUC", *gains, "NLL − that of a constant"], rows), ""]
    return [*lines, *_more_seeds(plan, found)]


def _more_seeds(plan: RowsPlan, found: Found) -> list[str]:
    """What the first seeds said, and what the others say, where there are others; nothing where there are none."""
    few, rows = plan.seeds, []
    for data, share in plan.cells:
        outcomes = Outcomes(plan, found, data, share)
        for method in outcomes.methods:
            gain = outcomes.differences(method, outcomes.values("none"))
            if method != "none" and len(gain) > few + 1:
                where = f"`{data}`, {share:.0%} aligned: `{method}` − `none`"
                rows.append([where, *map(interval, (gain[:few], gain[few:], gain))])
    head = ["", f"the first {few} seeds", "the others", "all"]
    return ["## What few seeds are worth", "", *table(head, rows), ""] if rows else []


def _paper() -> list[str]:
    rows = [[name, f"{auc:.3f}", f"{nll:.4f}"] for name, (auc, nll) in paper.TABLE_3.items()]
    return table(["method", "AUC", "NLL"], rows)


def check(plan: RowsPlan, found: Found) -> list[Expectation]:
    """What was expected before it was measured."""
    expected = []
    for data, share in plan.cells:
        outcomes, where = Outcomes(plan, found, data, share), f"`{data}`, {share:.0%} aligned"
        for method in outcomes.methods:
            if method != "none" and (share == 0.02 or data in ("generator", "small")):
                gain = lower(outcomes.differences(method, outcomes.values("none")))
                expected.append(Expectation(f"{where}: {method} − none, lower end of the 95 % interval", gain, GAIN))
                gain = lower(outcomes.differences(method, outcomes.local_all))
                expected.append(Expectation(f"{where}: {method} − label party alone with all rows, lower end", gain, 0.0))
            above = mean(outcomes.differences(method, outcomes.values(ORACLE)))
            expected.append(Expectation(f"{where}: Oracle − {method}", -above, -(NOISE if data in RESAMPLED else WITHIN)))
        gap = mean(outcomes.differences("none", outcomes.local_aligned))
        expected.append(Expectation(f"{where}: none − label party alone with aligned rows", gap, 0.0))
    return expected


def drawings(plan: RowsPlan, found: Found) -> dict[str, str]:
    """AUC against the share of aligned rows, a panel for each table with several."""
    shares: dict[str, list[float]] = {}
    for data, share in plan.cells:
        shares.setdefault(data, []).append(share)
    columns = []
    several = {data: of_data for data, of_data in shares.items() if len(of_data) > 1 or plan.small}
    for data, of_data in several.items():
        cells = [Outcomes(plan, found, data, share) for share in of_data]

        curves = [_curve("label party alone, all its rows", [(cell, cell.local_all) for cell in cells], baseline=True)]
        curves += [_curve(method, [(cell, cell.values(method)) for cell in cells]) for method in cells[0].methods]
        curves.append(_curve("oracle: a partner for each row", [(cell, cell.values(ORACLE)) for cell in cells], baseline=True))
        columns.append([Panel(f"{data}: AUC", "aligned rows, % of the pool", curves)])
    return {PICTURE: drawing(columns)}


def _curve(label: str, values: Sequence[tuple[Outcomes, list[float]]], *, baseline: bool = False) -> Curve:
    return Curve(label, [(100 * cell.share, mean(value), 0.0) for cell, value in values], baseline=baseline)
