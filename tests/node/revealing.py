"""Tables of which the passive party's columns can be rebuilt from embeddings, at any number of passive parties."""

from __future__ import annotations

import csv
import random
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vfl_node.configuration.models import parse
from vfl_node.job import Job

ROWS = 480

FLAG, KIND, NUMBER = "flag-canary-column", "kind-canary-column", "number-canary-column"
"""Columns of every passive party: fair, of four categories, normal. The label needs the number alone."""

COLUMNS = (FLAG, KIND, NUMBER)


@dataclass(frozen=True)
class Revealing:
    """Tables of a clinic with labels, and of passive parties."""

    files: dict[str, Path]

    def job(self, text: str = "") -> Job:
        """A job of all of them."""
        passive = ", ".join(name for name in self.files if name != "clinic")
        parties = f"parties: {{active: clinic, passive: [{passive}]}}\n"
        return parse(f"name: trial\n{parties}{text}", Job, source="job")


def make_revealing(folder: Path, passive: Collection[str] = ("lab",), rows: int = ROWS) -> Revealing:
    """Every party has all the records."""
    chance = random.Random("revealing")
    files = {name: folder / f"{name}.csv" for name in ("clinic", *passive)}
    sums = [0.0] * rows
    for name in passive:
        table = []
        for row in range(rows):
            number = chance.gauss(0, 1)
            sums[row] += number
            table.append([f"id-{row:04d}", chance.randrange(2), f"level-{chance.randrange(4)}", f"{number:.6f}", "same"])
        _write(files[name], ["id", FLAG, KIND, NUMBER, "constant"], table)
    labelled = [
        [f"id-{row:04d}", f"{chance.gauss(0, 1):.6f}", int(of + chance.gauss(0, 0.5) > 0)] for row, of in enumerate(sums)
    ]
    _write(files["clinic"], ["id", "own", "label"], labelled)
    return Revealing(files)


def _write(path: Path, head: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
