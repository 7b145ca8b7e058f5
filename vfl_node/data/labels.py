"""A column of labels becomes classes, 0 to K − 1.

The cells may be these numbers themselves (``1``, ``1.0``, ``0.000``); of two classes also truth values (``true``, ``no``,
``Y``, in any case); or any K different values, which are class names. Names are sorted, numbers among them by value, and of
two classes the last is the positive one, 1, unless the owner names it (``data.label.positive``).

Class names are cells of a private table. They stay with the party that owns the labels, in its table, its model and its report,
and no error or log has one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import overload

import numpy as np

from vfl_node.configuration.yaml_text import quote_key
from vfl_node.data.cells import number
from vfl_node.data.missing_words import is_missing_label, missing_labels
from vfl_node.data.tables import LabelColumn
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.settings.table import LabelSource

TRUTH = {"false": 0, "true": 1, "no": 0, "yes": 1, "n": 0, "y": 1}
"""Text in small letters → which of two classes it is."""

MOST_CLASSES = 64
"""The most that a job may have."""

MOST_VALUES = 1000
"""A column of more different values is not one of labels: they are not counted further, nor kept in memory."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What each cell of a column of labels means.

    Attributes:
        class_of: cell → its class, from 0.
        names: of the classes, in their order; empty where the table has the numbers of the classes themselves.
        positive_assumed: whether there are two names, and nobody has said which is positive.
    """

    class_of: Mapping[str, int] = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    positive_assumed: bool = False


@dataclass(frozen=True, eq=False)
class ReadLabels:
    """The labels of n records.

    Attributes:
        values: float32[n], 0 to K − 1; in a regression the targets, float64[n].
        names: as :attr:`Reading.names`.
        positive_assumed: likewise.
    """

    values: LabelColumn = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    positive_assumed: bool = False


def read_labels(text: TextColumns, source: LabelSource, classes: int) -> ReadLabels:
    """The labels of all rows.

    Args:
        text: the table.
        of: its column of labels, from the owner's settings.
        classes: K, of the job (``train.classes``).

    Raises:
        DataError: they are not of so many classes, or are missing in some rows (``E_LABEL``); all are the same
            (``E_ONE_CLASS``); a positive class of more than two (``E_CONFIG``).
    """
    column, positive = source.column, replace_comma(source.positive, text.decimal)
    if positive is not None and classes > 2:
        raise DataError(
            f"{text.source}: data.label.positive is for two classes, and the job has {classes} (train.classes)",
            code="E_CONFIG",
            hint="leave positive out, or train with classes: 2",
        )
    cells = distinct_cells(text, column)
    if missing := missing_labels(cells):
        absent = sum(map(is_missing_label, chain.from_iterable(label_cells(text, column))))
        raise DataError(
            f"{_first(text, column, missing)}: the label is missing ({_count_text(absent, len(text))})",
            code="E_LABEL",
            hint="leave out rows without a label; NULL, N/A, None and the like are none: give a class another name",
        )
    reading = reading_of(cells, classes, positive) if len(cells) <= MOST_VALUES else None
    if reading is None:
        raise _unreadable(text, column, cells, classes, positive)
    if len(set(reading.class_of.values())) == 1:
        raise DataError(
            f"{text.source}: all labels in column {column!r} are the same",
            code="E_ONE_CLASS",
            hint=f"a classifier needs records of {'both classes' if classes == 2 else 'two classes at least'}",
        )
    values = np.array([reading.class_of[cell] for block in label_cells(text, column) for cell in block], dtype=np.float32)
    return ReadLabels(values, reading.names, reading.positive_assumed)


def label_cells(text: TextColumns, column: str) -> Iterator[list[str]]:
    """The cells of a column of labels, a batch of rows at a time; numbers have a point, whatever the table writes."""
    for block in text.blocks(column):
        spelt = {cell: replace_comma(cell, text.decimal) for cell in set(block)} if text.decimal == "," else {}
        yield [spelt[cell] for cell in block] if spelt else block


@overload
def replace_comma(cell: str, decimal: str) -> str: ...
@overload
def replace_comma(cell: str | None, decimal: str) -> str | None: ...
def replace_comma(cell: str | None, decimal: str) -> str | None:
    """A cell that is a number with the comma of a table whose ``decimal`` it is, with a point; another one as it is."""
    if cell is None or decimal != "," or "." in cell:
        return cell
    pointed = cell.replace(",", ".")
    return pointed if math.isfinite(number(pointed)) else cell


def distinct_cells(text: TextColumns, column: str) -> set[str]:
    """The different cells of a column; not all of them where there are more than :data:`MOST_VALUES`."""
    cells: set[str] = set()
    for block in label_cells(text, column):
        cells.update(block)
        if len(cells) > MOST_VALUES:
            break
    return cells


def reading_of(cells: Collection[str], classes: int, positive: str | None = None) -> Reading | None:
    """How cells, none of them missing, are read as ``classes`` classes.

    One class alone can be read, too. None: they cannot be read, or ``positive`` is none of them.
    """
    coded = {cell: code for cell in cells if (code := code_of(cell, classes)) is not None}
    if len(coded) == len(cells):
        return _read_codes(coded, classes, positive)
    names = {cell: _name(cell) for cell in cells}
    numbers = all(math.isfinite(number(name)) for name in names.values())
    order = sorted(set(names.values()), key=lambda name: (number(name) if numbers else 0.0, name))
    if len(order) not in (1, classes) or (len(order) == 2 and numbers and positive is None):
        return None
    if positive is not None and len(order) == 2:
        if _name(positive) not in order:
            return None
        order.sort(key=lambda name: name == _name(positive))
    place = {name: code for code, name in enumerate(order)}
    return Reading({cell: place[name] for cell, name in names.items()}, tuple(order), classes == 2 and positive is None)


def _read_codes(coded: Mapping[str, int], classes: int, positive: str | None) -> Reading | None:
    """Reading of cells that are numbers of classes or truth values."""
    if positive is not None and len(set(coded.values())) == 2:
        code = code_of(positive, classes)
        if code is None:
            return None
        if code == 0:
            coded = {cell: 1 - code for cell, code in coded.items()}
    names: tuple[str, ...] = ()
    if positive is not None or any(math.isinf(number(cell)) for cell in coded):
        spelt = [[_name(cell) for cell, code in coded.items() if code == wanted] for wanted in range(classes)]
        names = tuple(min(cells, default="") for cells in spelt)
    return Reading(coded, names)


def code_of(cell: str, classes: int) -> int | None:
    """The class whose number, or truth value, a cell is; None: neither."""
    value = number(cell)
    if math.isfinite(value):
        return int(value) if value.is_integer() and 0 <= value < classes else None
    return TRUTH.get(cell.lower()) if classes == 2 else None


def _name(cell: str) -> str:
    """A cell as the name of a class: equal numbers have one name."""
    value = number(cell)
    if not abs(value) < 2**53:  # no number, or one of which a float may lose digits
        return cell
    return str(int(value)) if value.is_integer() else repr(value)


def _unreadable(text: TextColumns, column: str, cells: set[str], classes: int, positive: str | None) -> DataError:
    """What is wrong with labels that cannot be read, and what to set."""
    names = {_name(cell) for cell in cells}
    wrong = {cell for cell in cells if code_of(cell, classes) is None}
    if positive is not None and (len(names) == classes or not wrong):
        return DataError(
            f"{text.source}: no label in column {column!r} is the positive one that the settings name (data.label.positive)",
            code="E_LABEL",
            hint="write it as the table does, in quotes",
        )
    numbers = all(math.isfinite(number(name)) for name in names)
    if len(names) > MOST_CLASSES:
        all_are_classes = "name the column of labels in data.label"
        if numbers:
            all_are_classes += "; numbers are no classes: to predict them say train.task: regression in the job"
    else:
        all_are_classes = f"set train.classes: {len(names)} in the job if each of them is a class"
    count = f"{len(names):,}" if len(cells) <= MOST_VALUES else f"more than {MOST_VALUES:,}"
    rows = sum(code_of(cell, classes) is None for cell in chain.from_iterable(label_cells(text, column)))
    if 2 * rows > len(text) and not (numbers and len(names) == 2):  # else they are mistakes, and the first one is shown
        return DataError(
            f"{text.source}: column {column!r} has {count} different labels, and the job is for {classes} classes",
            code="E_LABEL",
            hint=all_are_classes,
        )
    whole = f"whole number from 0 to {classes - 1}"
    what, allowed = ("neither 0 nor 1", "0 or 1") if classes == 2 else (f"no {whole}", f"a {whole}")
    if len(names) == classes == 2:
        way_out = f"say which of the two numbers is positive, data.label: {{column: {quote_key(column)}, positive: …}}"
    else:
        way_out = f"the column has {count} different labels: {all_are_classes}"
    return DataError(
        f"{_first(text, column, wrong)}: the label is {what} ({_count_text(rows, len(text))})",
        code="E_LABEL",
        hint=f"write every label as {allowed}; {way_out}",
    )


def _first(text: TextColumns, column: str, cells: Collection[str]) -> str:
    """The place of the first cell that is one of ``cells``."""
    return text.locate(
        column, next(row for row, cell in enumerate(chain.from_iterable(label_cells(text, column))) if cell in cells)
    )


def _count_text(wrong: int, total: int) -> str:
    return f"{wrong} such {'cell' if wrong == 1 else 'cells'} of {total}"
