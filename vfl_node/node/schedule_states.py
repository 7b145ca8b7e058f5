"""What a node keeps of its schedules: how each stands, and marks of the records that its last job read.

It lies in ``state/schedules``: an index, and a file of marks for each schedule that compares, 32 bytes a record. Each has a
checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from vfl_node.errors import StateError
from vfl_node.node.record import SCHEDULE
from vfl_node.node.store import Store
from vfl_node.process.files import read_checked, write_checked
from vfl_node.settings.node import Settings

if TYPE_CHECKING:
    from vfl_node.data.marks import Marks
    from vfl_node.data.tables import Table

FOLDER, INDEX, MARKS = "schedules", "index.json", ".marks"
"""The folder in the state folder, the index in it, and how names of files of marks end."""

_HINT = "put state/schedules back, or remove the folder and start the node again: then each schedule begins anew"


@dataclass(frozen=True)
class ScheduleState:
    """How a schedule stands.

    Attributes:
        handled: the last planned time of which something has become, or before which nothing is planned; UTC, ISO 8601.
        became: what, in words for the owner.
        paused: why it submits nothing: ``owner``, ``refusals``; empty: it does.
        refusals: how many jobs in a row were refused, or failed for good.
        job: the last one; empty: there was none.
        ended: how that one has ended: ``done``, ``resumable``, ``cancelled here`` or the code of an error; empty: it has not.
    """

    handled: str
    became: str = "nothing yet"
    paused: str = ""
    refusals: int = 0
    job: str = ""
    ended: str = ""

    @property
    def reason(self) -> str:
        """Why the last job was refused, as far as that is known; empty: it was not."""
        if not self.refusals:
            return ""
        return self.became if self.became.startswith("refused") else f"{self.job} ended with {self.ended}"

    def describe(self) -> dict[str, Any]:
        """became, paused, refusals, reason, last_job and ended."""
        shown = {"became": self.became, "paused": self.paused, "refusals": self.refusals}
        return {**shown, "reason": self.reason, "last_job": self.job, "ended": self.ended}


class ScheduleStates:
    """How the schedules of one node stand. Safe to use from several threads.

    Args:
        state: the node's state folder.
        names: of its schedules; what is kept of others is forgotten.
        clock: tells the time, in UTC: times before a schedule was first seen were not missed.

    Attributes:
        lock: held while one is changed.
    """

    def __init__(self, state: Path, names: Collection[str], clock: Callable[[], datetime]) -> None:
        self._folder, self._names, self._clock, self.lock = state / FOLDER, names, clock, RLock()
        self._states: dict[str, ScheduleState] | None = None

    def find(self, name: str) -> ScheduleState:
        """How a schedule stands.

        Raises:
            StateError: what was kept is damaged, or of another version (``E_STATE_CORRUPT``, ``E_STATE_VERSION``).
            OSError: it cannot be read or written.
        """
        with self.lock:
            if (state := self._read().get(name)) is None:
                return self.change(name, handled=self._clock())
            return state

    def change(self, name: str, *, handled: datetime | None = None, **changes: Any) -> ScheduleState:
        """Store what has changed. Raises as :meth:`find`, and then it is as before."""
        with self.lock:
            states = self._read()
            at = handled.isoformat(timespec="seconds") if handled else self.find(name).handled
            changed = replace(states.get(name) or ScheduleState(at), handled=at, **changes)
            states = {known: state for known, state in states.items() if known in self._names} | {name: changed}
            self._folder.mkdir(mode=0o700, exist_ok=True)  # not the state folder, should that be gone
            write_checked(self._folder / INDEX, json.dumps({key: asdict(state) for key, state in states.items()}).encode())
            self._states = states
            return changed

    def read_marks(self, name: str) -> Marks | None:
        """Marks of the records that the schedule's last job read; None: there was none. Raises as :meth:`find`."""
        from vfl_node.data.marks import Marks

        with suppress(FileNotFoundError):
            return Marks.from_bytes(read_checked(self._folder / f"{name}{MARKS}", hint=_HINT))
        return None

    def _read(self) -> dict[str, ScheduleState]:
        if self._states is None:
            try:
                document = json.loads(read_checked(self._folder / INDEX, hint=_HINT))
                self._states = {name: ScheduleState(**state) for name, state in document.items()}
            except FileNotFoundError:
                self._states = {}
            except (TypeError, ValueError):
                raise StateError(f"{self._folder / INDEX} is of another version", code="E_STATE_VERSION", hint=_HINT) from None
        return self._states


def keep_marks(settings: Settings, store: Store, job_id: str, table: Table, secret: bytes) -> None:
    """Keep marks of what a job has read, where a schedule submitted it that compares. Raises StateError or OSError."""
    name = store.documents(job_id).get(SCHEDULE, b"").decode()
    if any(schedule.name == name and schedule.compares for schedule in settings.schedules):
        from vfl_node.data.marks import Marks

        (store.folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
        write_checked(store.folder / FOLDER / f"{name}{MARKS}", Marks.from_table(table, secret).to_bytes())
