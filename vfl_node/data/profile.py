"""What a node makes of a table, for its owner, before any job: kinds of columns, missing values, labels, spellings of ids.

The rules are those of :mod:`vfl_node.data.reading`. Where reading stops at the first error, a profile collects all of them.
It has names of columns and counts, and never an identifier, a label that the rules do not know, or any other cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.column_profile import ColumnProfile, Use, feature_profile
from vfl_node.data.columns_apart import Apart, check_ordered, columns_set_apart, id_columns_of, key_columns_of, select_left_out
from vfl_node.data.feature_columns import column_of
from vfl_node.data.identifiers import ZERO_WIDTH, Identifiers, canonical, composite
from vfl_node.data.images import Image
from vfl_node.data.keys import read_keys
from vfl_node.data.labels import MOST_CLASSES, Reading, ReadLabels, code_of, label_cells, read_labels, reading_of, replace_comma
from vfl_node.data.missing_words import missing_labels
from vfl_node.data.reading import ids_of, image_in, table_with
from vfl_node.data.row_columns import read_groups, read_offsets, read_order, read_weights
from vfl_node.data.tables import Column, KeyColumn, Table, check_enough
from vfl_node.data.targets import TargetProfile, read_targets
from vfl_node.data.text_columns import TextColumns
from vfl_node.data.words_seen import missing_among
from vfl_node.errors import DataError, VflError
from vfl_node.job import IdForm
from vfl_node.job.keys import NO_KEYS, Keys
from vfl_node.roles import NUMBER_TASKS, Task
from vfl_node.settings.declared import kind_of
from vfl_node.settings.node import Data
from vfl_node.settings.table import LabelSource

NO_WORDS: Mapping[str, Mapping[str, int]] = {}

ID_FORMS: tuple[IdForm, ...] = get_args(IdForm)

_LEADING_ZEROS = re.compile(r"[+-]?0[0-9]")
_SPACE = re.compile(r"\s")
_ZERO_WIDTH = re.compile(f"[{''.join(map(chr, ZERO_WIDTH))}]")


@dataclass(frozen=True)
class FormProfile:
    """Identifiers in one canonical form (``align.id_form``).

    Attributes:
        unusable: rows that have no identifier in this form.
        repeated: rows whose identifier is that of an earlier row.
    """

    unusable: int
    repeated: int


@dataclass(frozen=True)
class IdProfile:
    """Identifiers: how many rows have what. White space at the ends of a cell never counts: readers remove it.

    Attributes:
        columns: that identify a record together.
        forms: name of a form → identifiers in it, each column in this form.
        numbers: rows whose identifier is an integer.
        capitals: with upper-case letters.
        leading_zeros: with zeros before other digits.
        inner_space: with white space inside.
        invisible: with zero-width characters, which the canonical form leaves out.
    """

    columns: tuple[str, ...]
    forms: dict[IdForm, FormProfile]
    numbers: int
    capitals: int
    leading_zeros: int
    inner_space: int
    invisible: int


@dataclass(frozen=True)
class LabelProfile:
    """The column of labels.

    Attributes:
        column: its name.
        counts: label, from 0 → rows.
        other: rows with something else, a missing label included.
        classes: names of the classes, which are cells: for the owner's own terminal only. Empty where the table has numbers.
        positive_assumed: whether there are two names, and the settings do not say which is positive.
    """

    column: str
    counts: dict[int, int]
    other: int
    classes: tuple[str, ...] = field(default=(), repr=False)
    positive_assumed: bool = False

    @property
    def rate(self) -> float | None:
        """Share of 1 among labels 0 and 1; None if there are others, or none."""
        if not self.counts or self.other or max(self.counts) > 1:
            return None
        return self.counts.get(1, 0) / sum(self.counts.values())


@dataclass(frozen=True)
class TableProfile:
    """A table.

    Attributes:
        rows: that were read.
        whole: whether these are all rows.
        columns: in the order of the input.
        ids: its identifiers.
        label: its labels, or its targets; None if the table has no such column.
        errors: what reading the table would raise, in its order; the first one is raised.
        table: what a job would read; None if there are errors.
        image: the columns that are one; None: none are.
    """

    rows: int
    whole: bool
    columns: tuple[ColumnProfile, ...]
    ids: IdProfile
    label: LabelProfile | TargetProfile | None
    errors: tuple[VflError, ...]
    table: Table | None
    image: Image | None = None

    @property
    def features(self) -> tuple[ColumnProfile, ...]:
        """The columns that a training reads."""
        return tuple(column for column in self.columns if column.use in ("numeric", "categorical", "date", "list"))


def profile(
    text: TextColumns,
    data: Data,
    *,
    id_form: IdForm | tuple[IdForm, ...],
    needs_label: bool,
    party: str,
    task: Task | None = None,
    classes: int | None = None,
    at_least: int = 0,
    whole: bool = True,
    needs_order: bool = False,
    keys: Keys = NO_KEYS,
    words: Mapping[str, Mapping[str, int]] = NO_WORDS,
) -> TableProfile:
    """Look at a table as :func:`~vfl_node.data.reading.table_of` reads it.

    Args:
        text: as there, like ``data``, ``id_form``, ``needs_label``, ``party`` and ``at_least``.
        task: of the job; None: regression if the labels are numbers, and not all of them classes.
        classes: of the job; None: as many as the labels suggest.
        needs_order: as there, like ``keys``.
        words: column → word for a missing value → rows, as :class:`~vfl_node.data.words_seen.WordsReader` has counted them.
        whole: whether ``text`` has all rows. If it has not, a set that is too small and labels all alike are no errors.

    Raises:
        DataError: the columns are not those that the settings name, so that nothing else can be said, not even the names of the
            columns, because the first line may be a record (``E_COLUMN``, ``E_CONFIG``).
    """
    data = data.of_records
    id_columns = id_columns_of(data, id_form, party)
    set_apart = columns_set_apart(text, data, id_columns, needs_label=needs_label, keys=keys)
    forms: tuple[IdForm, ...] = id_form if isinstance(id_form, tuple) else (id_form,)
    label = _labels(text, data.labels, task, classes) if data.labels.column in text.names else None
    errors: list[VflError] = []
    ids = Identifiers.from_items(())
    labels: ReadLabels | None = None
    with _collecting(errors):
        ids = ids_of(text, id_columns, forms)
    with _collecting(errors):
        check_enough(len(text), at_least if whole else 0, party)
    if needs_label and label:
        with _collecting(errors, *(() if whole else ("E_ONE_CLASS",))):
            if isinstance(label, TargetProfile):
                labels = read_targets(text, data.labels, task or "regression")
            else:
                labels = read_labels(text, data.labels, classes or max([2, *(k + 1 for k in label.counts)]))
    with _collecting(errors):
        check_ordered(data, party, needs_order=needs_order)
        if needs_order and data.order:
            read_order(text, data.order, kind_of(data.columns.get(data.order)))
    weights: NDArray[np.float64] | None = None
    if needs_label and data.weight:
        with _collecting(errors):
            weights = read_weights(text, data.weight, whole=whole)
    offsets: NDArray[np.float64] | None = None
    with _collecting(errors):
        offsets = read_offsets(text, data, task)
    read: dict[str, KeyColumn] = {}
    with _collecting(errors):
        read = read_keys(text, data, keys, party)
    unread = {*data.key_columns, data.order} - {
        column for columns in key_columns_of(data, keys, party).values() for column in columns
    }
    image = image_in(text, data, set_apart)
    pixels = frozenset(image.columns if image else ())
    features: dict[str, Column] = {}
    columns: list[ColumnProfile] = []
    for name in text.names:
        kind = data.columns.get(name)
        if name in set_apart:
            read_here = set_apart[name] != "row number" and (name not in unread or (needs_order and name == data.order))
            columns.append(_set_apart(text, name, set_apart[name], read=read_here))
        elif kind == "ignore":
            columns.append(ColumnProfile(name, "ignored", declared=True))
        else:
            try:
                features[name] = column_of(text, name, kind, data.notation, pixel=name in pixels, whole=whole)
            except DataError as error:
                errors.append(error)
                use: Use = "date" if error.code == "E_DATE" else "numeric"
                columns.append(ColumnProfile(name, use, declared=kind is not None, error=error))
            else:
                seen = feature_profile(name, features[name], text.decimal, declared=kind is not None)
                among = missing_among(words.get(name, {}), data, name, numbers=seen.use in ("numeric", "date"))
                columns.append(replace(seen, words=among))
    apart = select_left_out(set_apart, needs_label=needs_label)
    table = (
        None
        if errors
        else replace(
            table_with(labels, ids, features, image=image),
            weights=weights,
            offsets=offsets,
            keys=read,
            left_out=apart,
            merged=text.merged,
        )
    )
    return TableProfile(len(text), whole, tuple(columns), _ids(text, id_columns), label, tuple(errors), table, image)


@contextmanager
def _collecting(errors: list[VflError], *ignored: str) -> Iterator[None]:
    """Add an error to ``errors`` instead of raising it, unless its code is among ``ignored``."""
    try:
        yield
    except VflError as error:
        if error.code not in ignored:
            errors.append(error)


def _set_apart(text: TextColumns, name: str, use: Apart, *, read: bool) -> ColumnProfile:
    if not read:
        return ColumnProfile(name, use, declared=True)
    if use == "group":
        codes = read_groups(text, name)
        return ColumnProfile(name, use, declared=True, missing=int(np.count_nonzero(codes < 0)), distinct=int(codes.max()) + 1)
    cells = Counter(text.cells(name))
    missing = sum(cells.pop(cell, 0) for cell in (("",) if use == "id" else missing_labels(cells)))
    return ColumnProfile(name, use, declared=True, missing=missing, distinct=len(cells))


def _labels(text: TextColumns, source: LabelSource, task: Task | None, classes: int | None) -> LabelProfile | TargetProfile:
    if task in NUMBER_TASKS:
        return TargetProfile.from_column(text, source.column)
    cells = Counter(chain.from_iterable(label_cells(text, source.column)))
    present = cells.keys() - missing_labels(cells)
    anything = task is None and classes is None and source.positive is None
    if anything and any(code_of(cell, MOST_CLASSES) is None for cell in present):
        target = TargetProfile.from_column(text, source.column)
        if target.other == 0:
            return target
    reading = _reading(present, classes, replace_comma(source.positive, text.decimal))
    if reading is None:
        numbers = {cell: code for cell in present if (code := code_of(cell, MOST_CLASSES)) is not None}
        reading = Reading(numbers, names=())
    counts = Counter[int]()
    for cell, rows in cells.items():
        counts[reading.class_of.get(cell, -1)] += rows
    other = counts.pop(-1, 0)
    return LabelProfile(source.column, dict(sorted(counts.items())), other, reading.names, reading.positive_assumed)


def _reading(cells: Collection[str], classes: int | None, positive: str | None) -> Reading | None:
    """How labels are read; without a job with as many classes as they suggest. None: they cannot be read."""
    if not cells or len(cells) > MOST_CLASSES:
        return None
    if classes is not None:
        return reading_of(cells, classes, positive)
    codes = [code for cell in cells if (code := code_of(cell, MOST_CLASSES)) is not None]
    if 0 < len(codes) < len(cells):  # some of them may be mistakes
        return reading_of(cells, 2, positive)
    suggested = 1 + max(codes) if codes else len(cells)
    return reading_of(cells, 2, positive) or reading_of(cells, max(2, suggested), positive)


def _ids(text: TextColumns, names: tuple[str, ...]) -> IdProfile:
    forms = {form: _form(text, names, form) for form in ID_FORMS}
    capitals = leading_zeros = inner_space = invisible = 0
    for cells in zip(*map(text.cells, names), strict=True):
        capitals += any(cell != cell.lower() for cell in cells)
        leading_zeros += any(map(_LEADING_ZEROS.match, cells))
        inner_space += any(map(_SPACE.search, cells))
        invisible += any(not cell.isascii() and _ZERO_WIDTH.search(cell) for cell in cells)
    return IdProfile(names, forms, len(text) - forms["integer"].unusable, capitals, leading_zeros, inner_space, invisible)


def _form(text: TextColumns, names: tuple[str, ...], form: IdForm) -> FormProfile:
    ids = Identifiers.from_items(_usable(text, names, form))
    return FormProfile(len(text) - len(ids), len(ids.repeats()))


def _usable(text: TextColumns, names: tuple[str, ...], form: IdForm) -> Iterator[bytes]:
    """The identifiers of those rows that have one in this form."""
    for cells in zip(*map(text.cells, names), strict=True):
        try:
            parts = [canonical(cell, form) for cell in cells]
        except DataError:
            continue
        yield parts[0] if len(parts) == 1 else composite(parts)
