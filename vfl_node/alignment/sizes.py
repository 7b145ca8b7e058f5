"""How many identifiers a party announces for its records: padding rounds up, dummies add.

What the identifiers that stand for no record are: :mod:`vfl_node.alignment.lists.cover`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfl_node.errors import PolicyError

if TYPE_CHECKING:
    from vfl_node.job import Align
    from vfl_node.roles import Role


def public_bucket(count: int, per_doubling: int = 1) -> int:
    """The smallest size of the public ladder that is at least ``count``: ⌈2^(j/per_doubling)⌉ for some j.

    With one bucket a doubling the powers of two, at most twice ``count``; with four at most 1.19 times.
    """
    if count <= 1:
        return count
    doubling = (count - 1).bit_length()  # 2^(doubling−1) < count ≤ 2^doubling
    steps = range((doubling - 1) * per_doubling + 1, doubling * per_doubling)
    return next((size for j in steps if (size := _ceil_root(j, per_doubling)) >= count), 2**doubling)


def pads(terms: Align, role: Role) -> bool:
    """Whether a party with this role pads its set in a job on these terms."""
    return terms.padding > 0 and role in terms.spec.padded_roles


def announced_count(records: int, terms: Align, role: Role) -> int:
    """Elements in a party's list for its ``records``: those that stand for no record included."""
    count = records + 2 * terms.dummies
    return public_bucket(count, terms.padding) if pads(terms, role) else count


def check_announced(records: int, terms: Align, role: Role, most: int) -> int:
    """As :func:`announced`, of a party that may announce ``most``. Raises PolicyError (``E_TOO_MANY``)."""
    count = announced_count(records, terms, role)
    if count > most:
        raise too_many_error(f"with padding and dummies this party would announce {count} identifiers", most)
    return count


def too_many_error(what: str, most: int) -> PolicyError:
    """The error of a set that is too large: ``what`` is announced, and ``most`` are accepted."""
    return PolicyError(
        f"{what}, and this node accepts at most {most}",
        code="E_TOO_MANY",
        hint="raise size.rows in the policy if you expect as many",
        for_peer="its owner does not accept sets as large",
    )


def _ceil_root(j: int, k: int) -> int:
    """⌈2^(j/k)⌉, exactly."""
    size = int(2 ** (j / k))
    while size**k < 2**j:
        size += 1
    while (size - 1) ** k >= 2**j:
        size -= 1
    return size
