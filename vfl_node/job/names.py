"""What parties and jobs are called, and how numeric columns are scaled: names that jobs and settings use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, StringConstraints

from vfl_node.configuration.models import text_like


def _check_printable(text: str) -> str:
    """``text``. Raises ValueError where it has more than one line, or a character that is not shown."""
    if not text.isprintable():
        raise ValueError("one line of characters that can be shown is expected")
    return text


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

AUTO = "auto"
"""In ``align.reuse``, in place of a job's id: whichever alignment all parties have kept."""

Purpose = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(_check_printable)
]
"""Why a job is run, for people: one line of 1 to 200 characters."""

Scaling = Literal["auto", "standard", "quantile", "log", "none"]
"""What a network reads of a numeric column, and an owner's wish for one: :mod:`vfl_node.data.transforms` has each.

``auto`` chooses ``standard``, ``quantile`` or ``log`` for each column by its values.
"""

LinearScaling = Literal["standard", "unit", "quantile", "log", "auto", "none"]
"""What a linear model reads: the same, and ``unit``, the range 0 to 1 for all columns together."""

LEVELS = 8
"""Levels by quantiles, at most, that a number gets beside it where a job says ``columns: bins``."""

ColumnTransform = Literal["none", "woe"]
"""Whether each party replaces its columns by weights of evidence of an earlier job."""

ScalingMethod = Literal["standard", "unit", "quantile", "log", "none"]
"""What was done to a column."""
