"""Figures and metrics, told to the passive party only where the job says so: they derive from labels."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vfl_node.errors import ProtocolError
from vfl_node.job.evaluate import WITH_UNIT
from vfl_node.training.evaluation import Figures, Values
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2

DECIMALS = 3

DIGITS = 4
"""Of a metric with a unit."""


async def send_figures(channel: Channel, epochs: Sequence[Figures], metrics: Values) -> None:
    """Tell the figures of each epoch and the metrics of the federated model, to three decimals, or four digits with a unit.

    Leaks: these figures. All digits of an accuracy or AUC, a quotient of counts, would tell how many rows were counted. RMSE
    and R² together tell how far the targets spread.
    """
    figures = {"epochs": [_rounded(asdict(figures)) for figures in epochs], "metrics": _rounded(metrics)}
    await channel.send(training_pb2.Shared(json=json.dumps(figures, sort_keys=True)))


async def receive_figures(channel: Channel, epochs: int, names: Sequence[str]) -> tuple[list[Figures], Values]:
    """The figures of each of ``epochs`` epochs and the metrics ``names``.

    Raises:
        ProtocolError: not the figures that were due.
    """
    text = (await channel.receive(training_pb2.Shared)).json
    try:
        document = json.loads(text)
        figures = [Figures(_number(epoch["loss"]), _number(epoch["auc"])) for epoch in document["epochs"]]
        metrics = {name: _number(document["metrics"][name]) for name in names}
        if len(figures) != epochs:
            raise ValueError("another number of epochs")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise ProtocolError(f"{channel.peer} sent figures that are not loss and metrics of this job") from None
    return figures, metrics


def _rounded(values: Values) -> Values:
    def told(name: str, value: float) -> float:
        return float(f"{value:.{DIGITS}g}") if name in WITH_UNIT else round(value, DECIMALS)

    return {name: None if value is None else told(name, value) for name, value in values.items()}


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError("not a finite number")
    return float(value)
