"""What is counted with one partner over all jobs, and how much its owner allows.

Each kind has a checked file (:mod:`vfl_node.process.files`) in the partner's folder, with a line for everything that counts.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from vfl_node.errors import UsageError
from vfl_node.gdp import epsilon_of
from vfl_node.process.files import read_checked, write_checked
from vfl_node.session.counted import LOSS, Counted
from vfl_node.session.spent import Account, Expense, Spent, loss_line


class PartnerCounts:
    """What was counted with one peer. Safe to use from several threads; one object for a folder.

    Args:
        folder: of this peer.
        peer: its name.
    """

    def __init__(self, folder: Path, peer: str) -> None:
        self._folder, self._peer = folder, peer
        self._lock = threading.Lock()

    def usage(self) -> dict[str, float]:
        """Name of the limit → how much of it is used: of one over a set or a table, of that of which most is used.

        Raises:
            StateError: a file is damaged (``E_STATE_CORRUPT``).
        """
        account = self.account()
        return {
            "alignments": len(self._lines("inputs")),
            "changes": max(0, _largest_count(self._lines("changes")) - 1),
            "trainings": _largest_count(self._lines("trainings")),
            "models_served": _largest_count(self._lines("models")),
            "linkages": _largest_count(self._lines("linkages")),
            "epsilon": round(max((epsilon_of(account.total(name).mu) for name in account.tables), default=0), 2),
        }

    def check(self, what: Counted) -> None:
        """Raise what :meth:`count` would, and count nothing."""
        what.number(self._lines(what.kind), self._peer)

    def count(self, what: Counted) -> int:
        """As :meth:`vfl_node.session.memory.Memory.count`."""
        with self._lock:
            number = what.number(lines := self._lines(what.kind), self._peer)
            if number and not what.is_known(lines):
                self._add(what.kind, what.line)
            return number

    def account(self) -> Account:
        """What hidden trainings have spent with this peer. Raises StateError as :meth:`usage`."""
        lines, accepted = self._lines("spent"), self._read(self._folder / "accepted")
        if accepted is not None and (loss := loss_line(int(accepted))) not in lines:  # it is written when the two next meet
            lines.append(loss)
        return Account(lines, self._lines("forgotten"))

    def check_expense(self, what: Expense) -> None:
        """As :meth:`vfl_node.session.memory.Memory.check_expense`."""
        what.total_with(self.account(), self._peer)

    def spend(self, what: Expense) -> Spent:
        """As :meth:`vfl_node.session.memory.Memory.spend`; it is on the disk when this returns."""
        with self._lock:
            spent = what.total_with(account := self.account(), self._peer)
            if what.line not in account.lines:
                self._add("spent", what.line)
            return spent

    def forget(self) -> int:
        """Begin a new count of what is spent with this peer; returns how many expenses counted until now.

        What was counted stays on the disk, and in :meth:`account`. The node may be running: it writes the other file only.

        Raises:
            UsageError: nothing counts (``E_CONFIG``).
        """
        account = self.account()
        if not (counting := set(account.lines) - set(account.forgotten)):
            raise UsageError(f"nothing is spent with {self._peer}", code="E_CONFIG", hint="vfl-node budget shows what is")
        write_checked(self._folder / "forgotten", "\n".join(account.lines).encode())
        return len(counting)

    def _add(self, kind: str, line: str) -> None:
        write_checked(self._folder / kind, "\n".join([*self._lines(kind), line]).encode())

    def _lines(self, kind: str) -> list[str]:
        return (self._read(self._folder / kind) or b"").decode().splitlines()

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_checked(path, hint="put the newest copy of state/partners back")
        except FileNotFoundError:
            return None


def _largest_count(lines: Sequence[str]) -> int:
    """The largest count over one set or table, which each line begins with; some lines count over every one."""
    own = [line for line in lines if " " in line and not line.startswith(LOSS)]
    return len(lines) - len(own) + max(Counter(line.partition(" ")[0] for line in own).values(), default=0)
