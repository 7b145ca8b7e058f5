"""Work beside the requests, on a thread of its own, that nobody waits for until the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

RESTS = 9
"""How many times as long as the work took the thread rests after it: it takes a tenth of one core at most."""


class SideWork:
    """Does some work again whenever it is due, never twice at once. What is due while it works is done after a rest.

    Args:
        work: does all there is to do.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._due, self._ended = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def ask(self) -> None:
        """There is something to do. Raises what the work has raised before."""
        if self._failure:
            raise self._failure
        self._due.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._live, name="audit", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for the work, and do what is left of it here; raises what it raises. Nothing is done after."""
        self._ended.set()
        self._due.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure:
            raise self._failure
        self._work()

    def _live(self) -> None:
        while self._due.wait() and not self._ended.is_set():
            self._due.clear()
            began = time.monotonic()
            try:
                self._work()
            except Exception as error:  # noqa: BLE001 - raised where the work is asked for
                self._failure = error
                return
            self._ended.wait(RESTS * (time.monotonic() - began))
