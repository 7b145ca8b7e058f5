"""Loss and metrics, told to the passive party only where the job says so: they derive from labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from vfl_node.errors import ProtocolError
from vfl_node.training.evaluation import Values
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2


async def send_figures(channel: Channel, losses: Sequence[float | None], metrics: Values) -> None:
    """Tell the loss of each epoch and the metrics of the federated model.

    Leaks: exactly these figures.
    """
    figures = {"losses": list(losses), "metrics": metrics}
    await channel.send(training_pb2.Shared(json=json.dumps(figures, sort_keys=True)))


async def receive_figures(channel: Channel, epochs: int, names: Sequence[str]) -> tuple[list[float | None], Values]:
    """The loss of each of ``epochs`` epochs and the metrics ``names``.

    Raises:
        ProtocolError: not the figures that were due.
    """
    text = (await channel.receive(training_pb2.Shared)).json
    try:
        figures = json.loads(text)
        losses = [_number(value) for value in figures["losses"]]
        metrics = {name: _number(figures["metrics"][name]) for name in names}
        if len(losses) != epochs:
            raise ValueError("another number of epochs")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ProtocolError(f"{channel.peer} sent figures that are not loss and metrics of this job") from None
    return losses, metrics


def _number(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError("not a number")
    return None if value is None else float(value)
