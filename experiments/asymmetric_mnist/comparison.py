"""A job run through the product from known secrets, beside plaintext regression from the same start.

Each party's secrets derive from its name here, so that a run can be repeated and its first
weights are known: the ones that the product draws, not zeros (see `vfl_node/training/glm/side.py`).
This is for experiments; a real party's come from its operating system.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.asymmetric_mnist.halves import Model, Tables, shared_rows, tables_of
from experiments.asymmetric_mnist.plaintext import Plaintext, secrets
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.training.logistic.config import Logistic

TOLERANCE = 1e-6
"""The product's weights lie nearer than this to those of plaintext."""

FAR = 3000
"""Iterations of plaintext to compare with: near the optimum where columns are not much correlated."""


@dataclass(frozen=True, eq=False)
class Run:
    """What the product made of a job.

    Attributes:
        report: the active party's.
        dropped: party → columns that it left out.
        model: both halves.
        seconds: wall time of all, tables and alignment included.
    """

    report: Mapping[str, Any]
    dropped: Mapping[str, frozenset[str]]
    model: Model
    seconds: float

    @property
    def iterations(self) -> list[dict[str, Any]]:
        """Loss, AUC, seconds and bytes of each."""
        return self.report["training"]["epochs"]

    def iteration_median(self, figure: str) -> float:
        """The median over all iterations of ``seconds`` or ``bytes``."""
        return float(np.median([iteration[figure] for iteration in self.iterations]))


def run(
    job: Job, files: Mapping[str, Path], out: Path, *, threads: int, on_view: Callable[[dict[str, Any]], None] | None = None
) -> Run:
    """Run ``job`` with every party in this process; artefacts lie in ``out``, ``on_view`` is told of progress."""
    started = time.monotonic()
    folders = simulate(job, files, out, randomness=secrets(job), threads=threads, on_view=on_view)
    return gathered(job, {name: folders[name] for name in files}, time.monotonic() - started)


def gathered(job: Job, folders: Mapping[str, Path], seconds: float) -> Run:
    """The artefacts of a job: data party → folder."""
    reports = {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}
    dropped = {name: frozenset(report["training"]["logistic"]["dropped"]) for name, report in reports.items()}
    return Run(reports[job.parties.active], dropped, Model.load(folders), seconds)


def check(difference: float, what: str) -> float:
    """``difference`` itself, if it is rounding and no more.

    Raises:
        SystemExit: it is larger.
    """
    if not difference < TOLERANCE:
        raise SystemExit(f"{what} differ by {difference:.3g}, and {TOLERANCE:g} is rounding: something is wrong")
    return difference


def changed(job: Job, **train: object) -> Job:
    """``job`` with other values in its section ``train``; flows with a coordinator get one."""
    spec = job.model_dump(mode="json")
    spec["train"] |= train
    spec["parties"]["coordinator"] = None if spec["train"]["flow"] == "two-party" else "coordinator"
    return Job.model_validate(spec)


def compared(job: Job, files: Mapping[str, Path], held_out: Tables, out: Path, *, threads: int) -> dict[str, Any]:
    """A line of :func:`markdown`: what the product makes of ``job``, which equals plaintext from the same start."""
    assert isinstance(job.train, Logistic)
    found = run(job, files, out, threads=threads)
    tables = tables_of(job, files)
    plaintext, _ = Plaintext.from_job(job, tables, found.dropped).advance(job.train.iterations)
    return {
        "run": f"{job.train.flow}, {job.train.loss}, {job.train.iterations:,} iterations",
        "trained": found.model.measure(tables, job.train.loss),
        "held_out": found.model.measure(held_out, job.train.loss),
        "seconds": found.iteration_median("seconds"),
        "bytes": found.iteration_median("bytes"),
        "difference": check(found.model.distance(plaintext.model), f"{job.name}, {job.train.flow}, {job.train.loss}: weights"),
    }


def references(job: Job, files: Mapping[str, Path], held_out: Tables) -> list[dict[str, Any]]:
    """Two lines of :func:`markdown`: plaintext over :data:`FAR` iterations, of both parties and of the active one alone."""
    assert isinstance(job.train, Logistic)
    tables, active = tables_of(job, files), job.parties.active
    shared = shared_rows(tables)[active]
    assert len(shared) == len(tables[active])  # so the active party alone has no more of them
    lines = []
    for who, names in (("plaintext", list(tables)), (f"{active} alone", [active])):
        start = Plaintext.from_job(job, {name: tables[name] for name in names}, dict.fromkeys(names, frozenset()))
        model = start.advance(FAR)[0].model
        measured = [model.measure({name: rows[name] for name in names}, job.train.loss) for rows in (tables, held_out)]
        line = {"run": f"{who}, {job.train.loss}, {FAR:,} iterations", "trained": measured[0], "held_out": measured[1]}
        lines.append(line | {"seconds": None, "bytes": None, "difference": None})
    return lines


def markdown(lines: Sequence[Mapping[str, Any]]) -> str:
    """A table of :func:`compared` and :func:`references`."""
    written = [
        "| run | loss | held out: AUC | accuracy | max \\|Δθ\\| | s an iteration | MB an iteration |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        cost = ["–"] * 3
        if line["difference"] is not None:
            cost = [f"{line['difference']:.1e}", f"{line['seconds']:.3g}", f"{line['bytes'] / 1e6:.3g}"]
        figures = line["held_out"]
        cells = [line["run"], f"{line['trained']['loss']:.4f}", f"{figures['auc']:.4f}", f"{figures['accuracy']:.4f}", *cost]
        written.append(f"| {' | '.join(cells)} |")
    return "\n".join(written) + "\n"
