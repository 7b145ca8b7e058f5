"""Which columns of a table are no features: identifiers, labels, the order of the records and their groups, row numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, TypeVar

import numpy as np

from vfl_node.data.cells import number
from vfl_node.data.readers.names import ONE_CELL
from vfl_node.data.text_columns import Beginning, TextColumns
from vfl_node.errors import DataError
from vfl_node.job import IdForm
from vfl_node.job.keys import NO_KEYS, Keys
from vfl_node.settings.declared import kind_of, kinds_of
from vfl_node.settings.node import Data

T = TypeVar("T")

Apart = Literal["id", "label", "order", "group", "key", "weight", "offset", "exposure", "row number"]
"""What a column is that is no feature."""

_ROW_LABELS = re.compile(r"Unnamed: 0(\.1)*|__index_level_[0-9]+__")
"""How pandas and Parquet call row labels without a name of their own."""

_PERHAPS_ROW_NUMBERS = ("index", "level_0", "X", "...1", "rownames", "rowname", "row")
"""How pandas and R call them once they are a column; other tables call a measurement so."""

_DELIMITER = r"[\x00-\x1f ^~:!#&*/%]"

_NAMES_SHOWN = 20


def id_columns_of(data: Data, id_form: IdForm | tuple[IdForm, ...], party: str) -> tuple[str, ...]:
    """The columns that identify a record, one for each form. Raises DataError (``E_CONFIG``)."""
    id_columns, forms = make_tuple(data.id), make_tuple(id_form)
    if len(id_columns) != len(forms):
        raise DataError(
            f"{party}: data.id names {_columns(id_columns)} ({', '.join(id_columns)}), "
            f"and the job's align.id_form is for {_columns(forms)} ({', '.join(forms)})",
            code="E_CONFIG",
            hint="list one column in data.id for each form, in the order of the job's align.id_form",
        )
    return id_columns


def check_ordered(data: Data, party: str, *, needs_order: bool) -> None:
    """Refuse a table without an order for a job that holds out the last records. Raises DataError (``E_CONFIG``)."""
    if needs_order and not data.order:
        raise DataError(
            f"{party}: the job holds out the last records (evaluate.hold_out), and data.order names no column that orders them",
            code="E_CONFIG",
            hint="set data.order to a column of numbers or dates, such as the time of the record; it stays private",
        )


def key_columns_of(data: Data, keys: Keys, party: str) -> dict[str, tuple[str, ...]]:
    """The columns behind each key of a job: those that ``data.keys`` names, or the one that is called as the key is.

    Raises:
        DataError: it takes two columns for a place, or one for another key, and there are more or fewer (``E_CONFIG``).
    """
    columns = {name: make_tuple(data.keys.get(name, name)) for name in keys}
    for name, key in keys.items():
        if len(columns[name]) != (2 if key.kind == "place" else 1):
            raise DataError(
                f"{party}: the job's key {name} is a {key.kind}, and data.keys has {_columns(columns[name])} for it",
                code="E_CONFIG",
                hint=f"say data.keys: {{{name}: {'[LATITUDE, LONGITUDE]' if key.kind == 'place' else 'COLUMN'}}}",
            )
    return columns


def columns_set_apart(
    text: TextColumns | Beginning, data: Data, id_columns: tuple[str, ...], *, needs_label: bool, keys: Keys = NO_KEYS
) -> dict[str, Apart]:
    """The columns that are no features, and what they are instead. A column of order that is also declared is a feature.

    Columns behind keys are none in any job: those of the settings, and those of this job's ``keys``. Unless ``data.columns``
    declares them, row numbers are none, either, nor are labels where they are not needed.

    Raises:
        DataError: a column that the settings name does not exist, or is named for two purposes (``E_COLUMN``).
    """
    behind = dict.fromkeys(data.key_columns, "data.keys") | {
        column: "data.keys" if name in data.keys else f"the job's key {name}; data.keys may name another"
        for name, columns in key_columns_of(data, keys, text.source).items()
        for column in columns
    }
    label = data.labels.column
    set_apart: dict[str, Apart] = dict.fromkeys(id_columns, "id")
    if label in id_columns and needs_label:
        raise DataError(f"{text.source}: column {label!r} cannot be both id and label", code="E_COLUMN", hint="set data.label")
    if needs_label or (label in text.names and (data.label or label not in {*data.columns, *id_columns, *behind})):
        set_apart[label] = "label"
    if data.order and kind_of(data.columns.get(data.order)) in (None, "ignore"):
        set_apart[data.order] = "order"
    if data.group:
        set_apart[data.group] = "group"
    set_apart |= data.row_numbers
    for name in behind:
        if set_apart.get(name) == "label" and needs_label:
            raise DataError(
                f"{text.source}: column {name!r} cannot be both label and key",
                code="E_COLUMN",
                hint="set data.label or data.keys",
            )
        set_apart.setdefault(name, "key")
    setting_of = (
        dict.fromkeys(id_columns, "data.id")
        | ({label: "data.label"} if needs_label else {})
        | dict.fromkeys(data.columns, "data.columns")
        | dict.fromkeys(data.image.named if data.image else (), "data.image")
        | {name: setting for setting, name in data.of_records_alone.items()}
        | behind
    )
    check_named(text, setting_of)
    for name, kind in kinds_of(data.columns).items():
        if name in set_apart and kind != "ignore":
            raise DataError(
                f"{text.header}:{name}: is the {set_apart[name]} column and cannot be a {kind} one",
                code="E_COLUMN",
                hint=f"remove {name!r} from data.columns",
            )
    named = {*set_apart, *setting_of}
    return set_apart | {name: "row number" for name in text.names if name not in named and _numbers_rows(text, name)}


def check_named(text: TextColumns | Beginning, setting_of: Mapping[str, str]) -> None:
    """Refuse an input without a column; ``setting_of``: column → the setting that names it. Raises DataError (``E_COLUMN``)."""
    for name, setting in setting_of.items():
        if name not in text.names:
            raise DataError(
                f"{text.header}: there is no column {name!r} ({setting})",
                code="E_COLUMN",
                hint=_names_hint(text, name, setting_of),
            )


def select_left_out(set_apart: Mapping[str, Apart], *, needs_label: bool) -> dict[str, Apart]:
    """Those of ``set_apart`` that an owner may have taken for features: labels that are not needed, and row numbers."""
    return {name: use for name, use in set_apart.items() if use == "row number" or (use == "label" and not needs_label)}


def _numbers_rows(text: TextColumns | Beginning, name: str) -> bool:
    """Whether a column only numbers the rows: by its name, or by values from 0 or 1 in any order, once all rows are read."""
    if _ROW_LABELS.fullmatch(name):
        return True
    values = text.values(name) if name in _PERHAPS_ROW_NUMBERS and isinstance(text, TextColumns) else None
    return (
        values is not None and values.min() in (0, 1) and np.array_equal(np.sort(values), values.min() + np.arange(len(values)))
    )


def _names_hint(text: TextColumns | Beginning, name: str, named: Mapping[str, str]) -> str:
    """The existing columns, for an error; nothing from a first line that may be a record."""
    by_folded = {column.casefold(): column for column in text.names}
    above_numbers = any(math.isinf(number(column)) and math.isfinite(number(cell)) for column, cell in text.first_row.items())
    if len(text.names) == 1 and re.search(_DELIMITER, text.names[0]):
        return ONE_CELL
    if not above_numbers and not {key.casefold() for key in named} & set(by_folded):
        return "the first line must name the columns"
    near = get_close_matches(name.casefold(), by_folded, n=1)
    more = ", …" if len(text.names) > _NAMES_SHOWN else ""
    listed = f"columns: {', '.join(text.names[:_NAMES_SHOWN])}{more}"
    if unnamed := next((column for column in text.names if column.startswith("__index_level_")), None):
        listed += f"; {unnamed} has row labels of pandas without a name: frame.rename_axis({name!r}) names them"
    return f"did you mean {by_folded[near[0]]!r}? {listed}" if near else listed


def make_tuple(one_or_several: T | tuple[T, ...]) -> tuple[T, ...]:
    """One or several things as several."""
    return one_or_several if isinstance(one_or_several, tuple) else (one_or_several,)


def _columns(named: tuple[str, ...]) -> str:
    return f"{len(named)} {'column' if len(named) == 1 else 'columns'}"
