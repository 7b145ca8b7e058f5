"""A job's progress for a person: bars on a terminal, JSON lines otherwise."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import islice
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from vfl_node.report.words import attack_figures, label_figures, rebuilt_figures

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


class _Bars(Progress):
    """Bars, and lines below them."""

    below = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """As in the base."""
        yield from super().get_renderables()
        if self.below:
            yield Text(f"  {self.below}")


class ShownProgress:
    """Shows the views of one job as they come; a context manager."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._terminal = sys.stderr.isatty()
        self._last: tuple[Any, ...] = ()
        self._said = {"remark": "", "note": ""}
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
        phase, total = view["phase"], view["total"]
        if not self._terminal:
            alone = view.get("alone")
            tenths = [10 * view["done"] // total if total else 0, 10 * alone["epoch"] // alone["epochs"] if alone else 0]
            key = (view["state"], phase, *tenths, view["note"], view["remark"])
            if key != self._last:
                self._last = key
                worst = dict(islice(view.get("rebuilt", {}).items(), MOST_IN_JSON))  # in this order
                line = {name: of for name in SHOWN if (of := (view | {"rebuilt": worst}).get(name)) not in (None, "", {})}
                print(json.dumps(line), file=sys.stderr, flush=True)  # noqa: T201
            return
        for kind, said in self._said.items():
            if view[kind] and view[kind] != said:
                self._said[kind] = view[kind]
                self._bars.console.print(f"  {view[kind]}", markup=False, highlight=False)
        if not total:
            return
        for name, task in self._tasks.items():
            if name != phase:
                self._bars.update(task, completed=self._bars.tasks[task].total)
        if phase not in self._tasks:
            self._tasks[phase] = self._bars.add_task(f"{self._title}: {phase}"[:28], total=total, unit="", loss="")
        self._bars.below = _alone(view) or "\n  ".join(
            filter(
                None,
                (
                    attack_figures(view["attacks"], view["judged"]),
                    label_figures(view.get("labels", {})),
                    rebuilt_figures(view.get("rebuilt", {}), MOST_COLUMNS),
                ),
            )
        )
        loss = f"loss {view['loss']:.4f}" if view["loss"] is not None else ""
        if view.get("validation_loss") is not None:
            loss += f", validation {view['validation_loss']:.4f}"
        self._bars.update(self._tasks[phase], completed=view["done"], total=total, unit=view["unit"], loss=loss)


def _alone(view: dict[str, Any]) -> str:
    """How far the model of this party alone is, while it trains."""
    alone = view.get("alone")
    return f"alone: epoch {alone['epoch']:,} of {alone['epochs']:,}" if alone else ""
