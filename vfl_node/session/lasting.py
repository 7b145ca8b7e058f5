"""What a node adds up about one partner over all jobs, and can change: unlike a promise, which stays as it was made."""

from __future__ import annotations

from collections.abc import Callable

from vfl_node.errors import StateError
from vfl_node.session.memory import Memory


def changed(memory: Memory, name: str, change: Callable[[bytes | None], bytes], *, what: str) -> bytes:
    """Put what ``change`` makes of the data under ``name`` in its place; returns that. Two jobs at once do not undo each other.

    Args:
        memory: of the partner.
        name: of the data.
        change: called with what is stored; None the first time.
        what: the data is, for the owner.

    Raises:
        StateError: there was something, and it is gone (``E_STATE_LOST``).
    """
    begun = memory.recall(f"{name}-begun") is not None

    def unless_lost(data: bytes | None) -> bytes:
        if data is None and begun:
            raise StateError(
                f"{what} is gone from state/partners",
                code="E_STATE_LOST",
                hint="put the newest copy of state/partners back; without it nobody can say what all jobs told together",
                for_peer="it has lost what it remembers of earlier jobs",
            )
        return change(data)

    data = memory.update(name, unless_lost)
    memory.keep(f"{name}-begun", b"1")  # last: what is not written yet is not lost
    return data
