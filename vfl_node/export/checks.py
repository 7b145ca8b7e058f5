"""The self-check of every export: the same rows through the file and through the code that predicts between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.export.loaded import LoadedHalf, failures
from vfl_node.halves.graph import export_error
from vfl_node.halves.half import OwnHalf
from vfl_node.halves.probes import UNSEEN
from vfl_node.settings.declared import kind_of

BOUND = 1e-6
"""The largest difference, in units of the larger of 1 and the value. For predicted numbers the target's size stands for 1.

For what a party gives to the half that predicts, the largest encoded number of the row stands for 1 where it is larger: sums of
large numbers in float32 lose as many more digits, also where they cancel. Of predicted counts the logarithms are
compared in the same way: their errors are those of such sums.
"""

MOST_ROWS = 1000
"""Rows of a party's own table that are compared."""


MOST_PROBED = 100.0
"""An encoded number of a made-up row beyond it, which only an unscaled column has, goes through no network.

In float32 it would hide all others, and the order of a sum would decide what is left of these.
"""


@dataclass(frozen=True)
class SelfCheck:
    """What was compared, and what was found.

    Attributes:
        own_rows: of the party's table.
        probes: rows that were made up: knots, bounds, levels, missing and unseen cells, huge and tiny numbers.
        difference: the largest one, in these units.
        largest: the largest value.
    """

    own_rows: int
    probes: int
    difference: float
    largest: float


def check_file(half: OwnHalf, model: bytes, own: Table | None) -> SelfCheck:
    """Compare a file with its half.

    Args:
        half: the half.
        model: the file.
        own: the party's table; None: only probes are compared.

    Raises:
        UsageError: they differ by more than :data:`BOUND` (``E_EXPORT``).
    """
    loaded, found = LoadedHalf(model, "the file"), [(0.0, 0.0)]
    probes = half.probes()
    rows = None if own is None else own.take(np.arange(min(len(own), MOST_ROWS)))
    if rows is not None:
        found.append(compare(half, loaded, rows))
    found.append(compare(half, loaded, probes, most=MOST_PROBED))
    difference, largest = (max(each) for each in zip(*found, strict=True))
    refuse_difference(difference, BOUND, "the file")
    return SelfCheck(0 if rows is None else len(rows), len(probes), difference, largest)


def check_runs(loaded: LoadedHalf) -> None:
    """Refuse a half of another party that does not give finite numbers of rows of empty and of usual cells.

    Nobody here knows what it ought to give. Raises UsageError (``E_EXPORT``).
    """
    about, cells = loaded.about, np.array([np.nan, 1.0])
    columns: dict[str, Column] = {}
    for name, kind in ((name, kind_of(declared)) for name, declared in about.reads.items()):
        if kind == "categorical":
            columns[name] = CategoricalColumn(np.array([-1, 0]), (UNSEEN,))
        else:
            columns[name] = DateColumn(cells) if kind == "date" else NumericColumn(cells)
    table = Table(Identifiers.from_items([b"text:0", b"text:1"]), columns)
    try:
        found = (
            loaded.predicted(table, [np.zeros((2, about.width))] * len(about.others)) if about.predicts else loaded.part(table)
        )
        runs = found.shape[:1] == (2,) and (about.predicts or found.shape == (2, about.width)) and np.isfinite(found).all()
    except tuple(failures()):
        runs = False
    if not runs:
        raise export_error(
            f"the half of {about.party} gives no numbers of two rows", "use none of it; ask its owner which software made it"
        )


def compare(half: OwnHalf, loaded: LoadedHalf, table: Table, most: float = np.inf) -> tuple[float, float]:
    """The largest difference of what a file and its half make of a table, and the largest value.

    Args:
        half: the half.
        loaded: the file.
        table: any, with the half's columns.
        most: rows with an encoded number beyond it are compared behind the encoder alone.
    """
    expected, found = half.encoded(table), loaded.encoded(table)
    differences = [largest_difference(each, found[part]) for part, each in expected.items()]
    sizes = np.ones(len(table))
    for each in expected.values():
        if each.dtype.kind == "f":
            sizes = np.maximum(sizes, np.abs(each).max(axis=1))
    tame = np.flatnonzero(sizes <= most)
    rows, unit = table.take(tame), half.unit * np.ones(1)
    if half.about.predicts:
        parts = made_up_parts(half, len(rows))
        result, said = half.predicted(rows, parts), loaded.predicted(rows, parts)
        if half.about.task == "poisson":
            sizes = np.max([sizes[tame], *(np.abs(part).max(axis=1) for part in parts)], axis=0)
            result, said, unit = np.log(result), np.log(said), sizes
    else:
        result, said, unit = half.part(rows), loaded.part(rows), sizes[tame, None]
    return max([largest_difference(result, said, unit), *differences]), float(np.abs(result).max(initial=0.0))


def made_up_parts(half: OwnHalf, rows: int) -> Sequence[NDArray[Any]]:
    """What other parties might give, the same every time: normal numbers, of some rows large ones."""
    dtype = np.float32 if half.part_kind == "float" else np.float64
    size = np.where(np.arange(rows) % 10 == 0, 8.0, 1.0)[:, None]
    draws = Randomness(bytes(32))
    return [(size * draws.derive(name).normal((rows, half.about.width))).astype(dtype) for name in half.about.others]


def largest_difference(expected: NDArray[Any], found: NDArray[Any], unit: float | NDArray[np.float64] = 1.0) -> float:
    """In units of the larger of ``unit`` and the expected value; infinite where the shapes differ or a number is none."""
    if expected.shape != found.shape or not (np.isfinite(expected).all() and np.isfinite(found).all()):
        return np.inf
    exact = expected.astype(np.float64)
    return float((np.abs(found - exact) / np.maximum(unit, np.abs(exact))).max(initial=0.0))


def refuse_difference(difference: float, bound: float, what: str) -> None:
    """Raises UsageError (``E_EXPORT``) of a difference above the bound."""
    if not difference <= bound:
        raise export_error(
            f"{what} would say another thing than the model: they differ by {difference:.1e}, and {bound:.0e} is allowed",
            "no file was written. Weights or columns of very different sizes lose digits: scale the columns (train.scaling: "
            "auto) and train again",
        )
