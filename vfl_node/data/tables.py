"""One party's records: identifiers, columns and, at the active party, labels. They never leave the node."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import UNUSABLE_DATA, DataError, PolicyError


@dataclass(frozen=True, eq=False)
class NumericColumn:
    """Numbers, float64[n]; NaN: missing."""

    values: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True, eq=False)
class CategoricalColumn:
    """Categories: ``levels[codes[row]]``; int64[n], −1: missing. Levels are distinct and sorted."""

    codes: NDArray[np.int64] = field(repr=False)
    levels: tuple[str, ...] = field(repr=False)


Column = NumericColumn | CategoricalColumn

LabelColumn = NDArray[Any]
"""Labels float32[n], or the targets of a regression float64[n]."""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The records of one party, n of them.

    Attributes:
        ids: canonical identifiers (:func:`~vfl_node.data.identifiers.canonical`, or
            :func:`~vfl_node.data.identifiers.composite` of several columns), distinct.
        columns: name → column, in the order of the file.
        labels: float32[n] of 0 and 1, or of 0 to classes − 1; in a regression the targets, float64[n], in their own unit.
            None where they are not needed.
        plain: the same identifiers in the form ``text``, whatever form the job names; None if ``ids`` already are.
    """

    ids: Identifiers
    columns: Mapping[str, Column]
    labels: LabelColumn | None = None
    plain: Identifiers | None = None

    def __post_init__(self) -> None:
        """Refuse columns of different lengths."""
        lengths = {len(_data(column)) for column in self.columns.values()}
        if self.labels is not None:
            lengths.add(len(self.labels))
        if lengths - {len(self.ids)}:
            raise ValueError("ids, columns and labels must have one entry a record")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Table({len(self)} records, {len(self.columns)} columns, {'no ' if self.labels is None else ''}labels)"

    @property
    def identity(self) -> bytes:
        """32 bytes that identify the set of records, whatever form of identifiers a job uses; other columns do not matter.

        Leaks: as :meth:`~vfl_node.data.identifiers.Identifiers.digest`.
        """
        return (self.plain or self.ids).digest()

    def digest(self) -> bytes:
        """SHA-256 over the whole table, in order; a restarted job must find it unchanged."""
        state = hashlib.sha256()

        def add(part: bytes) -> None:
            state.update(len(part).to_bytes(8, "big") + part)

        add(self.ids.digest())
        add(self.ids.canonical_order.astype("<i8").tobytes())
        for name, column in self.columns.items():
            add(name.encode())
            add(type(column).__name__.encode())
            if isinstance(column, NumericColumn):
                add(
                    np.where(np.isnan(column.values), np.nan, column.values).astype("<f8").tobytes()
                )  # NaN has many bit patterns
            else:
                add(column.codes.astype("<i8").tobytes())
                levels = [level.encode() for level in column.levels]
                add(np.fromiter(map(len, levels), "<i8", len(levels)).tobytes())
                add(b"".join(levels))
        add(b"" if self.labels is None else self.labels.astype(self.labels.dtype.newbyteorder("<")).tobytes())
        return state.digest()


def check_enough(records: int, least: int, party: str) -> None:
    """Refuse a set that is too small, before anything else of the table is read, so that a refusal reveals nothing about it.

    Raises:
        PolicyError: fewer than ``least`` (``E_TOO_FEW``); the peer gets the same text as for a table that cannot be used.
    """
    if records < least:
        raise PolicyError(
            f"{party} takes part with {records} records, and this node's minimum is {least} (limits.min_set_size)",
            code="E_TOO_FEW",
            hint="the sizes of small sets betray who is in them; limits.min_set_size is this owner's choice",
            for_peer=UNUSABLE_DATA,
            peer_code=DataError.default_code,
        )


def _data(column: Column) -> NDArray[np.float64] | NDArray[np.int64]:
    return column.values if isinstance(column, NumericColumn) else column.codes
