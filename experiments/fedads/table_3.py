"""Table 3: how much each way to learn from rows that one party alone has is worth, between Vanilla and Oracle."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.fedads import paper
from experiments.fedads.outside import ALTERNATE, ORACLE, RowsPlan, trial
from experiments.florist.figures import Curve, Panel, drawing
from experiments.inference.experiment import Expectation, Found, cell, interval, lower, mean, table

PICTURE = "unaligned.svg"

GAIN, WITHIN, NOISE = 0.01, 0.005, 0.015
"""What a method of the alternating framework must gain at 2 %; how far one may be above Oracle; what ``criteo`` cannot show."""

NOT_CLAIMED = ("criteo",)


class Outcomes:
    """What was found on one table at one share of aligned rows, a value for each seed."""

    def __init__(self, plan: RowsPlan, found: Found, data: str, share: float) -> None:
        self.data, self.share, self.methods = data, share, plan.methods(data)
        self._plan, self._found = plan, found

    def of(self, method: str, value: str = "auc") -> list[float]:
        """``auc``, ``nll``, ``constant`` or ``alone``."""
        share = 1.0 if method == ORACLE else self.share
        return [self._found[trial(self.data, share, method, seed).name][value] for seed in range(self._plan.seeds)]

    def over(self, method: str, other: list[float], value: str = "auc") -> list[float]:
        """Paired differences of ``method`` and ``other``."""
        return [one - two for one, two in zip(self.of(method, value), other, strict=True)]

    @property
    def local_aligned(self) -> list[float]:
        """Of the label party alone, by the aligned rows."""
        return self.of("none", "alone")

    @property
    def local_all(self) -> list[float]:
        """Of the label party alone, by all its rows."""
        return self.of("jpl", "alone")

    def calibration(self, method: str) -> list[float]:
        """NLL above that of a constant."""
        return self.over(method, self.of(method, "constant"), "nll")


def page(plan: RowsPlan, found: Found) -> list[str]:
    """A table for each pair of data and share."""
    lines = [f"![AUC by method and share of aligned rows]({PICTURE})", "", "## The paper", "", *_paper(), ""]
    for data, share in plan.cells:
        of = Outcomes(plan, found, data, share)
        rows = [
            ["label party alone, aligned rows", cell(of.local_aligned), "", "", ""],
            ["label party alone, all its rows", cell(of.local_all), "", "", ""],
        ]
        for method in (*of.methods, ORACLE):
            gain = "" if method == "none" else interval(of.over(method, of.of("none")))
            over, name = interval(of.over(method, of.local_all)), "Oracle" if method == ORACLE else f"`{method}`"
            rows.append([name, cell(of.of(method)), gain, over, cell(of.calibration(method))])
        head = ["", "AUC", "− Vanilla (`none`)", "− label party alone, all rows", "NLL − that of a constant"]
        lines += [f"## {data}, {share:.0%} aligned", "", *table(head, rows), ""]
    return lines


def _paper() -> list[str]:
    rows = [[name, f"{auc:.3f}", f"{nll:.4f}"] for name, (auc, nll) in paper.TABLE_3.items()]
    return table(["method", "AUC", "NLL"], rows)


def check(plan: RowsPlan, found: Found) -> list[Expectation]:
    """What was expected before it was measured."""
    expected = []
    for data, share in plan.cells:
        of, where = Outcomes(plan, found, data, share), f"`{data}`, {share:.0%} aligned"
        for method in of.methods:
            if method in ALTERNATE and (share == 0.02 or data in ("generator", "small")):
                gain = lower(of.over(method, of.of("none")))
                expected.append(Expectation(f"{where}: {method} − none, lower end of the 95 % interval", gain, GAIN))
                gain = lower(of.over(method, of.local_all))
                expected.append(Expectation(f"{where}: {method} − label party alone with all rows, lower end", gain, 0.0))
            above = mean(of.over(method, of.of(ORACLE)))
            expected.append(Expectation(f"{where}: Oracle − {method}", -above, -(NOISE if data in NOT_CLAIMED else WITHIN)))
        gap = mean(of.over("none", of.local_aligned))
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

        curves = [_curve("label party alone, all its rows", [(of, of.local_all) for of in cells], baseline=True)]
        curves += [_curve(method, [(of, of.of(method)) for of in cells]) for method in cells[0].methods]
        curves.append(_curve("oracle: a partner for each row", [(of, of.of(ORACLE)) for of in cells], baseline=True))
        columns.append([Panel(f"{data}: AUC", "aligned rows, % of the pool", curves)])
    return {PICTURE: drawing(columns)}


def _curve(label: str, values: Sequence[tuple[Outcomes, list[float]]], *, baseline: bool = False) -> Curve:
    return Curve(label, [(100 * of.share, mean(value), 0.0) for of, value in values], baseline=baseline)
