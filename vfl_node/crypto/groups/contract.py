"""The contract of a group in which the Diffie–Hellman problem is hard.

Elements come in batches: they are rows of one contiguous buffer, never separate Python objects. A
scalar is secret and has its own type. In every group here the product of scalars is again
one scalar, so ``x^{s2·s3}`` costs one operation, not two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.texts import Offsets, Texts, laid_out
from vfl_node.engines.contract import Engine
from vfl_node.errors import ProtocolError


class Scalar:
    """A secret exponent. It shows no value and refuses to be pickled or copied."""

    __slots__ = ("_value",)

    def __init__(self, value: int) -> None:
        self._value = value

    def reveal(self) -> int:
        """The number itself, for the group's own arithmetic."""
        return self._value

    def __repr__(self) -> str:
        return "Scalar(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a scalar is secret and is not serialised")


class Group(ABC):
    """A group of prime order and its encoding.

    Attributes:
        name: its name in a job file.
        width: bytes per element.
        block_rows: elements that a worker raises at a time, or so many times :attr:`Engine.grain`; about 15 ms of powers.
        chunk_rows: elements to hash, store and send at a time; about half a second of powers on one core.
        hashes_beside: whether threads hash and check at the same time; else they wait for Python's lock.
    """

    name: str
    width: int
    block_rows: int
    chunk_rows: int
    hashes_beside: bool = False

    def hash_to_group(self, ids: Sequence[bytes], domain: bytes) -> Rows:
        """As :meth:`hash_texts`, of a few identifiers."""
        return self.hash_texts(*laid_out(ids), domain)

    @abstractmethod
    def hash_texts(self, text: bytes, offsets: Offsets, domain: bytes) -> Rows:
        """One element for each identifier, uint8[n, width], with no known discrete logarithm; in the calling thread.

        Args:
            text: canonical identifiers.
            offsets: where each of them begins and ends.
            domain: separates protocols from each other: the same identifier gives
                unrelated elements under different domains. At most 255 bytes.
        """

    def blinded(self, ids: Texts, domain: bytes, scalar: Scalar, engine: Engine) -> Iterator[Rows]:
        """Hash every identifier and raise it to ``scalar``, in blocks and in order; work begins at the call.

        Workers do all of it, identifiers are laid out there too.

        Args:
            ids: canonical identifiers.
            domain: as :meth:`hash_texts`.
            scalar: the exponent; the engine's workers receive it.
            engine: computes the blocks.
        """
        size = self.block_rows * engine.grain
        blocks = (ids.part(start, start + size) for start in range(0, len(ids), size))
        return engine.map(blind_block, blocks, Blinding(self, scalar.reveal(), domain))

    def checked(self, rows: Rows, engine: Engine) -> Rows:
        """``rows``, each of which :meth:`decode` accepts; workers look at them. Raises as that."""
        size = self.block_rows * engine.grain
        blocks = (rows[start : start + size] for start in range(0, len(rows), size))
        for _ in engine.map(check_block, blocks, self):
            pass
        return rows

    def powers(self, rows: Rows, scalar: Scalar, engine: Engine, *, check: bool = False) -> Iterator[Rows]:
        """``x^scalar`` for every row, in blocks and in order; work begins at the call.

        The bytes never depend on the division into blocks, which is the engine's (:attr:`Engine.grain`).

        Cost: one group operation per row, and :meth:`decode` if requested.

        Args:
            rows: uint8[n, width], already checked or to be checked here.
            scalar: the exponent; the engine's workers receive it.
            engine: computes the blocks.
            check: the rows are as a peer sent them: workers :meth:`decode` each block before its powers.

        Raises:
            ProtocolError: an element of small order or, with ``check``, any that :meth:`decode` refuses (``E_ELEMENT``).
        """
        size = self.block_rows * engine.grain
        blocks = (rows[start : start + size] for start in range(0, len(rows), size))
        return engine.map(block_powers, blocks, Exponent(self, scalar.reveal(), check))

    def power(self, rows: Rows, scalar: Scalar, engine: Engine) -> Rows:
        """As :meth:`powers`, joined into uint8[n, width]."""
        return np.concatenate([self.empty(), *self.powers(rows, scalar, engine)])

    @abstractmethod
    def block_powers(self, rows: Rows, exponent: int) -> Rows:
        """``x^exponent`` for every row of a block, uint8[k, width], in the calling thread and without Python's lock.

        Raises:
            ProtocolError: an element of small order (``E_ELEMENT``).
        """

    @abstractmethod
    def decode(self, rows: Rows) -> Rows:
        """Check every element that a peer sent; returns the same rows.

        Raises:
            ProtocolError: an element is not the canonical encoding of a group element other than the
                neutral one (``E_ELEMENT``); the message names the rule, never the row.
        """

    @abstractmethod
    def draw(self, randomness: Randomness) -> Scalar:
        """A new secret scalar, never zero."""

    @abstractmethod
    def product(self, *scalars: Scalar) -> Scalar:
        """The scalar with the effect of all ``scalars`` one after the other; for none, the scalar that acts as 1."""

    @abstractmethod
    def inverse(self, scalar: Scalar) -> Scalar:
        """The scalar that reverses ``scalar``."""

    def empty(self) -> Rows:
        """No elements, uint8[0, width]."""
        return np.empty((0, self.width), dtype=np.uint8)

    def refuse(self, reason: str) -> NoReturn:
        """Refuse an element that a peer sent.

        Raises:
            ProtocolError: always (``E_ELEMENT``).
        """
        raise ProtocolError(f"an element {reason} ({self.name})", code="E_ELEMENT")


@dataclass(frozen=True, repr=False)
class Exponent:
    """The key of :func:`block_powers`: it holds a secret, and shows none.

    Attributes:
        group: of the rows.
        exponent: what they are raised to.
        check: whether rows are decoded first.
    """

    group: Group
    exponent: int
    check: bool


@dataclass(frozen=True, repr=False)
class Blinding:
    """The key of :func:`blind_block`: it holds a secret, and shows none.

    Attributes:
        group: of the elements.
        exponent: what they are raised to.
        domain: that they are hashed in.
    """

    group: Group
    exponent: int
    domain: bytes


def blind_block(key: Blinding, ids: Texts) -> Rows:
    """The operation of :meth:`Group.blinded`: the blinded identifiers of one block, uint8[k, width]."""
    return key.group.block_powers(key.group.hash_texts(*ids.lay_out(), key.domain), key.exponent)


def check_block(group: Group, rows: Rows) -> None:
    """The operation of :meth:`Group.checked`, of one block."""
    group.decode(rows)


def block_powers(key: Exponent, rows: Rows) -> Rows:
    """The operation of :meth:`Group.powers`: the powers of one block, uint8[k, width]."""
    return key.group.block_powers(key.group.decode(rows) if key.check else rows, key.exponent)
