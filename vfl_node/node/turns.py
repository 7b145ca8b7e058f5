"""Which jobs run and which wait: a node has a number of places, and jobs that find none wait in a queue.

A job needs a place at each of its parties, whose queues may hold the same jobs in different orders. Two rules keep jobs from
waiting for each other in a circle:

- The next place goes to the first waiting job that can go on: all its other parties are connected, and one that stands before
  this party in the job's order (active, passive, coordinator) has a place for it. So places are taken in the same order of
  parties everywhere.
- A job that has a place but has not met all its parties gives the place to one that can go on: at once if it cannot go on
  itself, and after a while if it could. It keeps its number, and rests for a while so that others have a turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count

ABLE_S = 0.2
"""For how long an answer to whether a job can go on is used again."""

LOOK_S = 0.2
"""How often a job checks whether a free place is for it: nobody announces that a job can go on by now."""


class Turns:
    """The places of one node.

    Args:
        places: how many jobs go on at once.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._changed = threading.Condition()
        self._numbers = count()
        self._waiting: list[Turn] = []
        self._holding: set[Turn] = set()

    def enter(self, able: Callable[[], bool]) -> Turn:
        """A turn behind all others.

        Args:
            able: says whether its job can go on now; called often, by any thread, under a lock, so it must take no lock itself.
        """
        with self._changed:
            turn = Turn(self, next(self._numbers), able)
            self._waiting.append(turn)
        return turn

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._waiting)

    def _next(self) -> Turn | None:
        """Whose turn it is: that of the first job that can go on; if none can, of the first."""
        awake = [turn for turn in self._waiting if turn._rests_until <= time.monotonic()] or self._waiting
        return next((turn for turn in awake if turn._able), awake[0] if awake else None)


class Turn:
    """The turn of one job."""

    def __init__(self, turns: Turns, number: int, able: Callable[[], bool]) -> None:
        self._turns = turns
        self._number = number
        self._is_able = able
        self._known = (-ABLE_S, False)
        self._rests_until = 0.0

    @property
    def place(self) -> int:
        """Its place in the queue, from 1; 0 while it has a place at the node, and after it has left."""
        with self._turns._changed:
            return self._turns._waiting.index(self) + 1 if self in self._turns._waiting else 0

    @property
    def contested(self) -> bool:
        """Whether another job that can go on waits for the place of this one."""
        with self._turns._changed:
            full = len(self._turns._holding) >= self._turns._places
            following = self._turns._next() if full else None
            return following is not None and following._able

    def take(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for a place; returns whether the job has one."""
        turns, limit = self._turns, time.monotonic() + timeout_s
        with turns._changed:
            while self in turns._waiting:
                room = len(turns._holding) < turns._places
                if room and turns._next() is self:
                    turns._waiting.remove(self)
                    turns._holding.add(self)
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
            self._rests_until = time.monotonic() + rest_s
            if self in turns._holding:
                turns._holding.discard(self)
                turns._waiting.append(self)
                turns._waiting.sort(key=lambda turn: turn._number)
                turns._changed.notify_all()

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
