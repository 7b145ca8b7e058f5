"""What parties and jobs are called, and how numeric columns are scaled: names that jobs and settings use."""

from __future__ import annotations

from typing import Annotated, Literal

from vfl_node.configuration.models import text_like

Name = Annotated[
    str,
    text_like(
        r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
        "a name: 1 to 63 small letters, digits and hyphens that begin and end with a letter or digit",
    ),
]
"""Names of jobs and parties: lower-case letters, digits and inner hyphens, at most 63 (safe as a path and in DNS)."""

JobId = Annotated[str, text_like(r"^[a-z0-9][a-z0-9-]{0,62}$", "the id of a job: small letters, digits and hyphens")]
"""What a node calls one run of a job."""

Scaling = Literal["auto", "standard", "quantile", "log", "none"]
"""What a network reads of a numeric column, and an owner's wish for one: :mod:`vfl_node.data.transforms` has each.

``auto`` chooses ``standard``, ``quantile`` or ``log`` for each column by its values.
"""

LinearScaling = Literal["standard", "unit", "quantile", "log", "auto", "none"]
"""What a linear model reads: the same, and ``unit``, the range 0 to 1 for all columns together."""

LEVELS = 8
"""Levels by quantiles, at most, that a number gets beside it where a job says ``columns: bins``."""

ScalingMethod = Literal["standard", "unit", "quantile", "log", "none"]
"""What was done to a column."""
