"""The states of a job at a node, as its owner sees them."""

from __future__ import annotations

from typing import Literal

State = Literal["asked", "waiting", "running", "paused", "unconfirmed", "done", "failed", "cancelled"]

UNFINISHED: tuple[State, ...] = ("waiting", "running", "paused")
"""States after which a job goes on by itself.

A job of a peer is *asked* until this node's owner has answered: nothing is done for it meanwhile, also after a restart.
A job is *unconfirmed* if this party has stored its part, and has waited too long to hear that all others have, too. It goes on
when its owner resumes it, when a peer asks for that, or when the active party is connected again; at the active party, any one.
"""

STANDING: tuple[State, ...] = ("asked", *UNFINISHED)
"""States of a job that has not ended."""
