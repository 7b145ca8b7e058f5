"""What a node remembers of a partner from one job to the next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError
from vfl_node.process.machine import utc_now
from vfl_node.session.answers import Answer
from vfl_node.session.counted import Counted
from vfl_node.session.heads import Heads
from vfl_node.session.questions import AskedIds
from vfl_node.session.spent import Expense, Spent


class Memory(Protocol):
    """What a node remembers of one peer, or of several as one, for longer than a job.

    What is drawn to hide something must be the same in every job over the same identifiers:
    a peer that saw two draws could tell what they have in common.
    """

    @property
    def secret(self) -> Randomness:
        """Randomness of this node for the peer; the same in every job."""

    @property
    def own(self) -> Randomness:
        """Randomness of this node; the same in every job and for every peer."""

    def recall(self, name: str) -> bytes | None:
        """The data stored under ``name``, if any."""

    def keep(self, name: str, data: bytes) -> bytes:
        """Store ``data`` under ``name`` unless something is stored there already; returns what is stored now."""

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """Store what ``change`` makes of the data under ``name``, in its place; returns that. No other job comes between."""

    def check(self, what: Counted) -> None:
        """Raise what :meth:`count` would, and count nothing: what would be refused in the end is refused before it begins."""

    def count(self, *what: Counted) -> int:
        """Remember ``what``, unless it is remembered already; returns :meth:`~vfl_node.session.counted.Counted.number`.

        Of several the largest of those that count among the same as the first: one thing that counts over more than one set or
        table. What else is counted with it stands in the same entry.

        Raises:
            PolicyError: it would be one more than a limit (``E_BUDGET``); then nothing is remembered.
        """

    def reserve(self, job_id: str, counts: Sequence[Counted], expenses: Sequence[Expense]) -> None:
        """Set aside what a job will count and spend: it counts from now on, until the job has ended without it.

        Raises:
            PolicyError: it would be more than the owner allows (``E_BUDGET``); then nothing is set aside.
        """

    def check_expense(self, what: Expense) -> None:
        """Raise what :meth:`spend` would, and spend nothing."""

    def spend(self, what: Expense) -> Spent:
        """Remember what a training spends, unless it is remembered already; returns what is spent over its table then.

        Raises:
            PolicyError: it would be more than the owner allows (``E_BUDGET``).
        """

    def answer(self, what: Answer) -> float:
        """Remember answers about labels, unless they are remembered already; returns ε of all about the same labels together.

        Raises:
            StateError: earlier ones were drawn under a secret that is gone (``E_STATE_LOST``).
        """

    def check_questions(self, what: AskedIds) -> None:
        """Raise what :meth:`count_questions` would, and count nothing."""

    def count_questions(self, what: AskedIds) -> None:
        """Remember that a job asks about so many ids, unless it is remembered already.

        Raises:
            PolicyError: they are more than the owner allows (``E_BUDGET``); then nothing is remembered.
        """


class PeerMemory(Memory, Protocol):
    """What a node remembers of one peer."""

    def heads(self, job_id: str, about: Mapping[str, Any]) -> Heads | None:
        """The ledger about the peer, to be shown to it; None if none is kept. It says then that this job has begun.

        Args:
            job_id: of the job.
            about: what else it says of the job.
        """

    def report(self, job_id: str, learnt: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Write down what this node and the peer have learnt by a job: by the keywords of the report's ledger, and how many."""


class JointMemory:
    """What a node remembers of several peers, as one memory: what is promised to one of them is promised to all.

    It has no heads: those are shown to each peer that this party talks to.

    Args:
        memories: of each peer, in the order of the job's parties.
    """

    def __init__(self, memories: Sequence[Memory]) -> None:
        self._memories = memories

    @property
    def secret(self) -> Randomness:
        """As :attr:`Memory.secret`; it changes if any of the memories is lost."""
        each = b"".join(memory.secret.derive("with other parties").bytes(32) for memory in self._memories)
        return Randomness(hashlib.sha256(each).digest())

    @property
    def own(self) -> Randomness:
        """As :attr:`Memory.own`, which all of them have in common."""
        return self._memories[0].own

    def recall(self, name: str) -> bytes | None:
        """What the first of them that has something under ``name`` has."""
        return next((data for memory in self._memories if (data := memory.recall(name)) is not None), None)

    def keep(self, name: str, data: bytes) -> bytes:
        """Store ``data`` in each, unless one has something else; returns that, or else ``data``."""
        for memory in self._memories:  # before any of them stores it
            earlier = memory.recall(name)
            if earlier is not None and earlier != data:
                return earlier
        stored = [memory.keep(name, data) for memory in self._memories]  # another job may have been faster
        return next((earlier for earlier in stored if earlier != data), data)

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """As :meth:`Memory.update`, in each; returns the last one's."""
        return [memory.update(name, change) for memory in self._memories][-1]

    def check(self, what: Counted) -> None:
        """As :meth:`Memory.check`, in each."""
        for memory in self._memories:
            memory.check(what)

    def count(self, *what: Counted) -> int:
        """As :meth:`Memory.count`, in each; returns the largest number."""
        return max(memory.count(*what) for memory in self._memories)

    def reserve(self, job_id: str, counts: Sequence[Counted], expenses: Sequence[Expense]) -> None:
        """As :meth:`Memory.reserve`, in each, unless one of them refuses."""
        for what in counts:
            self.check(what)
        for expense in expenses:
            self.check_expense(expense)
        for memory in self._memories:
            memory.reserve(job_id, counts, expenses)

    def check_expense(self, what: Expense) -> None:
        """As :meth:`Memory.check_expense`, in each."""
        for memory in self._memories:
            memory.check_expense(what)

    def spend(self, what: Expense) -> Spent:
        """As :meth:`Memory.spend`: each is charged in full, as they may pool what they know. Returns the most."""
        self.check_expense(what)  # a job that one of them refuses is charged to none
        return Spent.largest(memory.spend(what) for memory in self._memories)

    def answer(self, what: Answer) -> float:
        """As :meth:`Memory.answer`, in each. Returns the most."""
        return max(memory.answer(what) for memory in self._memories)

    def check_questions(self, what: AskedIds) -> None:
        """As :meth:`Memory.check_questions`, in each."""
        for memory in self._memories:
            memory.check_questions(what)

    def count_questions(self, what: AskedIds) -> None:
        """As :meth:`Memory.count_questions`, in each, unless one of them refuses."""
        self.check_questions(what)
        for memory in self._memories:
            memory.count_questions(what)


def mark_secret(memory: Memory) -> bytes:
    """The secret, 32 bytes, by which a node marks its records (:class:`vfl_node.data.marks.Marks`); the same for every peer."""
    return memory.own.derive("marks of records").bytes(32)


def join_memories(memories: Sequence[Memory]) -> Memory:
    """The memories as one; an only one as it is."""
    only, *others = memories
    return JointMemory(memories) if others else only


class MemoryOfOneRun:
    """A memory that lives as long as the object.

    Args:
        secret: as :attr:`Memory.secret`.
    """

    def __init__(self, secret: Randomness) -> None:
        self._secret = secret
        self._stored: dict[str, bytes] = {}

    @property
    def secret(self) -> Randomness:
        """As :attr:`Memory.secret`."""
        return self._secret

    @property
    def own(self) -> Randomness:
        """As :attr:`Memory.own`."""
        return self._secret.derive("own")

    def recall(self, name: str) -> bytes | None:
        """As :meth:`Memory.recall`."""
        return self._stored.get(name)

    def keep(self, name: str, data: bytes) -> bytes:
        """As :meth:`Memory.keep`."""
        return self._stored.setdefault(name, data)

    def update(self, name: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """As :meth:`Memory.update`."""
        self._stored[name] = change(self._stored.get(name))
        return self._stored[name]

    def heads(self, job_id: str, about: Mapping[str, Any]) -> None:
        """None: no later run could go on from them."""

    def report(self, job_id: str, learnt: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Nothing, likewise."""

    def check(self, what: Counted) -> None:
        """Nothing is counted: the object ends with the run."""

    def count(self, *what: Counted) -> int:
        """Always 1, likewise."""
        return 1

    def reserve(self, job_id: str, counts: Sequence[Counted], expenses: Sequence[Expense]) -> None:
        """Nothing, likewise."""

    def check_expense(self, what: Expense) -> None:
        """Nothing, likewise."""

    def spend(self, what: Expense) -> Spent:
        """What this job alone spends."""
        return Spent(what.mu, int(bool(what.unbounded)), frozenset({what.about}))

    def answer(self, what: Answer) -> float:
        """ε of this job alone."""
        return what.epsilon

    def check_questions(self, what: AskedIds) -> None:
        """What this job alone asks about."""
        what.check({}, "this run", utc_now())

    def count_questions(self, what: AskedIds) -> None:
        """As :meth:`check_questions`."""
        self.check_questions(what)


def change_total(memory: Memory, name: str, change: Callable[[bytes | None], bytes], *, what: str) -> bytes:
    """Change what is added up over all jobs with a partner, unlike a promise, which stays as it was made.

    Puts what ``change`` makes of the data under ``name`` in its place, and returns that. Two jobs at once do
    not undo each other.

    Args:
        memory: of the partner.
        name: of the data.
        change: called with what is stored; None the first time.
        what: the data is, for the owner.

    Raises:
        StateError: there was something, and it is gone (``E_STATE_LOST``).
    """
    begun = memory.recall(f"{name}-begun") is not None

    def change_kept(data: bytes | None) -> bytes:
        if data is None and begun:
            raise StateError(
                f"{what} is gone from state/partners",
                code="E_STATE_LOST",
                hint="put the newest copy of state/partners back; without it nobody can say what all jobs told together",
                for_peer="it has lost what it remembers of earlier jobs",
            )
        return change(data)

    data = memory.update(name, change_kept)
    memory.keep(f"{name}-begun", b"1")  # last: what is not written yet is not lost
    return data
