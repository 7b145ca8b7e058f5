"""What each party has learnt by an alignment with several passive parties, in words for the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from vfl_node.alignment.several.overlap import OverlapSizes
from vfl_node.ledger import Disclosure

_MOST_LISTED = 15  # parts of the overlap; as many as four parties have


@dataclass(frozen=True)
class Learnt:
    """All that the words need; parties have their numbers in the job.

    Attributes:
        names: of all data parties.
        sizes: elements that each announces.
        reader: whose ledger it is.
        own: records of the reader; fewer than it announces if sets are padded.
        m: length of the shared order.
        of_all: whether the shared order has the records that all parties hold; else those of any.
        padded: whether announced sizes may be more than there are records.
        minimum: fewest records in a part of the overlap that the parties accept; 0: no minimum.
        parts: of the overlap, if the reader knows their sizes.
    """

    names: Sequence[str]
    sizes: Sequence[int]
    reader: int
    own: int
    m: int
    of_all: bool
    padded: bool
    minimum: int
    parts: OverlapSizes | None

    def disclosures(self, party: int) -> tuple[Disclosure, ...]:
        """What ``party`` has learnt, as far as the reader knows."""
        return tuple(self._entries(party))

    def _entries(self, party: int) -> Iterator[Disclosure]:
        most = "at most " if self.padded else ""
        for other, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            if other != party:
                yield Disclosure("set size", size, f"the number of {name}'s records: {most}{size}")
        if self.of_all:
            own = "its own" if self.padded and party != self.reader else f"its own {self._records(party)}"
            text = ". ".join([f"which {self.m} of {own} records all parties hold", *self._intersection_tells(party)])
            yield Disclosure("intersection", self.m, text)
        else:
            text = ". ".join([f"the size of the union: {most}{self.m}", *self._union_tells(party)])
            yield Disclosure("union size", self.m, text)
        if party == 0:  # the active party forms the shared order
            yield Disclosure("overlap sizes", 2 ** len(self.names) - 1, self._overlap_tells())
        if self.minimum:
            text = f"that each part of the overlap has at least {self.minimum} records"
            yield Disclosure("smallest overlap", self.minimum, text)

    def _records(self, party: int) -> int:
        return self.own if party == self.reader else self.sizes[party]

    def _union_tells(self, party: int) -> Iterator[str]:
        """Where the size of the union alone says who holds which records."""
        if self.m == sum(self.sizes):
            yield "No two parties share a record"
        for other, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            if self.m == size:
                yield "It holds every record of all others" if other == party else f"{name} holds every record of all others"

    def _intersection_tells(self, party: int) -> Iterator[str]:
        """Whose records the size of the intersection alone names."""
        for other, (name, size) in enumerate(zip(self.names, self.sizes, strict=True)):
            if self.m == size > 0 and other != party:
                yield f"These are all records of {name}"

    def _overlap_tells(self) -> str:
        """The sizes of the parts, where the reader knows them, and where one says who holds which records."""
        what = "how many records exactly some of the parties hold, for each choice of parties, not which records"
        if self.parts is None:
            return what
        parts = self.parts
        named = [(size, place) for place, size in enumerate(parts.sizes) if place]
        listed = named
        if len(named) > _MOST_LISTED:  # a small part tells more than a large one
            listed = sorted(item for item in named if item[0])[:_MOST_LISTED]
        shown = ", ".join(self._part(*item) for item in listed)
        if listed is not named:
            empty = sum(not size for size, _ in named)
            shown += f"; {len(named) - empty - len(listed)} parts are larger, and {empty} are empty"
        return ". ".join([f"{what}: {shown}", *self._pairs_tell(parts), *self._parties_tell(parts)])

    def _part(self, size: int, place: int) -> str:
        names = [name for party, name in enumerate(self.names) if place >> party & 1]
        most = "at most " if self.padded and len(names) == 1 else ""  # what pads a set is in no other one
        return f"{most}{size} only {' + '.join(names)}"

    def _pairs_tell(self, parts: OverlapSizes) -> Iterator[str]:
        """Which party holds all or none of the records of another one, or none but those that are known to be shared."""
        for one, other in combinations(range(len(self.names)), 2):
            shared, whole = parts.held_by(one, other), False
            for this, that in ((one, other), (other, one)):
                if shared == self._records(this) > 0:
                    whole = True
                    yield f"{self.names[that]} holds every record of {self.names[this]}"
            both = f"{self.names[one]} and {self.names[other]}"
            if not shared:
                yield f"{both} share no record"
            elif self.of_all and shared == self.m and not whole:
                yield f"{both} share only records that all parties hold"

    def _parties_tell(self, parts: OverlapSizes) -> Iterator[str]:
        """Each of whose records some other party holds, where no single one holds them all."""
        for party, name in enumerate(self.names):
            others = (other for other in range(len(self.names)) if other != party)
            held_by_one = any(parts.held_by(party, other) == self._records(party) for other in others)
            if not parts.sizes[1 << party] and not held_by_one:
                yield f"Every record of {name} is held by another party, too"
