"""m, the number of records in an obfuscated set: what the job and the active owner say, and what it may not reveal."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, localcontext
from typing import TYPE_CHECKING

from vfl_node.alignment.sizes import public_bucket

if TYPE_CHECKING:
    from vfl_node.job import Align
    from vfl_node.settings.node import Obfuscation


def obfuscated_size(shared: int, n_s: int, terms: Align, wish: Obfuscation) -> int:
    """m = |Ĩ|, as the weak party chooses it.

    The job's size or fraction of n_s. One below |I| is raised to the next public bucket, and so
    is what this owner's security number ξ gives, ⌈|I|^{1−ξ}·n_s^ξ⌉, with |I| counted as its minimum if
    it is lower. Never more than n_s.

    Args:
        shared: |I|.
        n_s: records of the strong party.
        terms: the job's.
        wish: this owner's.
    """
    if n_s == 0:
        return 0
    if terms.obfuscation == "private":
        assert wish.security_number is not None
        m = public_bucket(interpolate(max(shared, wish.min_intersection, 1), n_s, wish.security_number))
    else:
        m = least_size(terms, n_s)
    return min(n_s, m if m >= shared else public_bucket(shared))


def least_size(terms: Align, n_s: int) -> int:
    """The fewest elements that Ĩ may have, as both parties know it."""
    size = terms.obfuscation
    if size is None or size == "private":
        return min(1, n_s)
    if size.size is not None:
        return min(n_s, size.size)
    assert size.fraction is not None
    return min(n_s, int((Decimal(str(size.fraction)) * n_s).to_integral_value(ROUND_CEILING)))


def most_left(m: int, n_s: int, draws: int) -> float:
    """The part of the records that hide the shared ones in one draw which all ``draws`` have in common: at most, on average.

    A record that is not shared is in a draw with probability q = (m − |I|)/(n_s − |I|), so q^(draws − 1) of them are left.
    q is at most m/n_s, which tells nothing of |I|.

    Args:
        m: records of an obfuscated set.
        n_s: records of the strong party, almost the same ones in each draw.
        draws: how many sets were drawn.
    """
    return float((m / n_s) ** (draws - 1)) if n_s else 1.0


def is_open(terms: Align, wish: Obfuscation) -> bool:
    """Whether neither the job nor this owner says how large the set is."""
    return terms.obfuscation in (None, "private") and wish.security_number is None


def interpolate(shared: int, n_s: int, xi: float) -> int:
    """⌈|I|^{1−ξ}·n_s^ξ⌉, so exactly that 100^½·10000^½ is 1000."""
    with localcontext() as context:
        context.prec = 60
        number = Decimal(str(xi))
        size = Decimal(shared) ** (1 - number) * Decimal(n_s) ** number
        return int(size.quantize(Decimal("1e-20")).to_integral_value(ROUND_CEILING))
