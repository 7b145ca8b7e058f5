"""One canonical form of an identifier, so that two parties' spellings of one record are equal; and large sets of them.

Alignment compares bytes. The same identifier may be written with composed or decomposed
accents, full-width digits, invisible characters, another case or leading zeros. The job's
``id_form``, on which both parties agree, decides what counts as a difference.

Source: Unicode Standard Annex 15 (NFKC, and its stability for assigned characters); section
3.13, definition 146 of the standard (caseless matching).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from itertools import islice
from typing import overload
from unicodedata import category, normalize, unidata_version

import numpy as np
from numpy.typing import NDArray

from vfl_node.errors import DataError
from vfl_node.job import IdForm

ZERO_WIDTH = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
"""Zero-width characters, which an export may leave in a cell; for ``str.translate``."""

_INTEGER = re.compile(r"([+-]?)0*([0-9]+)")
_COMPOSITE = b"composite:"
_BATCH = 1 << 14  # ids that exist as Python objects at a time
_DIGEST_BYTES = 16


def canonical(value: str, form: IdForm) -> bytes:
    """The canonical bytes of ``value``: the name of the form, then UTF-8, so that different forms are never equal.

    ``text`` keeps case; ``nocase`` folds it; ``integer`` compares as numbers: ``007`` is ``7``.
    Zero-width characters and white space at the ends are dropped and compatibility variants
    are unified (NFKC). Idempotent, and the same in every version of Unicode: the normal forms are
    stable for assigned characters, and other characters are refused.

    Cost: 0.2 µs per id, 0.5 µs for ``integer``, 1 to 2 µs if it is not ASCII (one core).

    Raises:
        DataError: nothing is left, it is no integer though the form is ``integer``, a
            character is not assigned, or it is not valid Unicode (``E_ID``). The text never
            contains the value.
    """
    text = value if value.isascii() else _normal(value)
    if form == "nocase":
        text = text.lower() if text.isascii() else _fold(text)
    text = text.strip()
    if not text:
        raise DataError("the identifier is empty", code="E_ID", hint="give every row an identifier, or remove the row")
    if form == "integer":
        text = _integer(text)
    try:
        return f"{form}:{text}".encode()
    except UnicodeEncodeError:  # the text of the original error would show the identifier
        raise DataError("the identifier is not valid Unicode", code="E_ID", hint="save the file as UTF-8") from None


def composite(parts: Sequence[bytes]) -> bytes:
    """One identifier made of several canonical ones: equal only if all parts are equal, and never equal to a single one.

    Each part comes after its length, so that ``("ab", "c")`` is not ``("a", "bc")``.
    """
    return _COMPOSITE + b"".join([b"%d:%b" % (len(part), part) for part in parts])


def parts(id_: bytes) -> tuple[str, ...]:
    """The texts of which :func:`canonical`, or :func:`composite` after it, made ``id_``, without the names of their forms."""
    single = [id_]
    if id_.startswith(_COMPOSITE):
        single, rest = [], id_[len(_COMPOSITE) :]
        while rest:
            length, _, rest = rest.partition(b":")
            single.append(rest[: int(length)])
            rest = rest[int(length) :]
    return tuple(part.partition(b":")[2].decode() for part in single)


def _normal(value: str) -> str:
    """NFKC of ``value`` without zero-width characters; an error if this Python does not know a character."""
    if not value.isprintable() and "Cn" in map(category, value):  # unassigned characters are not printable: a quick test first
        raise DataError(
            "the identifier holds a character that Unicode has not assigned",
            code="E_ID",
            hint=f"this Python knows Unicode {unidata_version}: correct the identifier, or use a newer Python at all parties",
        )
    return normalize("NFKC", value.translate(ZERO_WIDTH))


def _fold(text: str) -> str:
    """Unicode's compatibility caseless form. One pass is not enough, because folding and NFKC affect each other."""
    once = normalize("NFKC", normalize("NFD", text).casefold())
    return normalize("NFKC", once.casefold())


def _integer(text: str) -> str:
    """Decimal digits without leading zeros, after a minus sign if negative; of any length."""
    match = _INTEGER.fullmatch(text)
    if not match:
        raise DataError(
            "the identifier is not an integer",
            code="E_ID",
            hint="align.id_form is 'integer': ids are digits with an optional sign; for others agree on 'text' or 'nocase'",
        )
    sign, digits = match.groups()
    return f"-{digits}" if sign == "-" and digits != "0" else digits


class Identifiers(Sequence[bytes]):
    """n canonical ids, immutable: one buffer and the start of each id, not one object for each.

    It can be used like a list of bytes. The first use of the order, the repeats or the digest computes all
    three; they do not change afterwards.

    Memory: the text and 8 bytes per id; 16 bytes after ordering. Ordering: 0.2 s for a million ids where the kernel is
    compiled, 0.8 s where it is not, with 50 bytes per id at its peak (one core of a small server).
    """

    def __init__(self, text: bytes, offsets: NDArray[np.int64]) -> None:
        """``text`` has the ids one after the other; id i is from ``offsets[i]``, int64[n + 1], to the next offset."""
        self._text, self._offsets = text, offsets
        offsets.flags.writeable = False

    @classmethod
    def from_items(cls, items: Iterable[bytes]) -> Identifiers:
        """Take the ids one by one, in their order; ``items`` is never in memory as a whole."""
        text, lengths, rest = BytesIO(), array("q"), iter(items)
        while batch := list(islice(rest, _BATCH)):
            text.write(b"".join(batch))
            lengths.extend(map(len, batch))
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(text.getvalue(), offsets)

    @classmethod
    def concatenate(cls, parts: Iterable[Identifiers]) -> Identifiers:
        """The ids of all ``parts``, one after the other."""
        texts, lengths = [b""], [np.zeros(1, dtype=np.int64)]
        for part in parts:
            texts.append(part._text)
            lengths.append(np.diff(part._offsets))
        return cls(b"".join(texts), np.cumsum(np.concatenate(lengths)))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return self.take(np.arange(*place.indices(len(self))))
        place = range(len(self))[place]
        return self._text[self._offsets[place] : self._offsets[place + 1]]

    def __iter__(self) -> Iterator[bytes]:
        for batch in self._batches():
            yield from batch

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identifiers):
            return NotImplemented
        return self._text == other._text and np.array_equal(self._offsets, other._offsets)

    def __add__(self, other: Identifiers) -> Identifiers:
        """These ids, then the others."""
        return Identifiers(
            self._text + other._text, np.concatenate((self._offsets, other._offsets[1:] + len(self._text)), dtype=np.int64)
        )

    def __repr__(self) -> str:
        return f"Identifiers({len(self)})"

    def take(self, places: NDArray[np.int64]) -> list[bytes]:
        """The ids at ``places``, int64[k], in that order. Each becomes a Python object, so take a batch at a time.

        Raises:
            IndexError: a place is negative or beyond the last.
        """
        if len(places) and places.min() < 0:
            raise IndexError("places of ids count from 0")
        starts, ends = self._offsets[places].tolist(), self._offsets[places + 1].tolist()
        return [self._text[start:end] for start, end in zip(starts, ends, strict=True)]

    def choose(self, places: NDArray[np.int64]) -> Identifiers:
        """The ids at ``places``, int64[k], in that order. Raises IndexError as :meth:`gather`."""
        text, offsets = self.gather(places)
        return Identifiers(text, offsets.copy())

    def gather(self, places: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
        """The text of the ids at ``places``, int64[k], and where in it each begins and ends; without Python's lock.

        Raises:
            IndexError: a place is not of an id.
        """
        import pyarrow as pa  # a worker process that never gathers needs none of it

        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._text)]
        cells = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)
        _, offsets, text = cells.take(pa.array(places)).buffers()
        return text.to_pybytes() if text else b"", np.frombuffer(offsets, dtype=np.int64)[: len(places) + 1]

    @property
    def canonical_order(self) -> NDArray[np.int64]:
        """Places of the ids, int64[n], ascending by the first 128 bits of their SHA-256.

        The ids in this order do not depend on the file's order; equal ids keep theirs.

        Leaks: a party that sees something listed in this order can compute from a guessed id where it would be.
        Shuffle what a peer must not locate.
        """
        return self._ordered[0]

    def repeats(self) -> NDArray[np.int64]:
        """Places of ids that repeat an earlier one, int64[k], ascending."""
        return self._ordered[1] if len(self) > 1 else np.empty(0, dtype=np.int64)

    def digest(self) -> bytes:
        """32 bytes, the same for the same ids in any order: SHA-256 of their 128-bit digests in canonical order.

        Leaks: it confirms a guess of the whole set; it must stay at the node.
        """
        return self._ordered[2]

    def ranks(self) -> NDArray[np.uint64]:
        """The first 128 bits of each id's SHA-256, as two numbers: uint64[n, 2], computed anew in each call."""
        from vfl_node.crypto.kernels import kernel  # which loads what most commands do not need

        digests = np.empty((len(self), _DIGEST_BYTES), dtype=np.uint8)
        for start in range(0, len(self), _BATCH):
            hashed = kernel().digests(self._text, self._offsets[start : start + _BATCH + 1])
            digests[start : start + _BATCH] = hashed[:, :_DIGEST_BYTES]
        return digests.view(">u8")

    @cached_property
    def _ordered(self) -> tuple[NDArray[np.int64], NDArray[np.int64], bytes]:
        """Canonical order, repeats and digest, computed with one pass of hashing and one sort."""
        halves = self.ranks()
        first = halves[:, 0].astype(np.uint64)
        order = np.argsort(first)
        ranked = first[order]
        if (ranked[1:] == ranked[:-1]).any():  # the other halves decide, then the places
            order = np.lexsort((halves[:, 1], first))
        del first, ranked
        halves = halves[order]
        repeats = np.sort(order[1:][(halves[1:] == halves[:-1]).all(axis=1)])
        order.flags.writeable = repeats.flags.writeable = False
        return order, repeats, sha256(halves.data).digest()

    def _batches(self) -> Iterator[list[bytes]]:
        for start in range(0, len(self), _BATCH):
            yield self[start : start + _BATCH]
