"""What is counted with one partner over all jobs, and how much its owner allows.

Each kind has a checked file (:mod:`vfl_node.files`) in the partner's folder, with a line for everything that counts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vfl_node.files import read_checked, write_checked
from vfl_node.session.counted import LOSS, Counted


class PartnerCounts:
    """What was counted with one peer. Safe to use from several threads; one object for a folder.

    Args:
        folder: of this peer.
        peer: its name.
    """

    def __init__(self, folder: Path, peer: str) -> None:
        self._folder, self._peer = folder, peer
        self._lock = threading.Lock()

    def used(self) -> dict[str, int]:
        """Name of the limit → how much of it is used: of one over a set, of the set of which most is used.

        Raises:
            StateError: a file is damaged (``E_STATE_CORRUPT``).
        """
        linkages = self._lines("linkages")
        losses = sum(line.startswith(LOSS) for line in linkages)
        return {
            "inputs_per_peer": len(self._lines("inputs")),
            "changes_per_peer": max(0, len(self._lines("changes")) - 1),
            "trainings_per_set": _most_over_one_set(self._lines("trainings")),
            "models_served": _most_over_one_set(self._lines("models")),
            "linkages_per_set": losses + _most_over_one_set([line for line in linkages if not line.startswith(LOSS)]),
        }

    def check(self, what: Counted) -> None:
        """Raise what :meth:`count` would, and count nothing."""
        what.number(self._lines(what.kind), self._peer)

    def count(self, what: Counted) -> int:
        """As :meth:`vfl_node.session.memory.Memory.count`."""
        with self._lock:
            number = what.number(lines := self._lines(what.kind), self._peer)
            if what.line not in lines:
                self._add(what.kind, what.line)
            return number

    def _add(self, kind: str, line: str) -> None:
        write_checked(self._folder / kind, "\n".join([*self._lines(kind), line]).encode())

    def _lines(self, kind: str) -> list[str]:
        return (self._read(self._folder / kind) or b"").decode().splitlines()

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_checked(path, hint="put the newest copy of state/partners back")
        except FileNotFoundError:
            return None


def _most_over_one_set(lines: Sequence[str]) -> int:
    """Of lines that begin with the digest of a set and a space, how many there are over one set at most."""
    return max(Counter(line.partition(" ")[0] for line in lines).values(), default=0)
