"""The self-check of every export: the same rows through the file and through the code that predicts between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.export.loaded import LoadedHalf
from vfl_node.halves.graph import export_error
from vfl_node.halves.half import OwnHalf

BOUND = 1e-6
"""The largest difference, in units of the larger of 1 and the value, times the largest number that its row puts into a network.

Sums of float32 lose digits in proportion to what is added, and a small sum of large numbers has lost as many as a large one.
For predicted numbers the target's size stands for 1; a number that a row puts in counts as 1 at least.
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
    read = np.ones(len(table))
    for each in expected.values():
        if each.dtype.kind == "f":
            read = np.maximum(read, np.abs(each).max(axis=1, initial=0.0))
    tame = np.flatnonzero(read <= most)
    rows, read = table.take(tame), read[tame]
    if half.about.predicts:
        parts = made_up_parts(half, len(rows))
        read = np.maximum.reduce([read, *(np.abs(part).max(axis=1, initial=0.0) for part in parts)])
        result, said = half.predicted(rows, parts), loaded.predicted(rows, parts)
    else:
        result, said = half.part(rows), loaded.part(rows)
    return max([largest_difference(result, said, half.unit, read), *differences]), float(np.abs(result).max(initial=0.0))


def made_up_parts(half: OwnHalf, rows: int) -> Sequence[NDArray[Any]]:
    """What other parties might give, the same every time: normal numbers, of some rows large ones."""
    dtype = np.float32 if half.part_kind == "float" else np.float64
    size = np.where(np.arange(rows) % 10 == 0, 8.0, 1.0)[:, None]
    draws = Randomness(bytes(32))
    return [(size * draws.derive(name).normal((rows, half.about.width))).astype(dtype) for name in half.about.others]


def largest_difference(
    expected: NDArray[Any], found: NDArray[Any], unit: float = 1.0, read: float | NDArray[np.float64] = 1.0
) -> float:
    """In units of the larger of ``unit`` and the expected value, times ``read`` of its row, float64[n].

    Infinite where the shapes differ or a number is none.
    """
    if expected.shape != found.shape or not (np.isfinite(expected).all() and np.isfinite(found).all()):
        return np.inf
    exact = expected.astype(np.float64)
    units = (np.maximum(unit, np.abs(exact)).T * read).T
    return float((np.abs(found - exact) / units).max(initial=0.0))


def refuse_difference(difference: float, bound: float, what: str) -> None:
    """Raises UsageError (``E_EXPORT``) of a difference above the bound."""
    if not difference <= bound:
        raise export_error(
            f"{what} would say another thing than the model: they differ by {difference:.1e}, and {bound:.0e} is allowed",
            "no file was written. Weights or columns of very different sizes lose digits: scale the columns (train.scaling: "
            "auto) and train again",
        )
