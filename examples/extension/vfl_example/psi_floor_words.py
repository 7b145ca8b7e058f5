"""What a report says of ``psi_floor``."""

from __future__ import annotations

from vfl_node.alignment.psi.words import IntersectionWords


class FloorWords(IntersectionWords):
    """As of PSI, under a title of its own."""

    title = "private set intersection of 20 records or more"
