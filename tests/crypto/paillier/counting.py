"""Residues that count products."""

from __future__ import annotations

from gmpy2 import mpz

from vfl_node.crypto.kernels.libraries import Plain


class Counting(Plain):
    """Counts the products of which no factor is 1, and all.

    Attributes:
        done: products of two other numbers than 1.
        all: those by 1, too.
    """

    def __init__(self, modulus: mpz) -> None:
        super().__init__(modulus)
        self.done = self.all = 0

    def multiply(self, to, a, b):
        """As :class:`Plain`."""
        factors = [list(vector if at is None else vector[at]) for vector, at in (a, b)]
        self.all += len(factors[0])
        self.done += sum(1 not in pair for pair in zip(*factors, strict=True))
        super().multiply(to, a, b)

    def square(self, of, times):
        """As :class:`Plain`."""
        vector, at = of
        squared = list(vector if at is None else vector[at])
        self.all += times * len(squared)
        self.done += times * sum(number != 1 for number in squared)
        super().square(of, times)

    def multiply_by_label(self, vector, at, labels):
        """As :class:`Plain`."""
        which, products = super().multiply_by_label(vector, at, labels)
        self.done += len(at) - len(which)
        self.all += len(at) - len(which)
        return which, products
