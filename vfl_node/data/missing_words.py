"""What people write into a cell that has no value, whatever program wrote it."""

from __future__ import annotations

from collections.abc import Iterable

MISSING_WORDS = frozenset({"", "?", ".", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "nat", "null", "(null)", "\\n", "none"})
"""In small letters: of CSV, SQL Server, Hive (``\\N``), Excel (``#N/A``), SAS (``.``), R, and pandas (``<NA>``, ``NaT``)."""


def is_missing(cell: str) -> bool:
    """Whether a cell, without white space at its ends, stands for a missing value."""
    return cell.lower() in MISSING_WORDS


def missing_among(cells: Iterable[str]) -> set[str]:
    """Those of ``cells`` that stand for a missing value."""
    return set(filter(is_missing, cells))
