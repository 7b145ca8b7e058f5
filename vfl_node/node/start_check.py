"""What a running node knows of its tables: it looks at their first rows when it starts, and again when a file has changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from vfl_node.data.profile import LabelProfile, TableProfile
from vfl_node.data.readers.parts import Stamp, stamps_of
from vfl_node.errors import UsageError
from vfl_node.node.check import check_table, describe_error
from vfl_node.process.machine import utc_now
from vfl_node.settings.node import DEFAULT_TABLE, Data, Settings

log = structlog.get_logger()

HEAD_ROWS = 10_000
"""So many rows a node looks at: half a second of work on 30 columns, however many rows there are."""

AGAIN_S = 60.0
"""Tables whose files change all the time are looked at no more often."""

STATUSES = ("checking", "unusable", "unknown", "usable")
"""Statuses of a table; the first counts for several."""


class StartCheck:
    """A look at the first rows of a node's tables, on a thread of its own, so that a large one does not delay the start.

    Args:
        settings: of the node.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tables = {name: data for name, data in settings.tables.items() if data.check}
        self._found: dict[str, dict[str, Any]] = {}
        self._files: dict[str, dict[str, Stamp] | None] = {}  # as they were when they were looked at
        self._lock = threading.Lock()
        self._began = 0.0
        self._thread = threading.Thread()

    def start(self) -> None:
        """Begin, if there is a table and its owner wants it."""
        if self._tables:
            self._found = {name: {"status": "checking"} for name in self._tables}
            self._look_at(self._tables)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until it is done."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def health(self) -> dict[str, Any] | None:
        """What was found, for the owner; None if nothing is checked.

        It has status (``checking``, ``usable``, ``unusable`` or ``unknown``) and, after the check, rows (how many were
        looked at), whole (whether these are all), columns (that a training reads), classes (of the labels, or None), checked
        (when) and errors ({code, message, hint}). Where tables have names it has the status, the worst of all, and under
        ``tables`` these keys for each name.
        """
        found = dict(self._found)
        if not found or isinstance(self._settings.data, Data):
            return found.get(DEFAULT_TABLE)
        return {"status": min((table["status"] for table in found.values()), key=STATUSES.index), "tables": found}

    def list_errors(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Name and first error of each table that cannot be used now. One whose file has changed is looked at again."""
        self.look_again()
        found = dict(self._found)
        for name, data in self._settings.tables.items():
            if reason := _reason_gone(data):
                hint = "put it back where the settings say (data.path), readable for this node's user"
                yield name, {"code": "E_FILE", "message": f"table {name} cannot be read: {reason}", "hint": hint}
            elif errors := found.get(name, {}).get("errors"):
                yield name, errors[0]

    def look_again(self) -> None:
        """Look at tables whose files have changed since the last look, unless that is under way or was not long ago.

        So it does at those of a database or a store that were refused: these may have been away.
        """
        with self._lock:
            if not self._files or self._thread.is_alive() or time.monotonic() - self._began < AGAIN_S:
                return
            changed = {
                name: data
                for name, data in self._tables.items()
                if _state_of(data) != self._files.get(name) or (data.path is None and self._found.get(name, {}).get("errors"))
            }
            if changed:
                self._look_at(changed)

    def _look_at(self, tables: Mapping[str, Data]) -> None:
        self._began = time.monotonic()
        self._files |= {name: _state_of(data) for name, data in tables.items()}
        # It ends with the node.
        self._thread = threading.Thread(target=self._check, args=[tables], name="table check", daemon=True)
        self._thread.start()

    def _check(self, tables: Mapping[str, Data]) -> None:
        for name, data in tables.items():
            said = {} if isinstance(self._settings.data, Data) else {"table": name}
            self._found[name] = self._check_table(data, said)

    def _check_table(self, data: Data, said: dict[str, str]) -> dict[str, Any]:
        """What is found in one table; ``said`` goes into each line of the log."""
        try:
            checked = check_table(self._settings, data=data, rows=HEAD_ROWS)
        except Exception as defect:  # noqa: BLE001 - of an installed reader; its text may show a cell
            log.warning("this node's table could not be checked", error=type(defect).__name__, **said)
            return {"status": "unknown"}
        for error in checked.errors:
            hint = "" if isinstance(error, UsageError) else error.hint  # it names what is audited or protected
            log.warning("this node's table cannot be used", code=error.code, reason=error.message, hint=hint, **said)
        return {
            "status": "unusable" if checked.errors else "usable",
            **_size(checked.profile),
            "checked": utc_now(),
            "errors": [describe_error(error) for error in checked.errors],
        }


def _state_of(data: Data) -> dict[str, Stamp] | None:
    """What tells whether the files of a table have changed; None: there are none, or none here."""
    try:
        return None if data.path is None else stamps_of(data.path)
    except OSError:
        return None


def _reason_gone(data: Data) -> str:
    """Why the system refuses the file of a table; empty where it does not, or there is none."""
    if data.path is None:
        return ""
    try:
        files = stamps_of(data.path)
    except OSError as error:
        return error.strerror or type(error).__name__
    return "" if "" not in files or os.access(data.path, os.R_OK) else "Permission denied"


def _size(seen: TableProfile | None) -> dict[str, Any]:
    """How large a table is, as far as it was looked at."""
    if seen is None:
        return dict.fromkeys(("rows", "whole", "columns", "classes"))
    classes = len(seen.label.counts) if isinstance(seen.label, LabelProfile) else None
    return {"rows": seen.rows, "whole": seen.whole, "columns": len(seen.features), "classes": classes}
