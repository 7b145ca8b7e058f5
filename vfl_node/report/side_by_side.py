"""The comparison of runs as a table in words: for the terminal, a notebook and the board."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vfl_node.job.evaluate import LOWER_IS_BETTER
from vfl_node.report.compare import ComparedRun, Difference, Runs
from vfl_node.report.results import CHANGES, METRICS, format_difference, format_value
from vfl_node.report.words import human_bytes, human_seconds

SECRET_TITLES = {"labels": "Labels", "membership": "Who is in the table", "columns": "Columns"}

NONE = "–"


@dataclass(frozen=True)
class Cell:
    """What the table says of one run.

    Attributes:
        text: the figure or word.
        sub: what it rests on.
        tag: a verdict: a change in words, or that rows are others.
        style: class of the style sheet for the ``tag``.
        level: of a leak; its word stands before the text.
        differs: whether it is marked as other than the first run's.
    """

    text: str = ""
    sub: str = ""
    tag: str = ""
    style: str = ""
    level: str = ""
    differs: bool = False

    @property
    def words(self) -> str:
        """All of it in one line."""
        return " ".join(filter(None, (self.level.replace("_", " "), self.text, self.tag, self.sub and f"({self.sub})")))


@dataclass(frozen=True)
class Line:
    """A line of the table: what it is about, and a cell for each run; ``code`` is a key of the job."""

    title: str
    cells: tuple[Cell, ...]
    sub: str = ""
    code: str = ""


@dataclass(frozen=True)
class Part:
    """Some lines below a title."""

    title: str
    lines: tuple[Line, ...]


def parts(compared: Runs) -> list[Part]:
    """The table, without parts that would be empty."""
    others = "others" if compared.party == compared.active else compared.active
    found = [
        Part("Settings that differ", tuple(_settings(compared))),
        Part("Result", tuple(_results(compared))),
        Part(f"Against “{compared.runs[0].name}”", tuple(_compare_first(compared))),
        Part(f"Against {compared.active} alone", tuple(_compare_alone(compared))),
        Part(f"What {others} could tell", tuple(_leaks(compared))),
        Part("Cost", tuple(_costs(compared.runs))),
    ]
    return [part for part in found if part.lines]


def equal_settings(compared: Runs) -> list[tuple[str, str]]:
    """Key and value of each setting that is the same in all runs."""
    return [(setting.key, str(setting.values[0])) for setting in compared.settings if not setting.differs]


def _settings(compared: Runs) -> Iterator[Line]:
    for setting in compared.settings:
        if setting.differs:
            first, title = setting.values[0], setting.key.rpartition(".")[2].replace("_", " ").capitalize()
            cells = tuple(Cell(NONE if value is None else value, differs=value != first) for value in setting.values)
            yield Line(title, cells, code=setting.key)


def _results(compared: Runs) -> Iterator[Line]:
    if not compared.metrics:
        return
    first = compared.runs[0]
    cells = (_rows_cell(run, first, compared.active) for run in compared.runs)
    yield Line("Measured on", tuple(cells), "held out")
    for name in compared.metrics:
        yield Line(METRICS[name][0], tuple(_figure_cell(run, name) for run in compared.runs), _direction(name))


def _rows_cell(run: ComparedRun, first: ComparedRun, active: str) -> Cell:
    if not run.metrics:
        return Cell(NONE)
    whose = "shared by all parties" if run.all_shared else f"all of {active}"
    real = "" if run.all_shared or run.real_share is None else f", {100 * run.real_share:.0f} % with others’ columns"
    rows = "rows" if run.rows is None else f"{run.rows:,} rows"
    splits = f"{run.splits} splits" if run.splits > 1 else "one split"
    return Cell(
        rows, f"{whose}{real}, {splits}", differs=not run.same_rows, tag="" if run.same_rows else "other rows", style="warn"
    )


def _figure_cell(run: ComparedRun, name: str) -> Cell:
    figure = run.metrics.get(name)
    if figure is None:
        return Cell("not measured")
    ends = _write_ends(figure.low, figure.high, lambda end: format_value(end, name))
    return Cell(format_value(figure.value, name), ends or "no interval")


def _compare_first(compared: Runs) -> Iterator[Line]:
    """The difference from the first run, a line a metric; one line where no run has its rows."""
    first, *others = compared.runs
    if not first.metrics or not any(run.metrics for run in others):
        return
    if not any(run.same_rows for run in others):
        other = Cell("no difference can be given", tag="other rows", style="warn")
        yield Line("All metrics", (Cell(NONE), *(other if run.metrics else Cell(NONE) for run in others)))
        return
    for name in first.metrics:
        cells = (_difference_cell(run.differences.get(name), name, same=run.same_rows) for run in others)
        yield Line(METRICS[name][0], (Cell(NONE), *cells), "same rows, split by split")


def _compare_alone(compared: Runs) -> Iterator[Line]:
    for name in compared.metrics:
        if any(name in run.alone or run.alone_rows == "other rows" for run in compared.runs):
            cells = (
                _difference_cell(run.alone.get(name), name, same=run.alone_rows != "other rows" or name not in run.metrics)
                for run in compared.runs
            )
            yield Line(METRICS[name][0], tuple(cells), "each run on its own rows")


def _difference_cell(found: Difference | None, name: str, *, same: bool) -> Cell:
    if not same:
        return Cell(tag="other rows", style="warn")
    if found is None:
        return Cell(NONE)
    ends = _write_ends(found.low, found.high, lambda end: format_difference(end, name))
    tag, style = (CHANGES[found.change], found.change) if found.change else ("no interval", "")
    return Cell(format_difference(found.value, name), ends, tag, style)


def _leaks(compared: Runs) -> Iterator[Line]:
    for secret in compared.secrets:
        yield Line(SECRET_TITLES[secret], tuple(_leak_cell(run, secret) for run in compared.runs), "strongest attack")


def _leak_cell(run: ComparedRun, secret: str) -> Cell:
    leak = run.leaks.get(secret)
    if leak is None:
        return Cell(NONE)
    text = "" if leak.value is None else f"{leak.value:.2f}"
    return Cell(text, (leak.attack or leak.why or "").replace("_", " "), level=leak.level)


def _costs(runs: Sequence[ComparedRun]) -> Iterator[Line]:
    yield Line("Took", tuple(Cell(human_seconds(run.seconds)) for run in runs))
    yield Line("Sent and received", tuple(Cell(human_bytes(run.bytes)) for run in runs))
    if any(run.steps for run in runs):
        yield Line(
            "Steps", tuple(Cell(NONE if run.steps is None else f"{run.steps:,}") for run in runs), "batches, in all splits"
        )


def _direction(name: str) -> str:
    return f"{'lower' if name in LOWER_IS_BETTER else 'higher'} is better"


def _write_ends(low: float | None, high: float | None, write: Callable[[float], str]) -> str:
    return "" if low is None or high is None else f"{write(low)} to {write(high)}"
