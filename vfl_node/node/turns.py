"""Which jobs run and which wait: a node has a number of places, and jobs that find none wait in a queue.

A job needs a place at each of its parties, whose queues may hold the same jobs in different orders. Three rules keep jobs from
waiting for each other in a circle:

- The next place goes to the first waiting job that can go on: all its other parties are connected, and its first party, the
  active one, has a place for it. So places are taken there first, and then at the others.
- A job that has a place but has not met all its parties gives the place to one that can go on: at once if it cannot go on
  itself, and after a while if it could. It keeps its number, and rests for a while so that others have a turn.
- The first party of a job gives its place back if the job has waited for long in another party's queue, even if no other job
  wants it here. Two passive parties may each have a place for the job that waits at the other one, and do not talk to each
  other. It then stays away for a random time, and twice as long passes until it does so again.

Peers cannot keep a node from its owner or from each other. Each peer's jobs have a share of the places, and the last place is
for jobs of the owner. Where there is only one, the owner's jobs are first in line.

Who waits is sorted by priority, then by whose jobs have taken the least of this node lately, then by number. Each hour of
waiting adds one to a priority. So of two jobs that can go on, one that came more than :data:`PRIORITIES` hours before the other
goes first, and no job waits for ever. The order decides nothing else: the rules above hold in any order.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

ABLE_S = 0.2
"""For how long an answer to whether a job can go on is used again."""

PATIENCE_S, REST_S = 30.0, 10.0
"""About how long a place is kept for a job that waits in another party's queue, while others could go on, and how long it then
rests."""

MOST_PATIENCE_S = 300.0
"""How long the first party at most keeps its place for a job that waits in another party's queue."""

LOOK_S = 0.2
"""How often a job checks whether a free place is for it: nobody announces that a job can go on by now."""

AGING_S = 3600.0
"""So long a wait adds one to a job's priority."""

LEAST, MOST = -2, 2
"""The lowest and the highest priority."""

PRIORITIES = MOST - LEAST + 1
"""How many there are: also so many hours after which no job that comes is before one that waits."""


class Position(NamedTuple):
    """How a job stands in the queue.

    Attributes:
        place: its place, from 1; 0: it does not wait.
        waiting: how many jobs wait.
        fits: whether there is a place for it.
        over: how many jobs of its peer run, where those are as many as may; else None.
        drained: whether this node begins nothing new.
    """

    place: int
    waiting: int
    fits: bool
    over: int | None
    drained: bool


class Turns:
    """The places of one node.

    Args:
        places: how many jobs go on at once.
        of_peer: how many of them jobs of one peer may have; None: all that peers may have.
        spent: what the jobs of a peer (None: of the owner) have taken lately; called often, under a lock.
        fitting: how many jobs the machine has room for, at least 1; asked before one begins, under a lock. None: for all.

    Attributes:
        draining: whether no job may begin; those that have begun go on.
    """

    def __init__(
        self,
        places: int,
        of_peer: Callable[[str], int] | None = None,
        spent: Callable[[str | None], float] = lambda peer: 0.0,
        fitting: Callable[[], float] | None = None,
    ) -> None:
        self._most, self._room, self._counted = places, fitting, (-ABLE_S, places)
        self._of_peer = of_peer or (lambda _: self._for_peers)
        self._spent, self._sorted = spent, -ABLE_S
        self.draining = False
        self._changed = threading.Condition()
        self._numbers = count()
        self._waiting: list[Turn] = []
        self._holding: set[Turn] = set()

    def enter(
        self,
        able: Callable[[], bool],
        peer: str | None = None,
        *,
        priority: int = 0,
        waited_s: float = 0.0,
        begun: bool = False,
    ) -> Turn:
        """A turn behind all others of the same priority.

        Args:
            able: says whether its job can go on now; called often, by any thread, under a lock, so it must take no lock itself.
            peer: who submitted the job; None: this node's owner.
            priority: of the job, from :data:`LEAST` to :data:`MOST`; that of a peer's job is at most 0.
            waited_s: for how long it has waited already.
            begun: whether it has run before.
        """
        since = time.monotonic() - max(0.0, waited_s)
        with self._changed:
            turn = Turn(self, next(self._numbers), able, peer, min(priority, 0) if peer else priority, since, begun)
            self._line_up(turn)
        return turn

    def usage(self) -> dict[str, int]:
        """``busy``: how many of the places (``most``) are taken; ``queued``: how many jobs wait for one."""
        with self._changed:
            return {"busy": len(self._holding), "most": self._places, "queued": len(self._waiting)}

    @property
    def _places(self) -> int:
        """How many jobs go on at once, by what the machine has now."""
        if self._room and time.monotonic() - self._counted[0] > ABLE_S:
            self._counted = time.monotonic(), int(min(self._most, self._room()))
        return self._counted[1]

    @property
    def _for_peers(self) -> int:
        return max(1, self._places - 1)

    def _choose_next(self, holding: Set[Turn], places: int | None = None) -> Turn | None:
        """Whose turn it is while ``holding`` have places: that of the first job that can go on; if none can, of the first."""
        fitting = self._fitting(self._sort_waiting(), holding, places)
        awake = [turn for turn in fitting if turn._rests_until <= time.monotonic()] or fitting
        return next((turn for turn in awake if turn._able), awake[0] if awake else None)

    def _fitting(self, turns: Sequence[Turn], holding: Set[Turn], places: int | None = None) -> list[Turn]:
        """Those of ``turns`` for which there is one of ``places`` (None: the node's) while ``holding`` have theirs."""
        running, places = Counter(turn._peer for turn in holding), places or self._places
        own_only = running.total() - running[None] >= max(1, places - 1)
        room = running.total() < places
        now = time.monotonic()
        wanting = [turn for turn in turns if room and not turn._held_back and turn._away_until <= now]
        free = [turn for turn in wanting if turn.begun or not self.draining]
        return [turn for turn in free if not (turn._peer and (own_only or running[turn._peer] >= self._of_peer(turn._peer)))]

    def _line_up(self, turn: Turn) -> None:
        self._waiting.append(turn)
        self._sorted = -ABLE_S

    def _sort_waiting(self) -> list[Turn]:
        """Who waits, in order; sorted anew now and then, as time passes and places are used."""
        if (now := time.monotonic()) - self._sorted > ABLE_S:
            self._waiting.sort(key=lambda turn: self._rank(turn, now))
            self._sorted = now
        return self._waiting

    def _rank(self, turn: Turn, now: float) -> tuple[int, bool, float, int]:
        level = turn.priority + int((now - turn._since) / AGING_S)
        return -level, self._places == 1 and turn._peer is not None, self._spent(turn._peer), turn._number


class Turn:
    """The turn of one job.

    Attributes:
        priority: of the job.
        begun: whether the job has run, so that it goes on while the node begins nothing new.
    """

    def __init__(
        self, turns: Turns, number: int, able: Callable[[], bool], peer: str | None, priority: int, since: float, begun: bool
    ) -> None:
        self._turns = turns
        self._number = number
        self._peer = peer
        self.priority, self._since, self.begun = priority, since, begun
        self._is_able = able
        self._known = (-ABLE_S, False)
        self._rests_until = self._away_until = 0.0
        self._patience_s, self._doubled = PATIENCE_S, 1
        self._held_back = self._short = False

    @property
    def place(self) -> int:
        """Its place in the queue, from 1; 0 while it has a place at the node, and after it has left."""
        with self._turns._changed:
            return self._turns._sort_waiting().index(self) + 1 if self in self._turns._waiting else 0

    @property
    def position(self) -> Position:
        """How it stands in the queue."""
        turns = self._turns
        with turns._changed:
            running = sum(turn._peer == self._peer for turn in turns._holding)
            if not (place := self.place):
                return Position(0, len(turns._waiting), fits=False, over=None, drained=False)
            over = self._peer is not None and running >= turns._of_peer(self._peer)
            fits = bool(turns._fitting([self], turns._holding))
            return Position(place, len(turns._waiting), fits, running if over else None, turns.draining and not self.begun)

    @property
    def contested(self) -> bool:
        """Whether another job that can go on waits for the place of this one, or for its memory."""
        with self._turns._changed:
            return self._heir is not None or any(turn._short and turn._able for turn in self._turns._waiting)

    @property
    def owed(self) -> bool:
        """Whether that is one of this node's owner, and this is one of a peer."""
        heir = self._heir
        return heir is not None and heir._peer is None and self._peer is not None

    @property
    def _heir(self) -> Turn | None:
        """The job that would go on in the place of this one, and has none otherwise."""
        turns = self._turns
        with turns._changed:
            places = max(turns._places, len(turns._holding))  # there may be fewer by now than are held
            following, heir = (turns._choose_next(holding, places) for holding in (turns._holding, turns._holding - {self}))
            return heir if heir is not None and heir._able and heir is not following else None

    def must_yield(self, since: float, *, able: bool, queueing: bool, leads: bool) -> bool:
        """Whether a job that has a place, and has not met all its parties, gives the place back now.

        Args:
            since: when it got the place, or last had met them all, monotonic seconds.
            able: whether it can go on.
            queueing: whether it waits in the queue of another party.
            leads: whether this is the first party of the job, which hears of all others.
        """
        held_s = time.monotonic() - since
        contested = self.contested
        if contested and (self.owed or not able):
            return True
        patience_s = self._patience_s if contested else min(self._doubled * self._patience_s, MOST_PATIENCE_S)
        if not queueing or held_s < patience_s or not (contested or leads):
            return False
        if leads:
            self._away_until = time.monotonic() + 3 * _jitter(PATIENCE_S)
            self._doubled *= 1 if contested else 2
        return True

    def take(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for a place; returns whether the job has one."""
        turns, limit = self._turns, time.monotonic() + timeout_s
        with turns._changed:
            while self in turns._waiting:
                room = bool(turns._fitting([self], turns._holding))
                if room and turns._choose_next(turns._holding) is self:
                    turns._waiting.remove(self)
                    turns._holding.add(self)
                    self._patience_s = _jitter(PATIENCE_S)
                    turns._changed.notify_all()  # there may be room for the next one
                    break
                left = limit - time.monotonic()
                if left <= 0:
                    return False
                turns._changed.wait(min(left, LOOK_S) if room else left)
        return True

    def give_back(self, rest_s: float = 0.0) -> None:
        """Give the place to another job, and wait for one again with the old number, but not before ``rest_s`` have passed."""
        turns = self._turns
        with turns._changed:
            self._rests_until = time.monotonic() + _jitter(rest_s)
            if self in turns._holding:
                turns._holding.discard(self)
                turns._line_up(self)
                turns._changed.notify_all()

    @contextmanager
    def held_back(self, *, short: bool = False) -> Iterator[None]:
        """A context in which the job wants no place and lets others go first: an owner is still asked.

        ``short``: it waits for memory instead, which jobs may have that have not met their parties yet.
        """
        self._held_back, self._short = True, short
        try:
            yield
        finally:
            self._held_back = self._short = False

    def leave(self) -> None:
        """The job has ended. Idempotent."""
        turns = self._turns
        with turns._changed:
            turns._holding.discard(self)
            if self in turns._waiting:
                turns._waiting.remove(self)
            turns._changed.notify_all()

    @property
    def _able(self) -> bool:
        asked, able = self._known
        if time.monotonic() - asked > ABLE_S:
            able = self._is_able()
            self._known = (time.monotonic(), able)
        return able


def _jitter(seconds: float) -> float:
    """From half of ``seconds`` to one and a half: nodes that do the same at the same time would do so again and again."""
    return seconds * (0.5 + secrets.randbelow(1000) / 1000)
