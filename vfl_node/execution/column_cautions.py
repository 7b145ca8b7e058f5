"""Warnings of columns that tell a model nothing, or something else than they hold: for their own owner, at every party.

They are whole sentences with what to do, without a cell, for this party's log and report. Nothing that is sent depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vfl_node.configuration.yaml_text import quote_key
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.identifiers import parts
from vfl_node.data.levels import FEW_ROWS_EACH, mostly_rare
from vfl_node.data.shapes import far_apart
from vfl_node.data.tables import CategoricalColumn, DateColumn, NumericColumn, Table

MOST_NAMED = 5
"""Columns that get a sentence each for one reason."""

TOTALS = frozenset({"total", "totals", "grand total", "sum", "gesamt", "summe"})
"""In small letters, what stands in the place of an id where a row has the totals of all others."""

_LEFT_OUT = {
    "label": "it has the name of the label column (data.label), and a copy of the labels would reveal what is to be predicted",
    "row number": "it numbers the rows or has the row labels of pandas, and says nothing about a record",
}
"""What a column was taken for → why it is left out."""


def total_cautions(table: Table) -> tuple[str, ...]:
    """Whether the last record is none, but the totals that a spreadsheet or a report has below the others.

    Args:
        table: this party's, in the order of its input.
    """
    last = parts(table.ids[-1]) if len(table) else ()
    if not any(text.lower().rstrip(":") in TOTALS for text in last):
        return ()
    return ("The id of the last record is a word for a total. If its cells are the totals of all other records, remove it.",)


def table_cautions(table: Table) -> tuple[str, ...]:
    """Which columns were left out without a word of the settings, and whether records tell what came after others.

    Args:
        table: this party's.
    """
    late = table.merged.caution if table.merged else ""
    return (late,) * bool(late) + tuple(
        f"Column {name!r} is left out: {_LEFT_OUT[use]}. If it is a feature, declare its kind (data.columns); else remove it "
        f"or say data.columns: {{{quote_key(name)}: ignore}}."
        for name, use in table.left_out.items()
    )


def column_cautions(table: Table) -> tuple[str, ...]:
    """What this party's columns give rise to: codes among the numbers, thousands for decimals, categories of hardly any use."""
    numbers = {name: column for name, column in table.columns.items() if isinstance(column, NumericColumn)}
    codes = [
        f"Column {name!r} is read as numbers, and {column.zero_led:,} of its {len(column.values):,} cells begin with a zero "
        "before other digits, as postcodes and other codes do: these zeros are lost. Declare it (data.columns: "
        f"{{{quote_key(name)}: categorical}}; numeric if it holds numbers)."
        for name, column in numbers.items()
        if column.zero_led
    ]
    codes += [
        f"Column {name!r} is read as numbers with thousands in groups, and nearly all its cells are different numbers with the "
        "same number of digits, like telephone numbers and numbers of persons and companies. Declare it (data.columns: "
        f"{{{quote_key(name)}: ignore}}; numeric if it holds numbers)."
        for name, column in numbers.items()
        if column.seems == "codes"
    ]
    pixels = frozenset(table.image.columns if table.image else ())
    scales = {name: ("numeric", column.values) for name, column in numbers.items() if name not in pixels}
    scales |= {name: ("date", column.seconds) for name, column in table.columns.items() if isinstance(column, DateColumn)}
    far = [
        f"Column {name!r} has {count:,} cells that are very far from all others, as 9999 is if it stands for a missing value. "
        "If they stand for missing values, say data.columns: "
        f"{{{quote_key(name)}: {{kind: {kind}, missing: [VALUE]}}}}."
        for name, (kind, values) in scales.items()
        if (count := far_apart(values, dates=kind == "date"))
    ]
    if table.labels is not None and table.labels.dtype == np.float64 and (count := far_apart(table.labels)):  # targets
        far.append(
            f"{count:,} targets are very far from all others, as 9999 is if it stands for a missing value. If they stand for "
            "missing values, leave their rows out."
        )
    thousands = [
        f"Column {name!r} is read as numbers with decimals. But every point stands before exactly three digits, as if the "
        f"points separated thousands. If they do, say data.columns: {{{quote_key(name)}: {{kind: numeric, thousands: '.'}}}}; "
        "else decimal: '.'."
        for name, column in numbers.items()
        if column.seems == "thousands"
    ]
    if any(map(_proves_decimals, numbers.values())):
        thousands = []
    useless = [
        f"Column {name!r} is read as categories, and {counts[0]:,} of its {counts[1]:,} values are rare: fewer than "
        f"{FEW_ROWS_EACH} of your records have the same value. Rare values are merged or learnt by heart, so the model gets "
        f"hardly anything from them. {_remedy(name, column)}"
        for name, column in table.columns.items()
        if isinstance(column, CategoricalColumn) and (counts := mostly_rare(column))
    ]
    return (
        *shorten(codes, "more columns may hold codes"),
        *shorten(thousands, "more columns may have thousands"),
        *shorten(far, "more columns have such cells"),
        *shorten(useless, "more columns are categories of hardly any use"),
    )


def encoding_cautions(columns: Iterable[EncodedColumn], said: Iterable[str]) -> tuple[str, ...]:
    """What the encoder of a model has made of the columns: those of which no level is left.

    Args:
        columns: of this party.
        said: warnings that were given already.
    """
    known = tuple(said)
    lost = [
        f"Column {column.name!r} is read as categories, and all its {column.merged:,} levels are merged, because fewer than "
        f"train.least_rows of the training rows have each: the model gets nothing from it. Say data.columns: "
        f"{{{quote_key(column.name)}: ignore}}, or declare it as what it holds."
        for column in columns
        if column.kind == "categorical"
        and not column.levels
        and column.merged
        and not any(text.startswith(f"Column {column.name!r} is read as categories") for text in known)
    ]
    return shorten(lost, "more columns have no level left")


def _proves_decimals(column: NumericColumn) -> bool:
    """Whether a column has decimals by a point and nothing else; then another one of the same table has, too."""
    by_point = column.seems is None and (column.notation is None or column.notation.decimal in (None, "."))
    values = column.values[np.isfinite(column.values)] if by_point else np.zeros(0)
    return bool((np.trunc(values) != values).any())


def _remedy(name: str, column: CategoricalColumn) -> str:
    ignore = f"data.columns: {{{quote_key(name)}: ignore}}"
    if not column.detected:
        return f"To leave it out say {ignore}."
    return (
        "If the column holds numbers or dates, correct its cells or say how they are written (data.columns: "
        f"{{{quote_key(name)}: {{kind: numeric, missing: [WORD]}}}} or {{kind: date, date_format: d/m/Y}}); else say {ignore}."
    )


def shorten(sentences: list[str], more: str) -> tuple[str, ...]:
    """The first of them, and how many others there are: ``more``, such as ``more columns may hold codes``."""
    rest = len(sentences) - MOST_NAMED
    return (*sentences[:MOST_NAMED], *([f"{rest} {more}."] if rest > 0 else []))
