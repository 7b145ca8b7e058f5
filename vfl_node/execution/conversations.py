"""What a party does in an attempt at a job that aligns, and may train, by its role."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from vfl_node.execution import coordinator, train
from vfl_node.execution.run import Run


def conversations(run: Run) -> list[Coroutine[Any, Any, None]]:
    """The coroutines that run side by side: one at a data party; at a coordinator one for each peer, in their order."""
    if run.inputs is None:
        return coordinator.conversations(run)
    return [train.play(run)]
