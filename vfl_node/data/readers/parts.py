"""The files of one table: those of a folder, or those whose names fit a pattern such as ``lab/part-*.parquet``."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Collection
from pathlib import Path

from vfl_node.data.readers.input_file import unreadable
from vfl_node.errors import DataError

_UNSEEN = ("_", ".")
"""Names that begin so are marks and checksums, such as ``_SUCCESS``, not parts."""

_WITH_OLD_ROWS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""Folder that lists which of the files count → the program that keeps it."""

Stamp = tuple[int, int, int]
"""Number, size and time of a file, of which one differs when it has changed."""


def find_parts(path: Path, source: str) -> list[Path] | None:
    """The part files of a folder, or of a pattern that is no file itself, by their names; None: ``path`` is one file.

    Raises:
        DataError: as :func:`check_parts`, or it cannot be read (``E_FILE``).
        StateError: the machine has a problem, not the files.
    """
    try:
        found = _list(path)
        folders = [name for name, file in found.items() if file.is_dir()] if found is not None else []
    except OSError as error:
        raise unreadable(error, source) from None
    return None if found is None else [found[name] for name in check_parts(source, found, folders)]


def check_parts(source: str, names: Collection[str], folders: Collection[str]) -> list[str]:
    """Which of the ``names`` in a folder are parts, in their order; ``folders`` are those of them that are folders.

    Raises:
        DataError: there is no part (``E_FILE``), or a folder among them (``E_FORMAT``).
    """
    for log, program in _WITH_OLD_ROWS.items():
        if any(name.rpartition("/")[2] == log for name in names):
            raise DataError(
                f"{source}: is a table of {program}, whose files also have rows of older versions",
                code="E_FORMAT",
                hint="export its present rows into a folder or a file of their own",
            )
    parts = sorted(filter(_is_seen, names))
    if inner := [name for name in parts if name in folders]:
        raise DataError(
            f"{source}: has a folder in it, {inner[0]}, and not part files alone",
            code="E_FORMAT",
            hint="move the parts into one folder, or give their rows by a query (data.query), which DuckDB runs over files",
        )
    if not parts:
        raise DataError(
            f"{source}: is a folder without part files, or a pattern that no file fits",
            code="E_FILE",
            hint="set data.path to a file this user can read, to a folder whose files are the parts of one table, or to a "
            "pattern of their names, such as lab/part-*.parquet",
        )
    return parts


def is_table(path: Path) -> bool:
    """Whether there is a file, a folder, or a file whose name fits the pattern."""
    return path.exists() or bool(_list(path))


def stamps_of(path: Path) -> dict[str, Stamp]:
    """What tells whether a table's files have changed: of each file by its name, of one file under an empty one.

    Raises:
        OSError: there is none, or the system refuses it.
    """
    parts = _list(path)
    files = {"": path} if parts is None else {name: file for name, file in parts.items() if _is_seen(name)}
    if not files:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    facts = {name: file.stat() for name, file in files.items()}
    return {name: (about.st_ino, about.st_size, about.st_mtime_ns) for name, about in facts.items()}


def _list(path: Path) -> dict[str, Path] | None:
    """What is in a folder, or fits a pattern and is not hidden, by name; None: ``path`` is neither."""
    if path.is_dir():
        return {file.name: file for file in path.iterdir()}
    base, rest = Path(path.anchor), list(path.relative_to(path.anchor).parts)
    while rest and (base / rest[0]).exists():  # what exists is no pattern, whatever characters it has
        base /= rest.pop(0)
    if not any(set("*?[").intersection(name) for name in rest):
        return None
    found = {name: base / name for name in glob.glob("/".join(rest), root_dir=base)}  # noqa: PTH207 - takes any pattern
    logs = [file.parent / log for file in found.values() for log in _WITH_OLD_ROWS]
    return found | {str(log.relative_to(base)): log for log in logs if log.exists()}


def _is_seen(name: str) -> bool:
    return not name.rpartition("/")[2].startswith(_UNSEEN)
