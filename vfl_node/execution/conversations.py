"""What a party does in an attempt, by its role and its job."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from vfl_node.execution import coordinator, predict, train
from vfl_node.execution.run import Run


def conversations(run: Run) -> list[Coroutine[Any, Any, None]]:
    """The coroutines that run side by side: one at a data party; at a coordinator one for each peer, in their order."""
    if run.inputs is None:
        return coordinator.conversations(run)
    return [predict.play(run, run.inputs.predicting) if run.inputs.predicting else train.play(run)]
