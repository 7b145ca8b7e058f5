"""A job's progress: bars on a terminal, else one short line a change; or lines of JSON for a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text
from typing_extensions import override

from vfl_node.process.logs import Seldom
from vfl_node.report.words import attack_figures, label_figures, quantity, rebuilt_figures, round_numbers

SHOWN = (
    "id",
    "state",
    "phase",
    "done",
    "total",
    "unit",
    "loss",
    "validation_loss",
    "attacks",
    "judged",
    "rebuilt",
    "labels",
    "remark",
    "note",
    "alone",
)
"""The keys of a view that a line of JSON has."""

MOST_COLUMNS = 3
"""Columns that are rebuilt and fit below the bars; a line of JSON has :data:`MOST_IN_JSON`."""

MOST_IN_JSON = 10

ALONE_S = 30.0
"""Seconds between two lines about the model of this party alone: there may be many such models, each of a second."""


class _Bars(Progress):
    """Bars, and lines below them."""

    below = ""

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.below:
            yield Text(f"  {self.below}")


class ShownProgress:
    """Shows the views of one job as they come; a context manager.

    Args:
        title: of the job.
        as_json: whether a program reads it.
    """

    def __init__(self, title: str, *, as_json: bool = False) -> None:
        self._title, self._as_json = title, as_json
        self._terminal = sys.stderr.isatty() and not as_json
        self._last: tuple[Any, ...] = ()
        self._said = {"remark": "", "note": ""}
        self._far, self._seldom = "", Seldom(ALONE_S)
        self._bars = _Bars(
            SpinnerColumn(),
            TextColumn("{task.description:<28}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]} {task.fields[loss]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=not self._terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ShownProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def update(self, view: dict[str, Any]) -> None:
        """Show one view of the job, as :meth:`vfl_node.node.jobs.Jobs.view` gives it."""
        if self._terminal:
            self._draw(view)
        elif (key := _change_key(view)) != self._last:
            self._last = key
            for line in [_json(view)] if self._as_json else self._lines(view):
                print(line, file=sys.stderr, flush=True)  # noqa: T201

    def _lines(self, view: dict[str, Any]) -> Iterator[str]:
        """A change in words: what is new of the remark and the note, then how far the job is."""
        yield from (f"{self._title}: {text}" for text in self._news(view))
        far = _progress_text(view) if not view.get("alone") else _alone_text(view) if self._seldom.lets("alone") else ""
        if far not in ("", self._far):
            self._far = far
            yield f"{self._title}: {far}"

    def _news(self, view: dict[str, Any]) -> Iterator[str]:
        for kind, said in self._said.items():
            if view[kind] and view[kind] != said:
                self._said[kind] = view[kind]
                yield view[kind]

    def _draw(self, view: dict[str, Any]) -> None:
        """A change of the bars."""
        phase, total = view["phase"], view["total"]
        for text in self._news(view):
            self._bars.console.print(f"  {text}", markup=False, highlight=False)
        if not total:
            return
        for name, task in self._tasks.items():
            if name != phase:
                self._bars.update(task, completed=self._bars.tasks[task].total)
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(f"{self._title}: {phase}"[:28], total=total, unit="", loss="")
        self._bars.below = _alone_text(view) or "\n  ".join(
            filter(
                None,
                (
                    attack_figures(view["attacks"], view["judged"]),
                    label_figures(view.get("labels", {})),
                    rebuilt_figures(view.get("rebuilt", {}), MOST_COLUMNS),
                ),
            )
        )
        self._bars.update(self._tasks[phase], completed=view["done"], total=total, unit=view["unit"], loss=_loss_text(view))


def _change_key(view: dict[str, Any]) -> tuple[Any, ...]:
    """What makes a new line when it changes."""
    alone = view.get("alone")
    tenths = [
        10 * view["done"] // view["total"] if view["total"] else 0,
        10 * alone["epoch"] // alone["epochs"] if alone else 0,
    ]
    return view["state"], view["phase"], *tenths, view["note"], view["remark"]


def _json(view: dict[str, Any]) -> str:
    worst = dict(islice(view.get("rebuilt", {}).items(), MOST_IN_JSON))  # in this order
    line = {name: value for name in SHOWN if (value := (view | {"rebuilt": worst}).get(name)) not in (None, "", {})}
    return json.dumps(round_numbers(line))


def _progress_text(view: dict[str, Any]) -> str:
    """How far a job is, in words; empty where its note says all."""
    if not view["total"]:
        return ""
    loss = _loss_text(view)
    return f"{view['phase']} {view['done']:,} of {view['total']:,} {view['unit']}" + (f", {loss}" if loss else "")


def _loss_text(view: dict[str, Any]) -> str:
    kinds = {"loss": "loss", "validation": "validation_loss"}
    return ", ".join(f"{name} {quantity(loss)}" for name, key in kinds.items() if (loss := view.get(key)) is not None)


def _alone_text(view: dict[str, Any]) -> str:
    """How far the model of this party alone is, while it trains."""
    alone = view.get("alone")
    return f"alone: epoch {alone['epoch']:,} of {alone['epochs']:,}" if alone else ""
