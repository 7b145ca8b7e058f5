"""Values of a computation on shares, as one of those that run it has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vfl_node.crypto.shares.ring import Ring


@dataclass(frozen=True, eq=False)
class Shared:
    """A value of which each party has a share.

    Attributes:
        part: uint64[…], the party's share; zeros at the dealer, who has none.
        fraction: fractional bits.
    """

    part: Ring
    fraction: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self.part.shape

    @property
    def transposed(self) -> Shared:
        """Transposed."""
        return Shared(self.part.T, self.fraction)

    def __getitem__(self, index: Any) -> Shared:
        return Shared(self.part[index], self.fraction)

    def __add__(self, other: Shared) -> Shared:
        return Shared(self.part + self._check_fraction(other), self.fraction)

    def __sub__(self, other: Shared) -> Shared:
        return Shared(self.part - self._check_fraction(other), self.fraction)

    def times(self, factor: int, fraction: int = 0) -> Shared:
        """The product with a public integer that stands for a number with ``fraction`` fractional bits."""
        return Shared(self.part * np.uint64(factor % (1 << 64)), self.fraction + fraction)

    def sum(self, axis: int) -> Shared:
        """Sums along an axis."""
        return Shared(self.part.sum(axis=axis, dtype=np.uint64), self.fraction)

    def _check_fraction(self, other: Shared) -> Ring:
        if self.fraction != other.fraction:
            raise ValueError(f"numbers with {self.fraction} and {other.fraction} fractional bits are not added")
        return other.part


@dataclass(frozen=True, eq=False)
class Opened:
    """A value under a mask that was opened; it may be an operand of any number of products.

    Attributes:
        difference: uint64[…], value − mask, which everybody knows; zeros at the dealer.
        mask: a party's share of the mask; at the dealer the mask itself.
        fraction: fractional bits of the value.
        each: at the dealer the share of each party, where it keeps them apart; else empty.
    """

    difference: Ring
    mask: Ring
    fraction: int
    each: tuple[Ring, ...] = ()

    @property
    def transposed(self) -> Opened:
        """Transposed."""
        return Opened(self.difference.T, self.mask.T, self.fraction, tuple(part.T for part in self.each))

    def __getitem__(self, index: Any) -> Opened:
        return Opened(self.difference[index], self.mask[index], self.fraction, tuple(part[index] for part in self.each))

    def share(self, place: int) -> Shared:
        """The same value as a party's share."""
        return Shared(self.mask + self.difference if place == 0 else self.mask, self.fraction)

    @property
    def blinding(self) -> Ring:
        """−mask: what was added to the value before it was opened; a party's share, at the dealer all of it."""
        return np.uint64(0) - self.mask


@dataclass(frozen=True, eq=False)
class KnownToOne:
    """A matrix that one party knows, and all others know under a mask.

    Attributes:
        owner: place of the party that knows it.
        part: uint64[n, d]: the matrix at its owner, matrix − mask at the others, the mask at the dealer.
        fraction: fractional bits of the matrix.
        mask: uint64[n, d] at its owner, if it keeps that; None elsewhere.
    """

    owner: int
    part: Ring
    fraction: int
    mask: Ring | None = None

    @property
    def transposed(self) -> KnownToOne:
        """Transposed."""
        return KnownToOne(self.owner, self.part.T, self.fraction, None if self.mask is None else self.mask.T)

    @property
    def as_dealt(self) -> KnownToOne:
        """As the dealer has it, if this is its owner; zeros else."""
        mask = np.broadcast_to(np.uint64(0), self.part.shape) if self.mask is None else self.mask
        return KnownToOne(self.owner, mask, self.fraction)

    def __getitem__(self, index: Any) -> KnownToOne:
        return KnownToOne(self.owner, self.part[index], self.fraction, None if self.mask is None else self.mask[index])


def stack_rows(values: Sequence[Shared]) -> Shared:
    """Several values below each other."""
    (fraction,) = {value.fraction for value in values}
    return Shared(np.concatenate([value.part for value in values]), fraction)


def join_columns(values: Sequence[Shared]) -> Shared:
    """Several values beside each other."""
    (fraction,) = {value.fraction for value in values}
    return Shared(np.concatenate([value.part for value in values], axis=1), fraction)


def stack_opened(values: Sequence[Opened]) -> Opened:
    """Several open values below each other, without the shares that a dealer keeps apart."""
    (fraction,) = {value.fraction for value in values}
    differences, masks = ([getattr(value, name) for value in values] for name in ("difference", "mask"))
    return Opened(np.concatenate(differences), np.concatenate(masks), fraction)
