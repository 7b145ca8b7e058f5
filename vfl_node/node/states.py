"""The states of a job at a node, as its owner sees them."""

from __future__ import annotations

from typing import Literal

State = Literal["waiting", "running", "paused", "done", "failed", "cancelled"]

UNFINISHED: tuple[State, ...] = ("waiting", "running", "paused")
"""States after which a job goes on by itself."""
