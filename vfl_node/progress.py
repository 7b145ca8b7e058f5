"""How far a job is: told by protocols, shown by the node and the command line."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what a protocol has to tell its owner while it runs."""

    def phase(self, name: str, total: int, unit: str) -> None:
        """A phase begins: ``total`` steps of ``unit`` (rows, batches)."""

    def advance(self, steps: int) -> None:
        """``steps`` more of the phase are done."""

    def note(self, **values: float) -> None:
        """Figures for the owner, such as ``loss=0.41``."""


class Silent:
    """A progress that tells nobody."""

    def phase(self, name: str, total: int, unit: str) -> None:
        """Ignored."""

    def advance(self, steps: int) -> None:
        """Ignored."""

    def note(self, **values: float) -> None:
        """Ignored."""
