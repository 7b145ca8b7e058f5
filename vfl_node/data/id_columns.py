"""Identifiers of whole columns: all cells that are ASCII at once, in Arrow; other cells one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vfl_node.data.cells import ASCII_SPACE
from vfl_node.data.identifiers import Identifiers, canonical, composite
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import DataError
from vfl_node.job import IdForm

FEW = 16
"""So many ids are made sooner one by one than by Arrow, whose calls take as long as some ids each."""


class UnusableId(Exception):
    """A cell has no canonical form.

    Args:
        row: its row, counted from the first one given.
        part: which of the columns.
        error: why.
    """

    def __init__(self, row: int, part: int, error: DataError) -> None:
        super().__init__(error.message)
        self.row, self.part, self.error = row, part, error


def identifiers_of(columns: Sequence[pa.Array], forms: Sequence[IdForm]) -> Identifiers:
    """The identifier of each row: canonical in its form, or composite if there are several columns.

    Args:
        columns: text of n rows, a column for each form.
        forms: of the job.

    Cost: 0.1 µs an id if it is ASCII, else as :func:`~vfl_node.data.identifiers.canonical`.

    Raises:
        UnusableId: the first row that has none.
    """
    few = len(columns[0]) <= FEW
    parts = [None if few else _canonical_cells(cells, form) for cells, form in zip(columns, forms, strict=True)]
    if any(part is None for part in parts):
        return Identifiers.from_items(_one_by_one(columns, forms))
    if len(parts) == 1:
        return _to_identifiers(parts[0])
    pieces: list[pa.Array | str] = ["composite:"]
    for part in parts:
        pieces += [pc.binary_length(part).cast(pa.string()), ":", part]
    return _to_identifiers(pc.binary_join_element_wise(*pieces, ""))


def join_ids(text: TextColumns, names: tuple[str, ...], forms: tuple[IdForm, ...]) -> Identifiers:
    """The identifier of each row, of columns ``names`` in a form each; some may repeat. Raises DataError (``E_ID``)."""

    def batches() -> Iterator[Identifiers]:
        before = 0
        for cells in zip(*map(text.chunks, names), strict=True):
            try:
                yield identifiers_of(cells, forms)
            except UnusableId as unusable:
                where, error = text.locate(names[unusable.part], before + unusable.row), unusable.error
                raise DataError(f"{where}: {error.message}", code=error.code, hint=error.hint) from None
            before += len(cells[0])

    return Identifiers.concatenate(batches())


def _canonical_cells(cells: pa.Array, form: IdForm) -> pa.Array | None:
    """As :func:`canonical`, if all cells have a canonical form."""
    if cells.null_count:
        return None
    plain = pc.string_is_ascii(cells)
    among = plain.to_numpy(zero_copy_only=False)
    if among.all():
        return _canonical_ascii(cells, form)
    quick = _canonical_ascii(cells.filter(plain), form)
    if quick is None:
        return None
    try:
        slow = [canonical(cell, form).decode() for cell in cells.filter(pc.invert(plain)).to_pylist()]
    except DataError:  # which row it is, and of which column, is found out one by one
        return None
    places = np.empty(len(cells), dtype=np.int64)
    places[among], places[~among] = np.arange(len(quick)), len(quick) + np.arange(len(slow))
    return pa.concat_arrays([quick, pa.array(slow, pa.string())]).take(pa.array(places))


def _canonical_ascii(cells: pa.Array, form: IdForm) -> pa.Array | None:
    """As :func:`canonical` of ASCII cells, if all have a canonical form and there are any."""
    cells = pc.ascii_trim(cells, characters=ASCII_SPACE).cast(pa.string())
    if form == "nocase":
        cells = pc.ascii_lower(cells)
    elif form == "integer":
        if not pc.all(pc.match_substring_regex(cells, "^[+-]?[0-9]+$")).as_py():
            return None
        cells = pc.replace_substring_regex(cells, r"^[+]?(-?)0*([0-9]+)$", r"\1\2")
        cells = pc.replace_substring_regex(cells, "^-0$", "0")
    if not pc.min(pc.binary_length(cells)).as_py():
        return None
    return pc.binary_join_element_wise(f"{form}:", cells, "")


def _one_by_one(columns: Sequence[pa.Array], forms: Sequence[IdForm]) -> list[bytes]:
    ids = []
    for row, cells in enumerate(zip(*(pc.fill_null(column, "").to_pylist() for column in columns), strict=True)):
        parts = []
        for place, (cell, form) in enumerate(zip(cells, forms, strict=True)):
            try:
                parts.append(canonical(cell, form))
            except DataError as error:
                raise UnusableId(row, place, error) from None
        ids.append(parts[0] if len(parts) == 1 else composite(parts))
    return ids


def _to_identifiers(cells: pa.Array) -> Identifiers:
    _, offsets, text = cells.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[cells.offset : cells.offset + len(cells) + 1].astype(np.int64)
    return Identifiers(text.slice(ends[0], ends[-1] - ends[0]).to_pybytes(), ends - ends[0])
