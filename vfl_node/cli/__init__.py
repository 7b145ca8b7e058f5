"""The command line: ``vfl-node``.

Exit status: 0 success, 1 a job or node failed, 2 bad usage (command, job file, settings),
3 a record was changed (audit-log --verify, ledger --verify, backup verify), 130 interrupted.
"""

from __future__ import annotations

# ruff: noqa: E402 - gc first
import gc

gc.disable()  # nothing that modules make while they are loaded is garbage, and to look for some takes an eighth of that time

import sys
import warnings
from io import TextIOWrapper
from typing import Any, NoReturn

import typer

from vfl_node.cli import (  # noqa: F401 - they register
    asks,
    audit,
    audit_log,
    audit_wire,
    backup,
    budget,
    check,
    compare,
    doctor,
    export,
    extensions,
    jobs,
    ledger,
    node,
    plan,
    policy,
    predictions,
    schedule,
    table,
    token,
    trace,
    trial,
    trust,
)
from vfl_node.cli.shared import app, err
from vfl_node.errors import VflError

gc.freeze()  # nor is it later
gc.enable()

__all__ = ["app", "main"]

INTERRUPTED = 130


def main() -> NoReturn:
    """Entry point: runs the command. A mistake of the user ends in one clear message, never in a traceback."""
    for stream in (sys.stdout, sys.stderr):  # names of columns may have letters that a terminal's encoding lacks
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning
    try:
        status = app(standalone_mode=False)
    except VflError as error:
        err.print(f"error: {error}")
        sys.exit(error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ("click", "typer"):
            raise
        show = getattr(error, "show", None)  # click's own usage errors
        if show:
            show()
        sys.exit(getattr(error, "exit_code", 2))
    if status == INTERRUPTED:  # typer turns Ctrl-C into this status by itself
        err.print("interrupted")
    sys.exit(status if isinstance(status, int) else 0)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **line: Any) -> None:
    """What a person can change in a file gets one line; the places in code of other warnings are for programmers."""
    text = f"{message}" if issubclass(category, FutureWarning) else f"{category.__name__}: {message}"
    err.print(f"warning: {text}")
