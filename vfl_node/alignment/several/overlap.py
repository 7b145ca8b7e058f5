"""Which elements several lists have in common: the parts of the overlap, and how large each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.lists.columns import Column
from vfl_node.alignment.lists.lists import Lists
from vfl_node.errors import PolicyError


@dataclass(frozen=True)
class OverlapSizes:
    """How many elements exactly some of the parties have, for each choice of them that is not empty.

    Attributes:
        sizes: 2^n sizes for n parties. Bit j of a place says whether party j has the elements; place 0 is 0.
    """

    sizes: tuple[int, ...]

    @property
    def union(self) -> int:
        """Elements that any party has."""
        return sum(self.sizes)

    def held_by(self, *parties: int) -> int:
        """Elements that all of ``parties`` have, whoever else does."""
        chosen = sum(1 << party for party in parties)
        return sum(size for place, size in enumerate(self.sizes) if place & chosen == chosen)

    def check(self, minimum: int) -> None:
        """Refuse to go on if a part is smaller than a party accepts; the text is the same whichever it is.

        Raises:
            PolicyError: one is (``E_OVERLAP``).

        Leaks: to all parties, that one is.
        """
        if any(size < minimum for size in self.sizes[1:]):
            text = f"a part of the overlap has fewer records than the {minimum} that the parties demand (min_overlap)"
            raise PolicyError(
                text,
                code="E_OVERLAP",
                hint="the sizes of small parts betray who is in them. min_overlap is each owner's choice; a job with "
                "another one counts as another input (budgets.alignments)",
                for_peer=text,
            )


def overlap(lists: Lists, columns: Sequence[Column], *, of_all: bool) -> tuple[OverlapSizes, NDArray[np.int64]]:
    """Compare distinct elements of several columns.

    Args:
        lists: of this party; finds elements.
        columns: of each party, blinded by the same scalars.
        of_all: whether only the elements that all columns have are wanted; else those of any.

    Returns:
        The sizes of all parts, and int64[m]: the places of the wanted elements in the columns, laid one behind the other.

    Cost: for n columns each divided once and n·(n − 1)/2 times finding all elements of one; 10 bytes of memory an element.
    """
    numbers = list[NDArray[np.int64]]()  # number of each element in the union
    first, owners = list[NDArray[np.int64]](), np.zeros(0, dtype=np.uint16)  # of each element of the union
    before = 0
    with lists.divide(*columns) as divided:
        for party, buckets in enumerate(divided):
            number = np.full(len(buckets), -1, dtype=np.int64)
            for earlier, known in zip(divided, numbers, strict=False):
                places = earlier.find(buckets)
                number[places >= 0] = known[places[places >= 0]]
            new = np.flatnonzero(number < 0)
            number[new] = len(owners) + np.arange(len(new))
            owners = np.concatenate([owners, np.zeros(len(new), dtype=np.uint16)])
            owners[number] |= 1 << party
            first.append(before + new)
            before += len(buckets)
            numbers.append(number)
    parts, places = np.bincount(owners, minlength=1 << len(columns)), np.concatenate(first)
    return OverlapSizes(tuple(parts.tolist())), places[owners == len(parts) - 1] if of_all else places
