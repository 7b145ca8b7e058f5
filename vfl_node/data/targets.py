"""The column of numbers that a regression predicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vfl_node.data.labels import ReadLabels
from vfl_node.data.shapes import thousands_by_points
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.roles import Task
from vfl_node.settings.table import LabelSource

LARGEST = 1e100
"""Targets lie within plus and minus this number, so that their squares can be added up."""


def read_targets(text: TextColumns, source: LabelSource, task: Task = "regression") -> ReadLabels:
    """The target of every row, float64[n], instead of labels.

    Raises:
        DataError: a cell has no number, too large a one, or one below 0 though the task is ``poisson`` (``E_LABEL``), or all
            are the same (``E_ONE_CLASS``); the settings name a positive class (``E_CONFIG``).
    """
    name = source.column
    if source.positive is not None:
        raise DataError(
            f"{text.source}: data.label.positive is for two classes, and the job predicts a number (train.task: {task})",
            code="E_CONFIG",
            hint="leave positive out, or train with task: classification",
        )
    values = text.numbers(name)
    wrong = np.flatnonzero(~(np.abs(values) <= LARGEST))
    if len(wrong):
        row, such = int(wrong[0]), f"{len(wrong)} such {'cell' if len(wrong) == 1 else 'cells'} of {len(values)}"
        raise DataError(
            f"{text.locate(name, row)}: the target {_describe(float(values[row]), text, name, row)} ({such})",
            code="E_LABEL",
            hint="write every target as a number; leave out rows without one. For classes say train.task: classification",
        )
    if task == "poisson" and len(below := np.flatnonzero(values < 0)):
        raise DataError(
            f"{text.locate(name, int(below[0]))}: the target is below 0 ({len(below)} such "
            f"{'cell' if len(below) == 1 else 'cells'} of {len(values)})",
            code="E_LABEL",
            hint="train.task: poisson predicts counts, or other numbers from 0; for numbers of both signs say regression",
        )
    if text.decimal == "." and thousands_by_points(pa.chunked_array(list(text.chunks(name))).unique()) == "likely":
        raise DataError(
            f"{text.source}: the targets in column {name!r} can be read in two ways: points before decimals, or points between "
            "thousands",
            code="E_LABEL",
            hint="write them without thousands; decimals without zeros at the end, or as many in whole numbers",
        )
    if len(values) and values.min() == values.max():
        raise DataError(
            f"{text.source}: all targets in column {name!r} are the same",
            code="E_ONE_CLASS",
            hint="a regression needs records whose targets differ",
        )
    return ReadLabels(values, ())


@dataclass(frozen=True)
class TargetProfile:
    """A column of targets for its owner, who is shown three digits of each figure.

    Attributes:
        column: its name.
        rows: that have a number.
        other: rows with something else, a missing target included.
        lowest: of the numbers; None if there are none, like the others.
        highest: of the numbers.
        mean: of the numbers.
        deviation: standard deviation of the numbers.
    """

    column: str
    rows: int
    other: int
    lowest: float | None
    highest: float | None
    mean: float | None
    deviation: float | None

    @classmethod
    def from_column(cls, text: TextColumns, name: str) -> TargetProfile:
        """The profile of column ``name``."""
        values = text.numbers(name)
        usable = values[np.abs(values) <= LARGEST]
        figures = [usable.min(), usable.max(), usable.mean(), usable.std()] if len(usable) else []
        lowest, highest, mean, deviation = (float(f"{figure:.3g}") for figure in figures) if figures else (None,) * 4
        return cls(name, len(usable), len(values) - len(usable), lowest, highest, mean, deviation)


def _describe(value: float, text: TextColumns, name: str, row: int) -> str:
    if np.isnan(value):
        return "is missing"
    return f"is {text.wrong_number(name, row)}" if np.isinf(value) else f"is beyond ±{LARGEST:g}"
