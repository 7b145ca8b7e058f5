"""What rows showed, kept on the disk while others run: a run of hours that is cut off has not been for nothing."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from rows import Outcome, Row


@dataclass
class Shown:
    """One row and what it showed.

    Attributes:
        row: of the table.
        outcome: None where it was never run.
        day: when that was; empty where it was never run.
        seed: of that run.
        load: of the machine when it ended.
    """

    row: Row
    outcome: Outcome | None = None
    day: str = ""
    seed: int = 0
    load: float = 0.0


class Found:
    """A file of outcomes, by the numbers of their rows; several runs may write to it side by side."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, row: Row, outcome: Outcome, seed: int) -> None:
        """What ``row`` showed now, instead of what it showed before."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        shown = {"outcome": asdict(outcome), "day": f"{datetime.now(timezone.utc):%Y-%m-%d}", "seed": seed}
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            all_shown = json.loads(file.read() or "{}") | {row.numbers: shown | {"load": os.getloadavg()[0]}}
            file.truncate(0)
            file.write(json.dumps(all_shown, indent=1))

    def of(self, rows: list[Row]) -> list[Shown]:
        """The rows, each with what it showed last."""
        held = json.loads(self._path.read_text()) if self._path.exists() else {}
        return [
            Shown(row, **(held[row.numbers] | {"outcome": Outcome(**held[row.numbers]["outcome"])}))
            if row.numbers in held
            else Shown(row)
            for row in rows
        ]
