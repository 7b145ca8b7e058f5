"""Where each column of a table stands among what an encoder makes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from vfl_node.data.features import Encoder, Scale
from vfl_node.data.levels import Levels
from vfl_node.data.lists import ListLevels


@dataclass(frozen=True)
class ColumnPlaces:
    """The places of one column in :class:`~vfl_node.data.features.Features`.

    Attributes:
        numeric: among the numbers, with its indicator.
        categorical: among the codes.
        bags: among the codes of items.
    """

    numeric: list[int] = field(default_factory=list)
    categorical: list[int] = field(default_factory=list)
    bags: list[int] = field(default_factory=list)


def places_of_columns(encoder: Encoder) -> dict[str, ColumnPlaces]:
    """Column → its places; of a date those of all its parts."""
    found = {encoding.name: ColumnPlaces() for encoding in encoder.columns}
    numbers = [encoding for encoding in encoder.columns if isinstance(encoding, Scale)]
    indicated = [encoding for encoding in numbers if encoding.indicator]
    for place, encoding in enumerate([*numbers, *indicated]):
        found[encoding.name].numeric.append(place)
    codes = [encoding for encoding in encoder.columns if isinstance(encoding, Levels)]
    for place, level in enumerate(codes):
        found[level.name].categorical.append(place)
    first = 0
    for items in (encoding for encoding in encoder.columns if isinstance(encoding, ListLevels)):
        found[items.name].bags.extend(range(first, first + items.length))
        first += items.length
    return found
