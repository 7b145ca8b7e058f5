"""Reads a report that lies in a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vfl_node.errors import UsageError

MOST_BYTES = 1 << 28
"""A larger file is no report."""

FILE = "report.json"


def read_report(path: Path) -> dict[str, Any]:
    """The report in ``path``: a ``report.json``, or a folder with one.

    Raises:
        UsageError: there is none (``E_FILE``).
    """
    file = path / FILE if path.is_dir() else path
    try:
        if file.stat().st_size > MOST_BYTES:
            raise UsageError(f"{file} is too large for a report", code="E_FILE")
        found = json.loads(file.read_bytes())
    except OSError as error:
        hint = f"name a {FILE}, or a folder with one"
        raise UsageError(f"cannot read {file}: {error.strerror}", code="E_FILE", hint=hint) from None
    except (ValueError, RecursionError):
        raise UsageError(f"{file} is not JSON", code="E_FILE", hint=f"name a {FILE}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{file} is no report", code="E_FILE", hint=f"name a {FILE}")
    return found


def name_sources(places: Sequence[str]) -> list[str]:
    """What runs are called that are given as jobs' ids or paths: the folders with their reports, or all of the paths."""
    names = [_name_source(place) for place in places]
    return names if len(set(names)) == len(names) else list(places)


def _name_source(place: str) -> str:
    path = Path(place)
    folder = path.parent if path.name == FILE else path
    return folder.resolve().name if folder.exists() else path.stem
