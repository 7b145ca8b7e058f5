"""A node that notes what each job aligned, since the alignment goes when a job has ended."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import forked_node

from vfl_node.alignment.alignment import Alignment
from vfl_node.execution.folder import JobFolder
from vfl_node.training.network import journal


def run(noted: Path, environment: Mapping[str, str], arguments: list[str], log: Path) -> None:
    """Become a node as :func:`forked_node.run` does; it adds a job's id and a digest of its alignment to the file ``noted``.

    Every job has the same seed at this party, so that models can be compared.
    """
    save = JobFolder.save_alignment

    def saves(folder: JobFolder, alignment: Alignment, *arguments: Any) -> None:
        save(folder, alignment, *arguments)
        arrays = [alignment.rows, *([] if alignment.similarities is None else [alignment.similarities])]
        digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
        with noted.open("a") as file:
            file.write(f"{folder.path.name} {digest}\n")

    journal.STEPS_BETWEEN = 1  # a checkpoint after each epoch, however short
    JobFolder.save_alignment = saves  # type: ignore[method-assign]
    forked_node.run(environment, arguments, log, seed=noted.name)


def program(noted: Path) -> Any:
    """What a federation runs in place of its nodes."""
    from nodes import Child

    return lambda arguments, log: Child(run, noted, dict(os.environ), arguments, log)
