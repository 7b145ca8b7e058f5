"""An input becomes a table: identifiers in their canonical form, labels, and columns of the kind that their values suggest.

Errors name file, line and column for the party's owner. They never contain an identifier, a
label or any other cell, because errors are logged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from vfl_node.data.aggregate import merge_rows
from vfl_node.data.columns_apart import (
    check_ordered,
    columns_set_apart,
    id_columns_of,
    key_columns_of,
    make_tuple,
    select_left_out,
)
from vfl_node.data.feature_columns import column_of, read_as
from vfl_node.data.id_columns import join_ids
from vfl_node.data.identifiers import Identifiers, parts
from vfl_node.data.images import Image, image_of
from vfl_node.data.keys import read_keys
from vfl_node.data.labels import ReadLabels, read_labels
from vfl_node.data.missing_words import is_missing_label
from vfl_node.data.readers.contract import Reader
from vfl_node.data.readers.opening import open_input
from vfl_node.data.row_columns import read_groups, read_offsets, read_order, read_weights
from vfl_node.data.spelling import is_rounded
from vfl_node.data.tables import Column, Table, check_enough
from vfl_node.data.targets import read_targets
from vfl_node.data.text_columns import Beginning, TextColumns
from vfl_node.errors import DataError
from vfl_node.job import IdForm
from vfl_node.job.keys import NO_KEYS, Keys
from vfl_node.roles import NUMBER_TASKS, Task
from vfl_node.settings.declared import Kind, kind_of, kinds_of, notation_of
from vfl_node.settings.node import Data

_PAIRS_SHOWN = 3

_ONE_ROW = (
    "keep one row a record, or data.aggregate: say what is taken of several rows; ids are compared in their canonical form "
    "(align.id_form), not as they are spelled"
)
_NO_IDS = "{:,} of them are words for a missing value, such as NULL or nan: leave out rows without an id"
_LOST_DIGITS = (
    "{:,} of them have an exponent, as in 1.2E+17, or zeros after 15 digits: a spreadsheet or a program has rounded long "
    "numbers, and different ids became equal. Remove no rows: export the ids again as text (in pandas dtype=str)"
)


def read_table(
    data: Data,
    *,
    id_form: IdForm | tuple[IdForm, ...],
    needs_label: bool,
    party: str,
    task: Task = "classification",
    classes: int = 2,
    at_least: int = 0,
    reader: Reader | None = None,
    needs_order: bool = False,
    keys: Keys = NO_KEYS,
    features: bool = True,
) -> Table:
    """Read this party's table (see docs/guides/give-tables.md).

    Args:
        data: where it is, and its columns.
        id_form: how the job compares identifiers; several forms, one for each column of
            ``data.id``, make composite ones.
        needs_label: whether labels are read, from ``data.label`` or else ``label``. If they
            are not, this column is left out, if the table has it; it is not a feature either.
        party: this party's name, for errors.
        task: what labels are.
        classes: of a classification: labels are 0 to ``classes`` − 1; at least two of them must occur.
        at_least: fewer records are refused before their labels and columns are read.
        reader: of the table, closed here; None: of the input that ``data`` names.
        needs_order: whether the job holds out the last records, and this party's column ``data.order`` says which they are.
        keys: of the job, by which it compares records.
        features: whether columns are read that a model would be trained on.

    Cost: 5 s and 0.8 GiB at the peak for a million rows of 50 columns (CSV of 420 MB). 1 s of this is for ordering
    the ids, which is done only once (one core of a small server).

    Raises:
        DataError: ``E_FILE``, ``E_FORMAT``, ``E_CSV``, ``E_SQL``, ``E_EMPTY``, ``E_COLUMN``, ``E_ID``, ``E_DUP_IDS``,
            ``E_LABEL``, ``E_ONE_CLASS``, ``E_NUMERIC``, ``E_DATE``, ``E_ROW_ORDER``, ``E_WEIGHT``, ``E_OFFSET``,
            ``E_KEY…`` or ``E_CONFIG``;
            docs/guides/give-tables.md explains each.
        UsageError: a package that the table needs is not installed (``E_EXTENSION``).
        PolicyError: as :func:`check_enough`.
    """
    id_columns_of(data, id_form, party)  # a mistake in the settings is found before a long file is read
    check_ordered(data, party, needs_order=needs_order)
    key_columns_of(data, keys, party)
    with closing(reader or open_input(data, party=party)) as opened:
        text = columns_for(
            opened,
            data,
            id_form=id_form,
            needs_label=needs_label,
            party=party,
            needs_order=needs_order,
            keys=keys,
            features=features,
        )
    table = table_of(
        text,
        data,
        id_form=id_form,
        needs_label=needs_label,
        party=party,
        task=task,
        classes=classes,
        at_least=at_least,
        needs_order=needs_order,
        keys=keys,
        features=features,
    )
    del text
    pa.default_memory_pool().release_unused()  # or Arrow keeps as much as the text took
    return table


def columns_for(
    reader: Reader,
    data: Data,
    *,
    id_form: IdForm | tuple[IdForm, ...],
    needs_label: bool,
    party: str,
    keep_label: bool = False,
    needs_order: bool = False,
    keys: Keys = NO_KEYS,
    features: bool = True,
) -> TextColumns:
    """What :func:`table_of` needs of an input: ids and labels as text, and of other columns the values alone.

    Args:
        reader: of the input; closed by whoever opened it.
        data: as for :func:`read_table`, like ``id_form``, ``needs_label`` and ``party``.
        keep_label: whether labels are kept even if they are not needed.
        needs_order: as for :func:`read_table`, like ``keys`` and ``features``.

    Raises:
        DataError: ``E_COLUMN`` and ``E_CONFIG`` before all rows are read, and what the reader raises; with ``data.aggregate``
            also as :func:`~vfl_node.data.aggregate.merge_rows`.
    """
    if data.aggregate:
        reader = merge_rows(reader, data, id_form=id_form, party=party, label=needs_label, keys=keys, features=features)
        data = data.of_records
    id_columns, label = id_columns_of(data, id_form, party), data.labels.column
    as_text = {*id_columns, label} if needs_label or keep_label else {*id_columns}
    declared: dict[str, Kind] = kinds_of(data.columns)
    behind = {column for columns in key_columns_of(data, keys, party).values() for column in columns}
    unused = {name for name, kind in declared.items() if kind == "ignore"} | ({label} if data.label else set())
    unused |= set(data.key_columns)
    as_text |= behind
    unused |= data.row_numbers.keys()
    if features:
        as_text |= {name for name, use in data.row_numbers.items() if needs_label or use != "weight"}
    if data.order and needs_order:
        as_text.add(data.order)
    elif data.order and data.order not in declared:
        unused.add(data.order)
    if not features:
        unused.update(reader.names)
    elif data.group:
        declared[data.group] = "categorical"
        unused.discard(data.group)
    used = [name for name in reader.names if name in as_text or name not in unused]
    beginning = Beginning(reader, used)
    set_apart = columns_set_apart(beginning, data, id_columns, needs_label=needs_label, keys=keys)
    apart = select_left_out(set_apart, needs_label=needs_label)
    used = [name for name in used if name in as_text or name not in apart]
    image = image_in(beginning, data, set_apart) if features else None
    declared |= dict.fromkeys(image.columns if image else (), "numeric")
    as_text |= {name for name, kind in declared.items() if kind == "list" and name in reader.names}
    kinds = {name: declared.get(name) for name in used if name not in as_text}
    values = {
        name: read_as(kind, notation_of(data.columns.get(name), data.notation), reader.decimal)
        for name, kind in kinds.items()
        if kind != "ignore"
    }
    return TextColumns(beginning, values, as_text.intersection(used))


def table_of(
    text: TextColumns,
    data: Data,
    *,
    id_form: IdForm | tuple[IdForm, ...],
    needs_label: bool,
    party: str,
    task: Task = "classification",
    classes: int = 2,
    at_least: int = 0,
    needs_order: bool = False,
    keys: Keys = NO_KEYS,
    features: bool = True,
) -> Table:
    """The table of an input that has been read. Args, cost and Raises as :func:`read_table`."""
    data = data.of_records
    id_columns = id_columns_of(data, id_form, party)
    forms: tuple[IdForm, ...] = make_tuple(id_form)
    set_apart = columns_set_apart(text, data, id_columns, needs_label=needs_label, keys=keys)
    ids = ids_of(text, id_columns, forms)
    check_enough(len(ids), at_least, party)
    as_text: tuple[IdForm, ...] = tuple("text" for _ in forms)
    plain = None if forms == as_text else join_ids(text, id_columns, as_text)
    labels: ReadLabels | None = None
    if needs_label:
        labels = read_targets(text, data.labels, task) if task in NUMBER_TASKS else read_labels(text, data.labels, classes)
    image = image_in(text, data, set_apart) if features else None
    kinds = {name: data.columns.get(name) for name in text.names if features and name not in set_apart}
    pixels = frozenset(image.columns if image else ())
    columns = {
        name: column_of(text, name, kind, data.notation, pixel=name in pixels)
        for name, kind in kinds.items()
        if kind != "ignore"
    }
    order = read_order(text, data.order, kind_of(data.columns.get(data.order))) if needs_order and data.order else None
    groups = read_groups(text, data.group) if data.group and features else None
    weights = read_weights(text, data.weight) if data.weight and needs_label and features else None
    offsets = read_offsets(text, data, task) if features else None
    read = read_keys(text, data, keys, party)
    apart = select_left_out(set_apart, needs_label=needs_label) if features else {}
    return replace(
        table_with(labels, ids, columns, plain, image),
        order=order,
        groups=groups,
        weights=weights,
        offsets=offsets,
        offset_columns={use: name for name, use in data.row_numbers.items() if use != "weight"},
        keys=read,
        label=data.labels.column if labels else "",
        left_out=apart,
        merged=text.merged,
    )


def table_with(
    labels: ReadLabels | None,
    ids: Identifiers,
    columns: Mapping[str, Column],
    plain: Identifiers | None = None,
    image: Image | None = None,
) -> Table:
    """A table of these parts."""
    if labels is None:
        return Table(ids, columns, plain=plain, image=image)
    return Table(ids, columns, labels.values, plain, labels.names, labels.positive_assumed, image)


def image_in(text: TextColumns | Beginning, data: Data, set_apart: Collection[str]) -> Image | None:
    """The columns that ``data`` declares an image; raises as :func:`vfl_node.data.images.image_of`."""
    if data.image is None:
        return None
    return image_of(data.image, text.names, data.columns, set_apart, header=text.header)


def ids_of(text: TextColumns, names: tuple[str, ...], forms: tuple[IdForm, ...]) -> Identifiers:
    """The identifiers, distinct, of columns ``names`` in a form each. Raises DataError (``E_ID``, ``E_DUP_IDS``)."""
    ids = join_ids(text, names, forms)
    repeats = ids.repeats()
    if len(repeats):
        shown = repeats[:_PAIRS_SHOWN]
        first = [next(row for row, id_ in enumerate(ids) if id_ == repeated) for repeated in ids.take(shown)]
        pairs = [f"{text.place(one)} and {text.place(other)}" for one, other in zip(first, shown.tolist(), strict=True)]
        listed = ", ".join([*pairs, "…"] if len(repeats) > _PAIRS_SHOWN else pairs)
        repeated = [parts(id_) for id_ in map(ids.__getitem__, repeats.tolist())]
        rounded = sum(any(map(is_rounded, each)) for each in repeated)
        missing = sum(any(map(is_missing_label, each)) for each in repeated)
        raise DataError(
            f"{text.locate('+'.join(names), int(repeats[0]))}: {len(repeats)} duplicate ids ({text.unit}s {listed})",
            code="E_DUP_IDS",
            hint=_LOST_DIGITS.format(rounded) if rounded else _NO_IDS.format(missing) if missing else _ONE_ROW,
        )
    return ids
