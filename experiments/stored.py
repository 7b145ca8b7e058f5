"""Outcomes of an experiment's works, in a file that a run which was cut off goes on with."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.inference.experiment import Work
from experiments.inference.run import outcomes
from vfl_node.errors import UsageError


def complete(
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
        every: works whose outcomes are returned.
        head: what else the file says: ``seeds``, and on what outcomes depend beside the names of works.
        processes: that run at the same time.
        stored_after: works after which the file is written anew.
        go_on: whether outcomes that are stored are kept, all of them; otherwise the file begins anew.

    Returns:
        Name of each work of ``every`` that has one → its outcome.

    Raises:
        UsageError: the file that was to be gone on with has other settings (``E_SETTINGS``); it stays as it is.
    """
    kept = _load(file, head) if go_on and file.exists() else {}
    wanted = [work for work in works if work.name not in kept]
    count = itertools.count(1)

    def keep(name: str, outcome: Any) -> None:
        kept[name] = outcome
        if next(count) % stored_after == 0:
            _write(file, head, kept)

    if wanted:
        outcomes(wanted, shared, processes, keep)
    _write(file, head, kept)
    return {work.name: kept[work.name] for work in every if work.name in kept}


def _load(file: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """The outcomes of a file with the same ``head``, but for seeds."""
    stored = json.loads(file.read_text(encoding="utf-8"))
    kept: dict[str, Any] = stored.pop("trainings")
    wanted = json.loads(json.dumps(head))
    if other := sorted(name for name in (stored.keys() | wanted) - {"seeds"} if stored.get(name) != wanted.get(name)):
        raise UsageError(
            f"{file} has outcomes of other settings ({', '.join(other)}): they cannot stand beside new ones",
            code="E_SETTINGS",
            hint="leave out --go-on, which computes all of them again, or choose another --out",
        )
    return kept


def _write(file: Path, head: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    lines = [f"  {json.dumps(name)}: {json.dumps(kept[name], sort_keys=True)}" for name in sorted(kept)]
    said = "".join(f' "{name}": {json.dumps(value)},\n' for name, value in head.items())
    beside = file.with_suffix(".new")  # a run that is cut off here leaves the file as it was
    beside.write_text(f'{{\n{said} "trainings": {{\n' + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")
    beside.replace(file)
