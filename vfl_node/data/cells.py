"""What the text of one cell says, the same for every column and every format."""

from __future__ import annotations

import math

MISSING = frozenset({"", "NA", "N/A", "nan", "NaN", "null", "None", "?"})
"""Cells without a value."""


def number(cell: str) -> float:
    """The number in a cell; NaN: missing, infinity: not a finite number."""
    if cell in MISSING:
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        return math.inf
    return value if math.isfinite(value) and "_" not in cell else math.inf  # Python reads 2024_01 as 202401
