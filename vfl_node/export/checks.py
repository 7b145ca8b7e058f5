"""The self-check of every export: the same rows through the file and through the code that predicts between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.export.graph import export_error
from vfl_node.export.halves import Half
from vfl_node.export.loaded import LoadedHalf

BOUND = 1e-6
"""Of a difference, in units of the larger of 1 and the value."""

MOST_ROWS = 1000
"""Rows of a party's own table that are compared."""


@dataclass(frozen=True)
class SelfCheck:
    """What was compared, and what was found.

    Attributes:
        own_rows: of the party's table.
        probes: rows that were made up: knots, bounds, levels, missing and unseen cells, huge and tiny numbers.
        difference: the largest one, in units of the larger of 1 and the value.
        largest: the largest value.
    """

    own_rows: int
    probes: int
    difference: float
    largest: float


def check_file(half: Half, model: bytes, own: Table | None) -> SelfCheck:
    """Compare a file with its half.

    Args:
        half: the half.
        model: the file.
        own: the party's table; None: only probes are compared.

    Raises:
        UsageError: they differ by more than :data:`BOUND` (``E_EXPORT``).
    """
    loaded, differences, largest = LoadedHalf(model, "the file"), [0.0], [0.0]
    probes = half.probes() if half.about.reads else None
    rows = None if own is None else own.take(np.arange(min(len(own), MOST_ROWS)))
    for table in filter(None, (rows, probes)):
        expected, found = _both(half, loaded, table)
        differences.append(largest_difference(expected, found))
        largest.append(float(np.abs(expected).max(initial=0.0)))
    refuse_difference(max(differences), BOUND, "the file")
    return SelfCheck(0 if rows is None else len(rows), 0 if probes is None else len(probes), max(differences), max(largest))


def _both(half: Half, loaded: LoadedHalf, table: Table) -> tuple[NDArray[Any], NDArray[Any]]:
    if not half.about.predicts:
        return half.part(table), loaded.part(table)
    parts = made_up_parts(half, len(table))
    return half.predicted(table, parts), loaded.predicted(table, parts)


def made_up_parts(half: Half, rows: int) -> Sequence[NDArray[Any]]:
    """What other parties might give, the same every time: normal numbers, of some rows large ones."""
    dtype = np.float32 if half.part_kind == "float" else np.float64
    size = np.where(np.arange(rows) % 10 == 0, 30.0, 2.0)[:, None]
    draws = Randomness(bytes(32))
    return [(size * draws.derive(name).normal((rows, half.about.width))).astype(dtype) for name in half.about.others]


def largest_difference(expected: NDArray[Any], found: NDArray[Any]) -> float:
    """In units of the larger of 1 and the expected value; infinite where the shapes differ or a number is none."""
    if expected.shape != found.shape or not (np.isfinite(expected).all() and np.isfinite(found).all()):
        return np.inf
    exact = expected.astype(np.float64)
    return float((np.abs(found - exact) / np.maximum(1.0, np.abs(exact))).max(initial=0.0))


def refuse_difference(difference: float, bound: float, what: str) -> None:
    """Raises UsageError (``E_EXPORT``) of a difference above the bound."""
    if not difference <= bound:
        raise export_error(
            f"{what} would say another thing than the model: they differ by {difference:.1e}, and {bound:.0e} is allowed",
            "no file was written. Weights or columns of very different sizes lose digits: scale the columns (train.scaling: "
            "auto) and train again",
        )
