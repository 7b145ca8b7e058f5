"""Sorted tags in a Rice code: a list of n of them takes little more than what tells them apart.

A tag is the first ``tag_bits`` bits of a digest. Its first ⌈log₂ n⌉ bits are its *upper part*, and the other ``rest_bytes``
bytes its *rest*. A coded list is, one behind the other:

- the upper parts in unary: for each of the 2^⌈log₂ n⌉ possible ones, in order, a 1 for each tag that has it, and a 0; the last
  byte is filled up with zeros;
- the rests of all tags, in ascending order of tags.

So n and ``rest_bytes`` give the exact size, which is known before any memory is taken: 2 to 3 bits for each tag beside its
rest. Tags that come later travel as a list of their own, and are as long; how they are divided follows from their number. A
Rice code of the differences of whole tags has at most 0.5 bits fewer, and needs numbers of more than 64 bits.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.rows import Rows
from vfl_node.errors import ProtocolError

Tags = NDArray[np.uint64]
"""The first 128 bits of digests, as two numbers each: uint64[n, 2]."""

FULLEST = 64
"""More tags with one upper part than a list of random ones has: the mean is at most 1."""

MOST_REST_BYTES = 11
"""With an upper part of at most 40 bits a tag stays within 128 bits."""


def hash_points(points: Rows, domain: bytes) -> Tags:
    """The tags of group elements, uint8[n, width]: SHA-256 of the domain and the element, one-way."""
    begun, width = hashlib.sha256(domain), points.shape[1]
    text, digests = points.tobytes(), bytearray()
    for start in range(0, len(text), width):
        digest = begun.copy()
        digest.update(text[start : start + width])
        digests += digest.digest()[:16]
    return np.frombuffer(digests, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def sort_tags(tags: Tags) -> NDArray[np.int64]:
    """Places of the tags in ascending order, int64[n]."""
    high, low = tags.T
    order = np.argsort(high)
    if (np.diff(high[order]) > 0).all():
        return order
    return np.lexsort((low, high))  # a few times slower; digests hardly ever need it


@dataclass(frozen=True)
class RiceCode:
    """How a list of ``count`` tags is coded.

    Attributes:
        count: tags.
        rest_bytes: bytes of the rest of each, 1 to :data:`MOST_REST_BYTES`.
        given_bits: bits of the upper part, where they do not follow from the count; else 0.
    """

    count: int
    rest_bytes: int
    given_bits: int = 0

    @property
    def upper_bits(self) -> int:
        """Bits of the upper part."""
        return self.given_bits or _count_bits(self.count)

    @property
    def tag_bits(self) -> int:
        """Bits of a tag."""
        return self.upper_bits + 8 * self.rest_bytes

    @property
    def unary_bytes(self) -> int:
        """Size of all upper parts."""
        return (self.count + (1 << self.upper_bits) + 7) // 8

    @property
    def size(self) -> int:
        """Size of the coded list, bytes."""
        return self.unary_bytes + self.count * self.rest_bytes

    def count_in(self, size: int) -> int:
        """How many tags a list of ``size`` bytes has, whose tags are divided as here; 0: it is no such list."""
        count = max(0, (8 * size - (1 << self.upper_bits)) // (1 + 8 * self.rest_bytes))
        shorter = RiceCode(count, self.rest_bytes)
        return count if (shorter.size, shorter.upper_bits) == (size, self.upper_bits) else 0

    def code_added(self, count: int) -> RiceCode:
        """How ``count`` tags that come to such a list are coded by themselves."""
        rest_bytes = min(MOST_REST_BYTES, (self.tag_bits - _count_bits(count)) // 8)
        return RiceCode(count, rest_bytes, self.tag_bits - 8 * rest_bytes)

    def divide(self, tags: Tags) -> tuple[NDArray[np.int64], Rows]:
        """Upper part, int64[k], and rest, uint8[k, rest_bytes], of each tag."""
        high, low, bits = tags[:, 0], tags[:, 1], np.uint64(self.upper_bits)
        upper = (high >> (np.uint64(64) - bits)).astype(np.int64)
        shifted = np.stack([(high << bits) | (low >> (np.uint64(64) - bits)), low << bits], axis=1)
        rest = shifted.astype(">u8").view(np.uint8).reshape(-1, 16)
        return upper, np.ascontiguousarray(rest[:, : self.rest_bytes])

    def encode(self, ascending: Tags) -> bytes:
        """The list of ``count`` tags, which are given in ascending order.

        Raises:
            ValueError: as many of them begin alike as no digests do.
        """
        upper, rests = self.divide(ascending)
        counts = np.bincount(upper, minlength=1 << self.upper_bits)
        if counts.max() > FULLEST:
            raise ValueError("these tags are no digests")
        return self.write(np.cumsum(counts), rests)

    def write(self, ends: NDArray[np.int64], rests: Rows) -> bytes:
        """The list that has these :attr:`TagList.ends` and :attr:`TagList.rests`."""
        unary = np.zeros(self.unary_bytes * 8, dtype=np.uint8)
        unary[: self.count + len(ends)] = 1
        unary[ends + np.arange(len(ends))] = 0
        return np.packbits(unary).tobytes() + rests.tobytes()

    def decode(self, coded: bytes) -> TagList:
        """The list that :meth:`encode` made ``coded`` of. There is only one such text for a list, and any other is refused.

        Raises:
            ProtocolError: it is none (``E_ELEMENT``).
        """
        if len(coded) != self.size:
            raise _no_list(f"it has {len(coded)} bytes, of {self.size}")
        unary = np.unpackbits(np.frombuffer(coded, dtype=np.uint8, count=self.unary_bytes))
        used = self.count + (1 << self.upper_bits)
        zeros = np.flatnonzero(unary[:used] == 0)
        if unary[used:].any() or len(zeros) != 1 << self.upper_bits or zeros[-1] != used - 1:
            raise _no_list("its upper parts are none")
        ends = zeros - np.arange(len(zeros))
        if np.diff(ends, prepend=0).max() > FULLEST:
            raise _no_list("too many tags begin alike")
        rests = np.frombuffer(coded, dtype=np.uint8, offset=self.unary_bytes).reshape(-1, self.rest_bytes)
        begins = np.zeros(self.count + 1, dtype=bool)  # of tags whose upper part is another one than that before
        begins[np.concatenate([[0], ends])] = True
        texts = rests.view(f"S{self.rest_bytes}").reshape(-1)
        if not (begins[1 : self.count] | (texts[:-1] <= texts[1:])).all():
            raise _no_list("it is not in order")
        return TagList(self, ends, rests)


@dataclass(frozen=True)
class TagList:
    """A list that was decoded.

    Attributes:
        code: of it.
        ends: int64[2^upper_bits]: how many tags have this upper part or a smaller one.
        rests: uint8[count, rest_bytes], of the tags in ascending order.
    """

    code: RiceCode
    ends: NDArray[np.int64]
    rests: Rows

    @property
    def tags(self) -> Tags:
        """Its tags in ascending order."""
        return self.take(np.arange(self.code.count))

    def take(self, places: NDArray[np.int64]) -> Tags:
        """The tags at these places; what is behind their bits is 0."""
        upper = np.searchsorted(self.ends, places, side="right").astype(np.uint64)
        rests = np.zeros((len(places), 16), dtype=np.uint8)
        rests[:, : self.code.rest_bytes] = self.rests[places]
        high, low = rests.view(">u8").astype(np.uint64).T
        bits = np.uint64(self.code.upper_bits)
        rest = np.uint64(64) - bits
        return np.stack([(upper << rest) | (high >> bits), (high << rest) | (low >> bits)], axis=1)

    def place(self, ascending: Tags) -> NDArray[np.int64]:
        """Before which of these tags each of others belongs, which are given in ascending order: int64[k]."""
        upper, rest = self.code.divide(ascending)
        place, end = self._bounds(upper)
        texts, wanted = (rows.view(f"S{self.code.rest_bytes}").reshape(-1) for rows in (self.rests, rest))
        left = np.flatnonzero(place < end)
        while len(left := left[texts[place[left]] < wanted[left]]):  # as often as the fullest upper part has tags
            place[left] += 1
            left = left[place[left] < end[left]]
        return place

    def insert(self, ascending: Tags, places: NDArray[np.int64]) -> bytes:
        """The coded list of these tags and of others, whose :meth:`place` is ``places``. Memory: one more list."""
        upper, rest = self.code.divide(ascending)
        ends = self.ends + np.cumsum(np.bincount(upper, minlength=len(self.ends)))
        longer = RiceCode(self.code.count + len(ascending), self.code.rest_bytes, self.code.upper_bits)
        return longer.write(ends, np.insert(self.rests, places, rest, axis=0))

    def _bounds(self, upper: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The place of the first tag with each upper part, and that behind the last one."""
        return np.where(upper > 0, self.ends[np.maximum(upper, 1) - 1], 0), self.ends[upper]

    def find(self, tags: Tags) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All places of ``tags`` in the list.

        Returns:
            (which, places), int64[f] each: the tag ``which`` of those that were given is at that place. A tag that is not in
            the list is not among them, and one that comes twice there is so twice.
        """
        upper, rest = self.code.divide(tags)
        (place, end), which = self._bounds(upper), np.arange(len(tags))
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        while (left := place < end).any():  # as often as the fullest upper part has tags
            which, place, end = which[left], place[left], end[left]
            equal = (self.rests[place] == rest[which]).all(axis=1)
            found.append((which[equal], place[equal]))
            place = place + 1
        whiches, places = zip(*found, strict=True)
        return np.concatenate(whiches), np.concatenate(places)


def _count_bits(count: int) -> int:
    """Bits by which so many tags have about one upper part each."""
    return max(1, (count - 1).bit_length())


def _no_list(why: str) -> ProtocolError:
    return ProtocolError(f"this is no list of tags: {why}", code="E_ELEMENT")
