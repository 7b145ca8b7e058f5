"""Log lines: readable on a terminal, JSON otherwise. Never an id, a label, a key or a cell's value, at no level."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Hashable, MutableMapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TextIO, cast

from vfl_node.errors import UsageError

VARIABLE = "VFL_LOG_LEVEL"
"""In the environment: the level, before what the settings say."""

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

DEBUG_S = 600.0
"""For how long :meth:`Threshold.toggle_debug` lets everything through."""


class LineSink(Protocol):
    """What takes lines, such as a stream of text."""

    def write(self, text: str) -> object:
        """Take some text."""

    def flush(self) -> object:
        """Have no text wait."""


class _Forgiving:
    """A stream into which a line may not go, as on a full disk, without the work ending that it is about."""

    def __init__(self, stream: LineSink) -> None:
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


class Threshold:
    """The level below which no line is written. It holds for loggers that were made before it changes, too."""

    def __init__(self) -> None:
        self._level = logging.INFO
        self._debug_until = 0.0

    def set(self, level: int) -> None:
        """Write lines of ``level`` (as of :mod:`logging`) and above from now on."""
        self._level, self._debug_until = level, 0.0

    def toggle_debug(self) -> bool:
        """Write every line for :data:`DEBUG_S`, or no longer; returns whether it does now."""
        now = time.monotonic()
        self._debug_until = 0.0 if now < self._debug_until else now + DEBUG_S
        return self._debug_until > 0

    def __call__(self, _: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The event, as a processor of structlog. Raises DropEvent if it is not to be written."""
        level = LEVELS.get(method, logging.ERROR)
        if level < self._level and not time.monotonic() < self._debug_until:
            import structlog

            raise structlog.DropEvent
        return event


threshold = Threshold()
"""That of this process."""


def configure_logs(
    *,
    quiet: bool = False,
    level: str = "info",
    form: Literal["auto", "json", "text"] = "auto",
    sink: LineSink | None = None,
) -> None:
    """Send log lines somewhere.

    Args:
        quiet: keeps warnings and errors only.
        level: one of :data:`LEVELS`; the environment variable ``VFL_LOG_LEVEL`` goes before it.
        form: of a line; ``auto``: text on a terminal, JSON elsewhere.
        sink: where to; None: standard error.

    Raises:
        UsageError: the variable names no level (``E_CONFIG``).
    """
    chosen = os.environ.get(VARIABLE, "").lower() or level
    if chosen not in LEVELS:
        raise UsageError(f"{VARIABLE} names no level: {chosen!r}", code="E_CONFIG", hint=f"one of {', '.join(LEVELS)}")
    threshold.set(logging.WARNING if quiet else LEVELS[chosen])
    terminal = sink is None and sys.stderr.isatty()
    text = terminal if form == "auto" else form == "text"
    import structlog  # with asyncio and what prints tracebacks, an eighth of the time that a command takes

    # never a frame's local variables: they hold identifiers, labels and keys
    plain = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))
    console = structlog.dev.ConsoleRenderer(
        colors=terminal, timestamp_key="ts", exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(
        processors=[
            threshold,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%H:%M:%S" if terminal else "iso", utc=not terminal, key="ts"),
            *([console] if text else [plain, structlog.processors.JSONRenderer()]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),  # the threshold decides
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, _Forgiving(sink or sys.stderr))),
        cache_logger_on_first_use=False,
    )
