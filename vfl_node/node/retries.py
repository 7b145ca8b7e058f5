"""When an attempt at a job that broke off is repeated: soon, later, or not before its owner resumes the job."""

from __future__ import annotations

import time

from vfl_node.errors import StateError

STEADY_S = 1.0
"""An attempt that lasted longer than this had really begun."""

MOST_FRUITLESS = 8
"""After more attempts in a row than this without progress, and ``peer_wait_s`` without any, the job waits for its owner."""

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 30.0
"""How long to wait before the next attempt; twice as long each time that one ends soon, as on a full disk."""


class Retries:
    """The attempts of one job that broke off, one after another.

    Args:
        wait_s: how long attempts without progress go on at least.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._pause_s = FIRST_PAUSE_S
        self._fruitless, self._last_progress = 0, time.monotonic()

    def pause_s(self, interruption: str, lasted_s: float, *, progressed: bool) -> float:
        """How many seconds to wait before the next attempt.

        Args:
            interruption: how this one broke off.
            lasted_s: how long it lasted, once all parties were there.
            progressed: whether something was stored from which the next one goes on.

        Raises:
            StateError: too many in a row made no progress (``E_NO_PROGRESS``).
        """
        self._fruitless += lasted_s > STEADY_S
        if progressed:
            self._fruitless, self._last_progress = 0, time.monotonic()
        if self._fruitless > MOST_FRUITLESS and time.monotonic() - self._last_progress > self._wait_s:
            raise StateError(
                f"{self._fruitless} attempts in a row broke off before anything more of the job was kept; "
                f"the last one: {interruption}",
                code="E_NO_PROGRESS",
                hint="see the logs of both nodes and the line between them, then go on: vfl-node resume JOB",
                for_peer="its attempts break off again and again",
            )
        self._pause_s = FIRST_PAUSE_S if lasted_s > MOST_PAUSE_S else min(2 * self._pause_s, MOST_PAUSE_S)
        return self._pause_s
