"""Log lines: readable on a terminal, JSON otherwise. Never an id, a label, a key or a cell's value."""

from __future__ import annotations

import logging
import sys

import structlog


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
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
