"""What one row of a party's input consists of. Light: this module does not load torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InputSchema:
    """The kinds and sizes of a party's input, from which a bottom is built. A party may have no input at all.

    Attributes:
        numeric: number of numeric columns p, indicators of missing values included.
        cardinalities: number of codes of each of the c categorical columns, code 0 (missing or never seen) included.
        image: channels, height and width of one image a row; None: no images.
        sequence: length of one sequence of tokens a row, and the size of its vocabulary, code 0 (padding) included; None:
            no sequences.
        lists: number of codes, code 0 (no item) included, and most items of a row, of each column of lists.
    """

    numeric: int = 0
    cardinalities: tuple[int, ...] = ()
    image: tuple[int, int, int] | None = None
    sequence: tuple[int, int] | None = None
    lists: tuple[tuple[int, int], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return self == InputSchema()
