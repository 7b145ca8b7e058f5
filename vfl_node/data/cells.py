"""Cells that hold a number, or nothing."""

from __future__ import annotations

import math
from typing import Literal

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


def wrong_number(cell: str) -> Literal["text", "an infinite number"]:
    """What a cell is of which :func:`number` makes infinity."""
    try:
        return "an infinite number" if math.isinf(float(cell)) else "text"
    except ValueError:
        return "text"
