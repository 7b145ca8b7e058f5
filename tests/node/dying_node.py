"""A node that kills itself at a place in a job that a file names by its number.

:func:`run` becomes one, as :mod:`killed_node` does. A place is a passing of one of
:data:`vfl_node.process.failpoints.POINTS` that belong to a run, counted from the file's writing: every message that is sent or
waited for, every chunk that is stored, every step of training, and the end. The node's folder holds

- ``death``, until it comes: the number, at which the process kills itself (SIGKILL); 0: never;
- ``places``, written here while ``death`` is there: the name of each place that was passed.

Every job has the same seed at this party, so that runs can be compared, and checkpoints after each epoch, however short.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import forked_node

from vfl_node.privacy.features.fitting import EFFORT
from vfl_node.process import failpoints
from vfl_node.training.network import journal

OUTSIDE = {"submit", "offer", "accept", "accepted", "device", "index", "write", "rename"}
"""Points that are passed outside of a run, or as often as time allows."""


class Deaths:
    """Counts places."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._passed, self._counting = folder, 0, threading.Lock()

    def reach(self, name: str) -> None:
        death = self._folder / "death"
        if name in OUTSIDE or not death.exists():
            return
        with self._counting:  # a job may have several threads
            places = self._folder / "places"
            self._passed = self._passed + 1 if places.exists() else 1
            with places.open("a") as passed:
                passed.write(f"{name}\n")
            if self._passed == int(death.read_text()):
                death.unlink()
                os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path, environment: Mapping[str, str], arguments: list[str], log: Path) -> None:
    failpoints.reach = Deaths(folder).reach
    journal.STEPS_BETWEEN = 1
    object.__setattr__(EFFORT, "steps", 30)  # of 300: what a node finds is compared with what it finds itself
    forked_node.run(environment, arguments, log, seed=folder.name)
