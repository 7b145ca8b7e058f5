"""Several runs side by side in Python, with the figures of ``vfl-node compare``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from markupsafe import Markup

from vfl_node.api.result import ReportPage, Result
from vfl_node.errors import UsageError
from vfl_node.report.choice import Choice, choose, describe_rows, to_document
from vfl_node.report.compare import Runs, compare_reports, name_runs
from vfl_node.report.side_by_side import Cell, parts
from vfl_node.report.stored import name_sources, read_report

Run = Result | ReportPage | Mapping[str, Any] | str | os.PathLike[str]
"""A run: its result, one party's report, ``report.json`` as keys and values, or the path of it or of its folder."""


def compare(runs: Sequence[Run] | Mapping[str, Run]) -> Comparison:
    """Put two to six runs side by side: which one to choose, and settings, metrics, leaks and cost.

    Args:
        runs: the runs, or name → run. Without names they are called as their jobs or, where two jobs have the same name, as
            their folders.

    Raises:
        UsageError: they are too few or too many, of several parties, or no reports of this version.
    """
    if isinstance(runs, Mapping):
        return Comparison(compare_reports({name: _report_of(run) for name, run in runs.items()}))
    return Comparison(
        compare_reports(name_runs([_report_of(run) for run in runs], name_sources([_place_of(run) for run in runs])))
    )


class Comparison:
    """Runs side by side; a notebook shows the table.

    Attributes:
        runs: each run, and what its settings are.
        choice: which run to choose, and why.
        note: what to know where the runs were measured on other rows; None where they were not.
    """

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.choice: Choice = choose(runs)
        self.note = describe_rows(runs)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(run.name for run in self.runs.runs)}: {self.choice.words})"

    @property
    def figures(self) -> dict[str, Any]:
        """All of it as keys and values: what ``vfl-node compare --json`` prints."""
        return to_document(self.runs)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each run: the settings that differ, metrics with their intervals, differences, leaks and cost."""
        return [
            {
                "run": run.name,
                **{setting.key: setting.values[number] for setting in self.runs.settings if setting.differs},
                "held_out_rows": run.rows,
                "same_rows": run.same_rows,
                **_spread("", run.metrics),
                **_spread("minus_first.", run.differences),
                **_spread("minus_alone.", run.alone),
                **{f"{secret}.{key}": getattr(leak, key) for secret, leak in run.leaks.items() for key in ("level", "value")},
                **{key: getattr(run, key) for key in ("seconds", "bytes", "steps")},
            }
            for number, run in enumerate(self.runs.runs)
        ]

    @property
    def frame(self) -> Any:
        """:attr:`rows` as a data frame of pandas. Raises UsageError if pandas is not installed."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise UsageError("pandas is not installed", hint="pip install pandas; comparison.rows does without") from None
        return pandas.DataFrame(self.rows).set_index("run")

    def _repr_html_(self) -> str:
        head = _join("<th>{}</th>", [run.name for run in self.runs.runs])
        wide = len(self.runs.runs) + 1
        body = Markup()
        for part in parts(self.runs):
            body += Markup('<tr><th colspan="{}">{}</th></tr>').format(wide, part.title)
            for line in part.lines:
                body += Markup("<tr><td>{}</td>{}</tr>").format(line.code or line.title, _join("<td>{}</td>", line.cells))
        words = _join("<p>{}</p>", [*self.choice.reasons, *filter(None, [self.note])])
        table = Markup("<table><thead><tr><th></th>{}</tr></thead><tbody>{}</tbody></table>").format(head, body)
        return Markup("<p><b>{}</b></p>{}{}").format(self.choice.words, table, words)


def _report_of(run: Run) -> Mapping[str, Any]:
    match run:
        case Result():
            return run.report.figures
        case ReportPage():
            return run.figures
        case Mapping():
            return run
        case str() | os.PathLike():
            return read_report(Path(run))
    raise UsageError(f"{type(run).__name__} is no run", hint="give results, reports, or paths of report.json")


def _place_of(run: Run) -> str:
    """Where it lies, as far as that is known."""
    match run:
        case Result():
            return str(run.folder)
        case str() | os.PathLike():
            return os.fspath(run)
    return "run"


def _spread(prefix: str, figures: Mapping[str, Any]) -> dict[str, float | str | None]:
    """Each figure's value and the ends of its interval as columns; of a difference also how it compares."""
    keys = {"": "value", ".low": "low", ".high": "high", ".change": "change"}
    return {
        f"{prefix}{name}{end}": getattr(figure, key)
        for name, figure in figures.items()
        for end, key in keys.items()
        if hasattr(figure, key)
    }


def _join(markup: str, values: Sequence[str | Cell]) -> Markup:
    """Each value in ``markup``, escaped."""
    texts = [value.words if isinstance(value, Cell) else value for value in values]
    return Markup().join(Markup(markup).format(text) for text in texts)  # noqa: S704 - of this module
