"""A column of an input becomes a feature: numbers, dates, categories or lists, as its owner or its values say.

Text that is no plain number is looked at as a whole (:mod:`vfl_node.data.notation`, :mod:`vfl_node.data.date_formats`). Errors
name file, line and column for the party's owner, and never contain a cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from vfl_node.configuration.yaml_text import quote_key
from vfl_node.data.accumulators import FeatureKind, ParsedNumbers
from vfl_node.data.date_formats import dates_in
from vfl_node.data.images import CORRECT_PIXEL, missing_pixel
from vfl_node.data.lists import lists_in
from vfl_node.data.notation import (
    Ambiguous,
    NumberForm,
    NumbersRead,
    decimal_of,
    numbers_in,
    plain_notation,
    remove_words,
    sentinels,
)
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, ListColumn, NumericColumn
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.settings.declared import (
    UNSAID,
    DecimalSign,
    Declared,
    Kind,
    Notation,
    declare_notation,
    kind_of,
    list_of,
    notation_of,
    scaling_of,
)


def read_as(kind: Kind | None, notation: Notation, decimal: DecimalSign) -> FeatureKind | None:
    """How the cells of a column of this kind are read, which is written so, in an input that writes decimals as ``decimal``."""
    if kind == "ignore" or kind == "list":
        raise ValueError("an ignored column is not read, and lists are taken from text")
    if kind in ("categorical", "date"):
        return "categorical"
    return None if decimal_of(notation, decimal) == decimal else "text"


def column_of(
    text: TextColumns,
    name: str,
    declared: Declared | None,
    table: Notation = UNSAID,
    *,
    pixel: bool = False,
    whole: bool = True,
) -> Column:
    """The column in its declared kind; if none is declared, in the kind that its values suggest.

    Args:
        text: the input.
        name: of the column.
        declared: what the settings say of it.
        table: how they say that cells of any column are written.
        pixel: whether it is one of an image.
        whole: whether these are all rows; of two readings that the first rows allow, the others may exclude one.

    Raises:
        DataError: text or an infinite number in a numeric column, or numbers that can be read in two ways (``E_NUMERIC``); no
            date in one of dates, or dates that can be (``E_DATE``); or no value in one of an image (``E_IMAGE``).
    """
    kind, notation = "numeric" if pixel else kind_of(declared), notation_of(declared, table)
    if (of_list := list_of(declared)) is not None:
        return lists_in(text.chunks(name), of_list)
    column = text.feature(name, read_as(kind, notation, text.decimal))
    with _one_reading(text, name):
        numbers = _numbers(text, column, notation, kind, whole=whole)
        dates = None
        if numbers is None and isinstance(column, CategoricalColumn) and kind != "categorical":
            dates = dates_in(column, notation, declared=kind == "date", whole=whole)
    if numbers is not None:
        return _numeric(text, name, numbers, declared, pixel=pixel)
    if dates is not None:
        return _dates(text, name, dates, declared)
    assert isinstance(column, CategoricalColumn)
    said = Notation(missing=notation.missing) if notation.missing else None
    return replace(remove_words(column, notation.missing), detected=kind is None, notation=said)


def declare_read(column: Column) -> Declared:
    """What is declared of a column that must be read as this one was."""
    if isinstance(column, ListColumn):
        return column.declared
    kind: Kind = "categorical"
    if isinstance(column, NumericColumn | DateColumn):
        kind = "numeric" if isinstance(column, NumericColumn) else "date"
    return declare_notation(kind, column.notation)


def _numbers(
    text: TextColumns, column: ParsedNumbers | CategoricalColumn, notation: Notation, kind: Kind | None, *, whole: bool
) -> NumbersRead | None:
    """The numbers of a column; None: it is one of something else."""
    if isinstance(column, CategoricalColumn):
        if kind in ("categorical", "date"):
            return None
        known = text.decimal_known or not whole
        return numbers_in(column, notation, text.decimal, known=known, declared=kind == "numeric", whole=whole)
    values, infinite = column.values, np.isinf(column.values)
    if notation.unit:
        values[np.isfinite(values) & (values != 0)] = np.inf
    values[sentinels(values, infinite, notation.missing)] = np.nan
    return NumbersRead(values, infinite, plain_notation(notation), column.zero_led)


def _numeric(text: TextColumns, name: str, numbers: NumbersRead, declared: Declared | None, *, pixel: bool) -> NumericColumn:
    values = numbers.values
    wrong = np.flatnonzero(np.isinf(values))
    if len(wrong):
        what, many = numbers.wrong(int(wrong[0])), _cells(len(wrong), len(values))
        word = "say data.missing: [inf]" if numbers.infinite[wrong[0]] else "name its word in data.missing"
        hint = f"correct the cell; if the value is missing leave it empty or {word}; or {_otherwise(kind_of(declared))}"
        raise DataError(
            f"{text.locate(name, int(wrong[0]))}: {what} in numeric column {name!r} ({many})",
            code="E_NUMERIC",
            hint=CORRECT_PIXEL if pixel else hint,
        )
    if pixel and len(missing := np.flatnonzero(np.isnan(values))):
        raise missing_pixel(text.locate(name, int(missing[0])), name, len(missing))
    zero_led, seems = (0 if declared or pixel else numbers.zero_led), numbers.seems
    if pixel or (declared and seems == "codes"):
        seems = None
    return NumericColumn(values, scaling_of(declared), numbers.notation, zero_led, seems)


def _dates(text: TextColumns, name: str, column: DateColumn, declared: Declared | None) -> DateColumn:
    wrong = np.flatnonzero(np.isinf(column.seconds))
    if len(wrong):
        written = column.notation.date_format if column.notation else None
        place, many = text.locate(name, int(wrong[0])), _cells(len(wrong), len(column.seconds))
        raise DataError(
            f"{place}: not a date in date column {name!r} ({many})",
            code="E_DATE",
            hint=f"write dates {f'as {written}' if written else 'as YYYY-MM-DD, with a time as YYYY-MM-DDTHH:MM:SS'}; if "
            f"the value is missing leave the cell empty or name its word in data.missing; or {_otherwise(kind_of(declared))}",
        )
    return replace(column, scaling=scaling_of(declared))


@contextmanager
def _one_reading(text: TextColumns, name: str) -> Iterator[None]:
    """Refuse a column that can be read in two ways."""
    try:
        yield
    except Ambiguous as ambiguous:
        one, other = ambiguous.readings
        if isinstance(one, NumberForm) and isinstance(other, NumberForm):
            raise DataError(
                f"{text.source}: the numbers of column {name!r} can be read in two ways: {one}, or {other}",
                code="E_NUMERIC",
                hint=f"say which: data.columns: {{{quote_key(name)}: {{kind: numeric, {one.setting}}}}}, or {other.setting}; "
                "data.thousands says it of all columns",
            ) from None
        raise DataError(
            f"{text.source}: the dates of column {name!r} can be read as {one}, or as {other}",
            code="E_DATE",
            hint=f"say which: data.columns: {{{quote_key(name)}: {{kind: date, date_format: {one}}}}}, or {other}; "
            "data.date_format says it of all columns",
        ) from None


def _otherwise(kind: Kind | None) -> str:
    return "declare it categorical in data.columns" if kind is None else "declare it otherwise"


def _cells(wrong: int, total: int) -> str:
    return f"{wrong} such {'cell' if wrong == 1 else 'cells'} of {total}"
