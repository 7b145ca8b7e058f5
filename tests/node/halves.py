"""What the halves of a model say that real nodes have kept."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import read_input
from vfl_node.execution.known_rows import TrialParty, write_predictions
from vfl_node.job import Job
from vfl_node.settings.reading import load_settings


def together(federation: Any, job: Job, model: str, names: Iterable[str], folder: Path) -> dict[str, float]:
    """Id → what ``vfl-node run --predictions`` writes of the halves of ``model``, which these nodes trained by ``job``."""
    parties = {}
    for name in names:
        settings = load_settings(federation.folder / name / "node.yaml")
        table = read_input(settings, job)
        parties[name] = TrialParty(settings, JobFolder(federation.job_folder(name, model)), table, table)
    write_predictions(job, parties, folder / "together.csv")
    with (folder / "together.csv").open() as file:
        return {row["id"]: float(row["probability"]) for row in csv.DictReader(file)}
