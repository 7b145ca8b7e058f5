"""Figures and metrics, told to the passive party only where the job says so: they derive from labels."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from vfl_node.errors import ProtocolError
from vfl_node.job.evaluate import WITH_UNIT
from vfl_node.training.evaluation import Figures, Values
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2

DECIMALS = 3

DIGITS = 4
"""Digits of a metric with a unit."""


async def send_figures(channel: Channel, epochs: Sequence[Figures], metrics: Values, *, validated: bool = False) -> None:
    """Tell the figures of each epoch and the metrics of the federated model, to three decimals, or four digits with a unit.

    Args:
        channel: to the passive party.
        epochs: figures of each.
        metrics: of the federated model.
        validated: whether there are figures of validation rows.

    Leaks: these figures. All digits of an accuracy or AUC, a quotient of counts, would tell how many rows were counted. RMSE
    and R² together tell how far the targets spread.
    """
    told = [_round_values({name: getattr(figures, name) for name in _figure_names(validated)}) for figures in epochs]
    figures = {"epochs": told, "metrics": _round_values(metrics)}
    await channel.send(training_pb2.Shared(json=json.dumps(figures, sort_keys=True)))


async def receive_figures(
    channel: Channel, epochs: int, names: Sequence[str], *, validated: bool = False
) -> tuple[list[Figures], Values]:
    """The figures of each of ``epochs`` epochs and the metrics ``names``; args as :func:`send_figures`.

    Raises:
        ProtocolError: not the figures that were due.
    """
    text = (await channel.receive(training_pb2.Shared)).json
    try:
        document = json.loads(text)
        figures = [Figures(**{name: _number(epoch[name]) for name in _figure_names(validated)}) for epoch in document["epochs"]]
        metrics = {name: _number(document["metrics"][name]) for name in names}
        if len(figures) != epochs:
            raise ValueError("another number of epochs")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise ProtocolError(f"{channel.peer} sent figures that are not loss and metrics of this job") from None
    return figures, metrics


def _figure_names(validated: bool) -> tuple[str, ...]:
    """The figures of an epoch that are told."""
    return ("loss", "auc", "validation_loss", "validation_auc") if validated else ("loss", "auc")


def _round_values(values: Values) -> Values:
    def round_value(name: str, value: float) -> float:
        return float(f"{value:.{DIGITS}g}") if name in WITH_UNIT else round(value, DECIMALS)

    return {name: None if value is None else round_value(name, value) for name, value in values.items()}


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError("not a finite number")
    return float(value)
