"""Which rows an audit of features takes as known to the peer, and which it judges."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import UsageError
from vfl_node.models.inputs import ModelInput

Positions = NDArray[np.int64]
Inputs = Callable[[Positions], ModelInput]
"""Shared positions, int64[B] → what the bottom reads there."""

LEAST_KNOWN = 50
"""Rows that a decoder must learn from."""

LEAST_JUDGED = 100
"""Rows that must be left to judge: half of them choose the worst attack, half of them measure it."""

SETTING = "audit.features.known_share"
"""What says in a training how many rows are taken as known."""

MOST = 2048
"""Rows that are taken as known, and rows that are judged, at most."""


@dataclass(frozen=True, eq=False)
class AuditedRows:
    """Rows of one party, in random order; no row is in both.

    Attributes:
        known: int64[k], shared positions whose columns the peer is assumed to know.
        judged: int64[n], those that are attacked; none is equal to a known row in all that the bottom reads.
    """

    known: Positions
    judged: Positions

    @property
    def halves(self) -> tuple[slice, slice]:
        """The judged rows that choose the worst attack, and those on which it is measured."""
        half = len(self.judged) // 2
        return slice(0, half), slice(half, len(self.judged))

    @property
    def enough(self) -> bool:
        """Whether enough rows are left to judge."""
        return len(self.judged) >= LEAST_JUDGED


def choose(
    own: Positions, share: float, inputs: Inputs, randomness: Randomness, *, most: int = MOST, like: Collection[str] = ()
) -> AuditedRows:
    """Draw the known and the judged ones of a party's ``own`` rows.

    Args:
        own: int64[r], shared positions of its real rows.
        share: how many of them the peer is assumed to know.
        inputs: what the bottom reads at shared positions. A row that is equal to a known one would be rebuilt by looking it up:
            it is not judged.
        randomness: of this alone.
        most: known rows, and judged ones, at most.
        like: digests of other rows that the peer knows.

    Cost: 2 µs a row drawn, for its digest.
    """
    order = own[randomness.permutation(len(own))]
    count = min(int(share * len(own)), most)
    known, rest = order[:count], order[count : count + most]
    if not len(rest):
        return AuditedRows(known, rest)
    seen = {*like, *inputs(known).digests()} if count else set(like)
    return AuditedRows(known, rest[[digest not in seen for digest in inputs(rest).digests()]])


def check_enough(known: int, judged: int | None = None, *, share: float, by: str = SETTING) -> None:
    """Refuse to audit with too few rows.

    Args:
        known: rows that the peer is assumed to know.
        judged: rows that can be judged; None: not known yet.
        share: of the rows, that are taken as known.
        by: what says so.

    Raises:
        UsageError: fewer than :data:`LEAST_KNOWN` or :data:`LEAST_JUDGED` (``E_CONFIG``).

    Leaks: by a refusal that there are so few; the peer is told of no number.
    """
    if known < LEAST_KNOWN:
        text = f"{known} of this party's rows would be taken as known ({by}: {share:g})"
        text += f", and a decoder needs at least {LEAST_KNOWN} to learn from"
        hint = f"raise {by}, use more records" + (", or remove audit.features" if by == SETTING else "")
    elif judged is not None and judged < LEAST_JUDGED:
        text = f"{judged} of this party's rows are left to judge that are not equal to a known one in all columns"
        text += f", and an audit needs at least {LEAST_JUDGED}"
        hint = "use more records" + (", or remove audit.features" if by == SETTING else "")
        hint += ": a peer that knows some rows knows the others, which are equal"
    else:
        return
    raise UsageError(text, code="E_CONFIG", hint=hint, for_peer="its settings do not fit its table")
