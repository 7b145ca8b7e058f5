"""What the size of a training depends on beside the length of the shared order."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Beside:
    """What stands beside the rows.

    Attributes:
        candidates: records of the passive party that an alignment by similarity puts beside one row, at most.
        among: how many records these are chosen from; None: not known.
        common: how many rows all parties own; None: not every data party learns it, or it is not known yet.
        columns: of each data party in the job's order, as encoded; 0 where it is not known; empty: no party's is.
    """

    candidates: int = 1
    among: int | None = None
    common: int | None = None
    columns: tuple[int, ...] = ()


ONE_BESIDE = Beside()
"""Where nothing is known."""
