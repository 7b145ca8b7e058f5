"""Whether a node begins nothing new, as before it is upgraded; that holds until its owner ends it, also over a restart."""

from __future__ import annotations

from pathlib import Path

import structlog

from vfl_node.errors import PolicyError
from vfl_node.node.turns import Turns
from vfl_node.process.files import fault, make_names_durable, write_whole

log = structlog.get_logger()

FILE = "draining"
"""A file in the state folder: the node drains while there is one."""


class Draining:
    """The same of one node.

    Args:
        folder: of its state.
        turns: of its jobs.
    """

    def __init__(self, folder: Path, turns: Turns) -> None:
        self._path, self._turns = folder / FILE, turns
        turns.draining = self._path.exists()
        if turns.draining:
            log.warning("the node begins no job", hint="vfl-node drain --off")

    def __bool__(self) -> bool:
        return self._turns.draining

    def set(self, *, on: bool) -> None:
        """Begin nothing new from now on, or begin again. Idempotent. Raises StateError where that cannot be stored."""
        try:
            if on:
                write_whole(self._path, b"no job begins here: vfl-node drain --off ends that\n")
            else:
                self._path.unlink(missing_ok=True)
                make_names_durable(self._path.parent)
        except OSError as error:
            raise fault(error) from None
        if on != self._turns.draining:
            log.info("the node begins no job" if on else "the node begins jobs again")
        self._turns.draining = on

    def check(self) -> None:
        """Raise PolicyError (``E_BUSY``) while the node begins nothing new: for what waits for no turn."""
        if self:
            text = "this node begins nothing new at the moment"
            raise PolicyError(text, code="E_BUSY", hint="ask again later, or vfl-node drain --off", for_peer=text)
