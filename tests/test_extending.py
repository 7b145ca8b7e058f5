"""A small package adds one thing of each kind, and jobs run with them; docs/extending.md shows its code."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTENSION = ROOT / "examples" / "extension"
PAGE = (ROOT / "docs" / "extending.md").read_text()
