"""How numeric columns enter a linear model."""

from __future__ import annotations

from typing import Literal

Scaling = Literal["standard", "unit", "none"]
"""Mean 0 and deviation 1; range 0 to 1; as they are."""
