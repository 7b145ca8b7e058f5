"""Tables of four parties that overlap in part, and jobs over them."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from vfl_node.configuration.models import parse
from vfl_node.job import Job

PASSIVE = ("lab", "insurer", "shop")

ROWS = {"clinic": range(120), "lab": range(20, 140), "insurer": range(10, 130), "shop": range(5, 125)}

COLUMNS = {"clinic": (0, 1, 4, 5), "lab": (2, 3, 6, 7), "insurer": (8, 9, 10), "shop": (11, 12)}

COMMON = len(range(20, 120))
"""Records that all of them have."""


@dataclass(frozen=True)
class SeveralTrial:
    """Tables of a clinic with labels, and of passive parties."""

    files: dict[str, Path]

    def job(self, text: str = "", passive: Collection[str] = PASSIVE) -> Job:
        """A job of the clinic with these passive parties."""
        return parse(job_text(text, passive), Job, source="job")


def job_text(text: str, passive: Collection[str] = PASSIVE) -> str:
    """The same, as its file has it."""
    parties = "" if "parties:" in text else f"parties: {{active: clinic, passive: [{', '.join(passive)}]}}\n"
    return f"name: trial\n{parties}{text or 'align: {protocol: psi}'}"


def make_several(folder: Path) -> SeveralTrial:
    """Rows and columns of scikit-learn's breast-cancer table."""
    from sklearn.datasets import load_breast_cancer

    table, files = load_breast_cancer(), {}
    for name, rows in ROWS.items():
        files[name] = folder / f"{name}.csv"
        with files[name].open("w", newline="") as file:
            writer = csv.writer(file)
            label = ["label"] if name == "clinic" else []
            writer.writerow(["id", *(f"measure-{column:02d}" for column in COLUMNS[name]), *label])
            for row in rows:
                values = [f"{table.data[row, column]:.6g}" for column in COLUMNS[name]]
                writer.writerow([f"canary-{row:04d}-patient", *values, *([1 - int(table.target[row])] if label else [])])
    return SeveralTrial(files)
