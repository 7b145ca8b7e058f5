"""What is counted with one partner over all jobs, and how much its owner allows.

All of it stands in the partner's lane (:mod:`vfl_node.trust.lanes`), as lines of several kinds::

    count, spend, answer,   something was counted: its line, under the kind that it is counted among
    question
    reserve                 a job has set something aside, before it aligned: it counts
    release                 the job has ended, and what it had set aside and not used counts no more
    extend                  both owners have agreed on more of a budget until a day
    loss                    the owner has accepted that entries are lost
    forget                  the owner has begun a new count of what is spent
    import                  what earlier versions had counted in files
    restore                 a backup was restored: what jobs had set aside in it counts, whether or not they used it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from vfl_node.errors import UsageError
from vfl_node.gdp import epsilon_of
from vfl_node.node.lineages import Lineages
from vfl_node.node.partner_upgrade import import_counts
from vfl_node.process.files import read_checked
from vfl_node.process.machine import utc_now
from vfl_node.session.counted import BUDGETS, LOSS, OF_A_SET, OF_A_TABLE, Counted, count_new
from vfl_node.session.questions import KIND, AskedIds, Way, count_uses
from vfl_node.session.spent import Account, Expense, Spent
from vfl_node.settings.bounds import Use, raise_total, rates_of, total_of
from vfl_node.settings.limits import Budgets, QueryLimits
from vfl_node.trust.extensions import EXTEND
from vfl_node.trust.lanes import FILE, Lane, LaneEntry, Signing

_SPENT, _FORGOTTEN = "spent", "forgotten"

NOTHING: Mapping[str, Sequence[str]] = {}


class PartnerCounts:
    """What was counted with one peer. Safe to use from several threads.

    Attributes:
        folder: of this peer; it need not be there.
        peer: its name.
        lane: of it.
    """

    def __init__(self, folder: Path, peer: str, signing: Signing | None = None) -> None:
        """Open the counts; ``signing``: of this node. Raises StateError if what an earlier version left is damaged."""
        self.folder, self.peer = folder, peer
        self.lane = Lane(folder / FILE, peer, signing)
        self._lineages = Lineages(folder.parent.parent)
        self._lock = self.lane.lock
        self._summed = 0  # entries
        self._newest: LaneEntry | None = None  # the last of them
        self._kinds: dict[str, dict[str, str]] = {}  # kind → line → the job that has only set it aside; empty: it is counted
        self._since: dict[str, dict[str, str]] = {}  # kind → line → when it began to count
        self._released: dict[str, set[str]] = {}
        self._latest = ""  # time of an entry until now
        import_counts(folder, self.lane)

    def usage(self) -> dict[str, float]:
        """Name of the limit → how much of it is used: of one over a set or a table, of that of which most is used.

        Raises:
            StateError: the lane is damaged (``E_STATE_CORRUPT``).
        """
        account = self.account()
        return {
            "alignments": len(self._counting("inputs")),
            "changes": max(0, self._largest_count("changes") - 1),
            "trainings": self._largest_count("trainings", (OF_A_TABLE, OF_A_SET)),
            "trainings_in_clear": self._largest_count("clear"),
            "models_served": self._largest_count("models"),
            "linkages": self._largest_count("linkages"),
            "epsilon": round(
                max((epsilon_of(account.total(*names).mu) for _, names in self.group_tables(account)), default=0), 2
            ),
        }

    def group_tables(self, account: Account, names: Collection[str] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Each table of ``names`` and of the account → under which names it is counted. Raises StateError."""
        groups = {table.counted: table.group for table in self._lineages.tables}
        own = {name: self._lineages.names(name) for name in names}
        for name in sorted({*own, *account.tables} - {counted for counted, *_ in own.values()} | set(own)):
            yield (
                name,
                own.get(name) or (name, *(other for other in groups if other != name and groups[other] == groups.get(name))),
            )

    def list_uses(self, allowed: Budgets) -> dict[str, Use]:
        """Name of the limit → how much is used of its bound of which least is left. Raises StateError as :meth:`usage`."""
        uses = {}
        for budget, used in self.usage().items():
            limit = self.extended(budget, getattr(allowed, budget))
            each = [count_new(rate, self._dated(BUDGETS[budget]), self._now) for rate in rates_of(limit)]
            if not each or total_of(limit) is not None:
                each.insert(0, Use(used, total_of(limit)))
            uses[budget] = min(each, key=lambda use: use.left)
        return uses

    def extended(self, budget: str, limit: Any) -> Any:
        """A limit of the policy, and what both owners have agreed on beyond it that has not ended. Raises StateError."""
        self._refresh()
        today = self._now[: len("2027-01-31")]
        agreed = {each["id"]: each for each in (entry.body for entry in self.lane.list(EXTEND)) if today <= each["until"]}
        return raise_total(limit, sum(each["more"] for each in agreed.values() if each["budget"] == budget))

    def _largest_count(self, kind: str, begins: tuple[str, ...] = ("",)) -> int:
        """The largest count over one set or table, with which each line ``begins``; other lines count over every one."""
        lines, groups = self._counting(kind), {table.counted: table.group for table in self._lineages.tables}
        own = [line for line in lines if " " in line and line.startswith(begins) and not line.startswith(LOSS)]
        over = (line.partition(" ")[0].removeprefix(OF_A_TABLE).removesuffix(":") for line in own)
        return len(lines) - len(own) + max(Counter(groups.get(name, name) for name in over).values(), default=0)

    def check(self, what: Counted) -> None:
        """Raise what :meth:`count` would, and count nothing."""
        self._number(self._find_lineage(what))

    def count(self, *what: Counted) -> int:
        """As :meth:`vfl_node.session.memory.Memory.count`."""
        with self._alone():
            numbers, new = list[int](), dict[str, list[str]]()
            for each in map(self._find_lineage, what):
                numbers.append(self._number(each, new))
                aside = set(self._set_aside(each.kind))
                counted = each.is_known([line for line in self._counting(each.kind) if line not in aside])
                if numbers[-1] and not counted:
                    new.setdefault(each.kind, []).append(each.line)
            if new:
                self._add("count", new)
            return max(number for number, each in zip(numbers, what, strict=True) if each.kind == what[0].kind)

    def account(self) -> Account:
        """What hidden trainings have spent with this peer, or set aside. Raises StateError as :meth:`usage`."""
        return Account(self._counting(_SPENT), self._lines(_FORGOTTEN))

    def spent_over(self, table: str) -> Spent:
        """What is spent over a table and others about the same records. Raises StateError as :meth:`usage`."""
        return self.account().total(*self._lineages.names(table))

    def check_expense(self, what: Expense) -> None:
        """As :meth:`vfl_node.session.memory.Memory.check_expense`."""
        self._extend_expense(what).total_with(self.account(), self.peer)

    def spend(self, what: Expense) -> Spent:
        """As :meth:`vfl_node.session.memory.Memory.spend`; it is on the disk when this returns."""
        with self._alone():
            what = self._extend_expense(what)
            spent = what.total_with(account := self.account(), self.peer)
            if what.line not in account.lines or what.line in self._set_aside(_SPENT):
                self._add("spend", {_SPENT: [what.line]})
            return spent

    def list_questions(self, allowed: QueryLimits) -> dict[str, Use]:
        """``asked`` or ``answered``, and of which period → how many ids are used. Raises StateError as :meth:`usage`."""
        ways: dict[str, Way] = {"asked": "asks", "answered": "answers"}
        lines, now = self._dated(KIND), self._now
        return {
            f"{done}_per_{per}": use for done, way in ways.items() for per, use in count_uses(lines, way, allowed, now).items()
        }

    def check_questions(self, what: AskedIds) -> None:
        """As :meth:`vfl_node.session.memory.Memory.check_questions`."""
        what.check(self._dated(KIND), self.peer, self._now)

    def count_questions(self, what: AskedIds) -> None:
        """As :meth:`vfl_node.session.memory.Memory.count_questions`; it is on the disk when this returns."""
        with self._alone():
            self.check_questions(what)
            if what.line not in self._lines(KIND):
                self._add("question", {KIND: [what.line]})

    def reserve(self, job_id: str, counts: Sequence[Counted], expenses: Sequence[Expense]) -> None:
        """As :meth:`vfl_node.session.memory.Memory.reserve`; it is on the disk when this returns."""
        with self._alone():
            new: dict[str, list[str]] = {}
            for what in map(self._find_lineage, counts):
                self._number(what, new)
                if not what.is_known(self._counting(what.kind)):
                    new.setdefault(what.kind, []).append(what.line)
            for expense in map(self._extend_expense, expenses):
                expense.total_with(self.account(), self.peer)
                if expense.line not in self.account().lines:
                    new.setdefault(_SPENT, []).append(expense.line)
            if new:
                self._add("reserve", new, job=job_id)

    def release(self, job_id: str) -> None:
        """Let what a job has set aside and not used count no more: it has ended. Raises StateError as :meth:`usage`."""
        if not self.lane.entries:
            return
        with self._alone():
            self._refresh()
            left = {kind: list(self._set_aside(kind, job_id)) for kind in self._kinds}
            if left := {kind: lines for kind, lines in left.items() if lines}:
                self._add("release", left, job=job_id)

    def note_restore(self, at: str) -> None:
        """Write down that a backup was restored which was made ``at`` this time. What jobs had set aside counts from now on.

        Raises:
            StateError: as :meth:`usage`.
        """
        with self._alone():
            self._refresh()
            aside = {kind: list(self._set_aside(kind)) for kind in self._kinds}
            self._add("restore", {kind: lines for kind, lines in aside.items() if lines}, backup=at)

    @property
    def reserving(self) -> set[str]:
        """The jobs that have set something aside, and neither used nor released it. Raises StateError as :meth:`usage`."""
        self._refresh()
        return {job_id for kind in self._kinds for line in self._set_aside(kind) if (job_id := self._kinds[kind][line])}

    def forget(self) -> int:
        """Begin a new count of what is spent with this peer; returns how many expenses counted until now.

        What was counted stays in the lane, and in :meth:`account`. The node may be running.

        Raises:
            UsageError: nothing counts (``E_CONFIG``).
        """
        if not (account := self.account()).lines:
            raise self._nothing_spent()
        with self._alone():
            gone = {*account.forgotten, *self._set_aside(_SPENT)}
            if not (counting := [line for line in account.lines if line not in gone]):
                raise self._nothing_spent()
            self._add("forget", {_FORGOTTEN: counting})
            return len(counting)

    def _nothing_spent(self) -> UsageError:
        return UsageError(f"nothing is spent with {self.peer}", code="E_CONFIG", hint="vfl-node budget shows what is")

    def _alone(self) -> AbstractContextManager[None]:
        """A context in which no other thread and no command counts."""
        return self.lane.held()

    def _add(self, kind: str, lines: dict[str, list[str]], **more: Any) -> None:
        self.lane.append(kind, {"lines": lines} | more)

    def _find_lineage(self, what: Counted) -> Counted:
        """It with all names under which its table is counted."""
        return what.spread_over(self._lineages.names(what.table)) if what.table else what

    def _extend_expense(self, what: Expense) -> Expense:
        """It with all names under which its table is counted, and the limit that both owners have agreed on."""
        own, *others = self._lineages.names(what.table)
        return replace(what, table=own, also=tuple(others), limit=self.extended("epsilon", what.limit))

    def _number(self, what: Counted, new: Mapping[str, Sequence[str]] = NOTHING) -> int:
        """Which one it is, where ``new`` are lines of each kind that count with it. Raises as :meth:`count`."""
        self._refresh()
        budget = next(budget for budget, kind in BUDGETS.items() if kind == what.kind)
        what = replace(what, limit=self.extended(budget, what.limit))
        lines = dict(self._since.get(what.kind, {})) | dict.fromkeys(new.get(what.kind, ()), self._now)
        return what.number(lines, self.peer, self._now, set(self._gone(what.kind)).difference(new.get(what.kind, ())))

    @property
    def _now(self) -> str:
        """The time; while the clock is behind what it once said, that of the newest entry: no period ends early by it."""
        return max(utc_now(), self._latest)

    def _lines(self, kind: str) -> list[str]:
        """All lines of a kind, in the order in which they came: what was counted, set aside or released."""
        self._refresh()
        return list(self._kinds.get(kind, ()))

    def _counting(self, kind: str) -> list[str]:
        """The lines of a kind that count."""
        return [line for line in self._lines(kind) if line not in self._gone(kind)]

    def _dated(self, kind: str) -> dict[str, str]:
        """The lines of a kind that count → since when."""
        return {line: self._since[kind][line] for line in self._counting(kind)}

    def _gone(self, kind: str) -> Collection[str]:
        return self._released.get(kind, ())

    def _set_aside(self, kind: str, job_id: str = "") -> Iterator[str]:
        """The lines of a kind that count only because a job, or the one of this id, has set them aside."""
        gone = self._gone(kind)
        for line, job in self._kinds.get(kind, {}).items():
            if job and line not in gone and (not job_id or job == job_id):
                yield line

    def _refresh(self) -> None:
        """Add up what has come since the last look."""
        with self._lock:
            entries = self.lane.entries
            if self._summed and (len(entries) < self._summed or entries[self._summed - 1] is not self._newest):
                self._summed, self._kinds, self._since, self._released, self._latest = 0, {}, {}, {}, ""
            for entry in entries[self._summed :]:
                self._sum_up(entry)
            self._summed, self._newest = len(entries), entries[-1] if entries else None

    def _sum_up(self, entry: LaneEntry) -> None:
        self._latest = max(self._latest, entry.at)
        for kind, lines in entry.body.get("lines", {}).items():
            known, gone = self._kinds.setdefault(kind, {}), self._released.setdefault(kind, set())
            since = self._since.setdefault(kind, {})
            for line in lines:
                if entry.kind == "release":
                    gone.add(line)
                    continue
                if line in gone or line not in since:
                    since[line] = self._latest
                gone.discard(line)
                counted = entry.kind != "reserve" or known.get(line) == ""
                known[line] = "" if counted else entry.body["job"]

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_checked(path, hint="put the newest copy of state/partners back")
        except FileNotFoundError:
            return None
