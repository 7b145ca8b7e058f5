"""What an operation on shares is: what is drawn and dealt for it, what is opened, and what comes out.

Every party and the dealer make the same operation, each of its own parts of the operands. A machine
(:mod:`vfl_node.crypto.shares.machine`) runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Generic, Protocol, TypeVar

from vfl_node.crypto.shares.ring import BITS, Ring

R = TypeVar("R", covariant=True)

Shape = tuple[int, ...]

Material = Mapping[str, Ring]
"""Name → a party's share of a random value; at the dealer the value."""

DEALER = -1
"""The dealer's place. Parties have the places from 0 on, the active party the first."""


@dataclass(frozen=True)
class Drawn:
    """A random value.

    Attributes:
        name: within its operation.
        shape: of it.
        without: place of a party that has no share of it.
        owner: place of the party that knows it, if it is not shared.
        lasting: whether the operation's result has it at the dealer, for later products.
        common: whether two parties know it, of a seed that both have: it hides nothing, and takes a share's pattern away.
    """

    name: str
    shape: Shape
    without: int | None = None
    owner: int | None = None
    lasting: bool = False
    common: bool = False

    def held_by(self, place: int) -> bool:
        """Whether a party draws a share of it."""
        return self.owner in (None, place) and place != self.without


@dataclass(frozen=True)
class Opening:
    """A value that is opened.

    Attributes:
        shape: of it.
        to: place of the only party that gets it; None: everybody.
        by: place of the only party that sends it; None: all shares are added.
        bits: of a number: only so many low ones are opened, in whole bytes.
        binary: whether shares are added without carries (XOR).
    """

    shape: Shape
    to: int | None = None
    by: int | None = None
    bits: int = BITS
    binary: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of a number."""
        return -(-self.bits // 8)

    @property
    def size(self) -> int:
        """Bytes of a share."""
        return prod(self.shape) * self.bytes


class Correlation(Protocol):
    """Random values that depend on others, which two parties make together before they are used.

    It says of shapes alone what is made, so that both parties, and who counts, agree on it.
    """


@dataclass(frozen=True)
class Operation(Generic[R]):
    """One operation.

    Attributes:
        result: (place, what was opened, material) → what comes out. The dealer calls it, too, with zeros opened, and with
            nothing but the lasting values.
        drawn: random values, of which every party draws its share.
        dealt: random values that depend on others, with their shapes: only the dealer can make them, and one party gets its
            share from it.
        correlated: what the dealer makes of the drawn ones.
        shown: what is opened.
        shares: (place, material) → a party's shares of it.
        receiver: place of the only party that may get what is dealt; None: any one.
        dealt_bits: of a number that is dealt: only so many low ones count and are sent, 64 or 32.
        whole: names of what is dealt to that party alone: no other has a share of it.
        binary: whether shares of what is drawn and dealt are added without carries (XOR).
        paired: what two parties make ahead without a dealer; None: nothing.
    """

    result: Callable[[int, Sequence[Ring], Material], R]
    drawn: Sequence[Drawn] = ()
    dealt: Mapping[str, Shape] = field(default_factory=dict)
    correlated: Callable[[Material], Material] = lambda values: {}
    shown: Sequence[Opening] = ()
    shares: Callable[[int, Material], Sequence[Ring]] = lambda place, material: ()
    receiver: int | None = None
    dealt_bits: int = BITS
    whole: frozenset[str] = frozenset()
    binary: bool = False
    paired: Correlation | None = None

    def words(self, shape: Shape) -> int:
        """How many words on the wire what is dealt with this shape takes."""
        return -(-prod(shape) * self.dealt_bits // BITS)
