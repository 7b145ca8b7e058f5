"""What a report says about ``psi_floor``."""

from __future__ import annotations

from vfl_node.alignment.psi.words import IntersectionWords


class FloorWords(IntersectionWords):
    """The words of PSI, under a different title."""

    title = "private set intersection of 20 records or more"
