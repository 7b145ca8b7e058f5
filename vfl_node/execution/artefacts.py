"""What the jobs of a trial leave, in the folder that its owner named."""

from __future__ import annotations

from pathlib import Path

from vfl_node.execution.outcome import ARTEFACTS
from vfl_node.process.files import private_folder, write_whole


def clear_artefacts(folders: list[Path]) -> None:
    """Remove what an earlier run left in ``folders``, so that nothing of it stands beside a new report."""
    for folder in folders:
        for name in ARTEFACTS:
            (folder / name).unlink(missing_ok=True)


def copy_artefacts(source: Path, target: Path) -> None:
    """Copy what a job left, each file whole (0600), the report last."""
    private_folder(target)
    for name in ARTEFACTS:
        if (source / name).exists():
            write_whole(target / name, (source / name).read_bytes())
