"""Log lines: readable on a terminal, JSON otherwise. Never an id, a label, a key or a cell's value."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Hashable
from contextlib import suppress
from typing import TextIO, cast

import structlog


class _Forgiving:
    """A stream into which a line may not go, as on a full disk, without the work ending that it is about."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # ValueError: closed
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class Seldom:
    """Which of the lines to write that a peer can cause as often as it likes.

    Args:
        every_s: how long a line is not written again.
        most: different lines within that time.
    """

    def __init__(self, every_s: float = 60, most: int = 20) -> None:
        self._every_s, self._most = every_s, most
        self._lately: dict[Hashable, float] = {}

    def lets(self, line: Hashable) -> bool:
        """Whether ``line`` is to be written now."""
        now = time.monotonic()
        self._lately = {other: then for other, then in self._lately.items() if now - then < self._every_s}
        if line in self._lately or len(self._lately) >= self._most:
            return False
        self._lately[line] = now
        return True


def configure_logs(*, quiet: bool = False) -> None:
    """Send log lines to standard error; ``quiet`` keeps warnings and errors only."""
    terminal = sys.stderr.isatty()
    # never a frame's local variables: they hold identifiers, labels and keys
    plain = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal),
            *([plain] if not terminal else []),
            structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
            if terminal
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING if quiet else logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Forgiving(sys.stderr))),
        cache_logger_on_first_use=False,
    )
