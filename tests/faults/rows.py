"""The table of faults: what each row injects, how it is found out what happened, and whether that is what must happen."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vfl_node.errors import VflError


@dataclass
class Outcome:
    """What one row showed.

    Attributes:
        what: ``R`` for the same result, ``E_…`` for an error with that code, several of them, or why it was not tried.
        holds: whether that is what must happen; None where it was not tried.
        seconds: from the fault to the outcome, all of its places together.
        places: how many places, parties or variants were tried.
        note: what else there is to say, for the reader.
    """

    what: str
    holds: bool | None
    seconds: float
    places: int = 1
    note: str = ""


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        numbers: of the row or rows.
        fault: what is injected.
        must: what must happen.
        how: by what it is injected.
        run: does so. Returns what it saw (``R``, a code) and how many places it tried; raises where something else happened.
        bounded: whether it is part of the bounded selection.
    """

    numbers: str
    fault: str
    must: str
    how: str
    run: Callable[[Any], tuple[str, int] | tuple[str, int, str]] = field(repr=False)
    bounded: bool = False


ROWS: list[Row] = []


class NotTried(Exception):
    """Something that this machine lacks."""


def row(numbers: str, fault: str, *, must: str, how: str, bounded: bool = False) -> Callable[[Any], Any]:
    """Register a function as a row."""

    def register(run: Any) -> Any:
        ROWS.append(Row(numbers, fault, must, how, run, bounded))
        return run

    return register


def tried(of: Row, world: Any) -> Outcome:
    """Run one row; whatever happens is its outcome."""
    started = time.monotonic()
    try:
        what, places, *note = of.run(world)
        return Outcome(what, True, time.monotonic() - started, places, " ".join(note))
    except NotTried as lacking:
        return Outcome("not tried here", None, 0.0, 0, str(lacking))
    except VflError as error:
        return Outcome(error.code, False, time.monotonic() - started, note=error.message[:300])
    except Exception as error:  # noqa: BLE001 - a row that fails is said, and the others are tried
        traceback.print_exc()
        return Outcome(type(error).__name__, False, time.monotonic() - started, note=str(error)[:300].replace("\n", " "))
