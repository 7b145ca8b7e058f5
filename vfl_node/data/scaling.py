"""How numeric columns are scaled: the names that jobs and settings use."""

from __future__ import annotations

from typing import Literal

Scaling = Literal["auto", "standard", "quantile", "log", "none"]
"""What a network reads, and an owner's wish for one column: :mod:`vfl_node.data.transforms` has each.

``auto`` chooses ``standard``, ``quantile`` or ``log`` for each column by its values.
"""

LinearScaling = Literal["standard", "unit", "quantile", "log", "auto", "none"]
"""What a linear model reads: the same, and ``unit``, the range 0 to 1 for all columns together."""

LEVELS = 8
"""Levels by quantiles, at most, that a number gets beside it where a job says ``columns: bins``."""

Method = Literal["standard", "unit", "quantile", "log", "none"]
"""What was done to a column."""
