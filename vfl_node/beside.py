"""What an alignment puts beside each row, which sizes of a training depend on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Beside:
    """The records of the passive party that an alignment by similarity puts beside each row.

    Attributes:
        candidates: most of them beside one row.
        among: how many records they are chosen from; None: not known.
    """

    candidates: int = 1
    among: int | None = None


ONE_BESIDE = Beside()
"""Of any other alignment."""
