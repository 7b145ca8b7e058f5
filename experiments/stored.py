"""Outcomes of an experiment's works, in a file that a run which was cut off goes on with."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.inference.experiment import Work
from experiments.inference.run import outcomes


def completed(
    file: Path,
    works: Sequence[Work],
    shared: Path,
    *,
    every: Sequence[Work],
    head: Mapping[str, Any],
    processes: int,
    stored_after: int,
    go_on: bool,
) -> dict[str, Any]:
    """Run the works whose outcomes are not in ``file`` yet, and write it.

    Args:
        file: JSON with ``head`` and ``trainings``: name of a work → its outcome, a line each.
        works: those that are run.
        shared: folder of the shared data sets.
        every: works whose outcomes the file may have; others are dropped at the end.
        head: what else the file says.
        processes: that run at the same time.
        stored_after: works after which the file is written anew.
        go_on: whether outcomes that are stored are kept.

    Returns:
        Name of each work that has one → its outcome.
    """
    kept = json.loads(file.read_text(encoding="utf-8"))["trainings"] if go_on and file.exists() else {}
    wanted = [work for work in works if work.name not in kept]
    count = itertools.count(1)

    def keep(name: str, outcome: Any) -> None:
        kept[name] = outcome
        if next(count) % stored_after == 0:
            _write(file, head, kept)

    if wanted:
        outcomes(wanted, shared, processes, keep)
    kept = {work.name: kept[work.name] for work in every if work.name in kept}
    _write(file, head, kept)
    return kept


def _write(file: Path, head: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    lines = [f"  {json.dumps(name)}: {json.dumps(kept[name], sort_keys=True)}" for name in sorted(kept)]
    said = "".join(f' "{name}": {json.dumps(value)},\n' for name, value in head.items())
    file.write_text(f'{{\n{said} "trainings": {{\n' + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")
