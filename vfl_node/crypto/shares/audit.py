"""Two parties check what the dealer deals: some sections are opened and used for nothing.

::

    the dealer deals a section, and knows no more than that it may be checked
    all its corrections have come, to each party               before that nothing of the section is sent
    a coin of the parties, which the dealer does not know:
        used      the section is run
        checked   the parties show each other the section's seeds; each one computes what the dealer should have sent it, by
                  the dealer's own program, and compares all numbers

**What it proves.** Every correction is a function of the masks of its section and of masks that its receiver knows: those of
the receiver's own matrix. So a checked section with one wrong number is always noticed, by its receiver. Coins are independent.
All corrections of a section are here before anything depends on its coin, and they must be the same in later attempts.
Whatever the dealer has seen by then (the pace of earlier sections, restarts) tells it nothing of this coin. So it spoils b
sections unnoticed with probability (1 − x)^b, x being the probability of a check, even if it decides as it goes. A fixed
number of checks would not do: a dealer that sees by the pace that all have been made could spoil what is left. Where one
section is chosen among k and the others are checked, the corrections of all have come before anything of the first is sent: a
dealer that spoils one of them is noticed with probability 1 − 1/k, and one that spoils more always.

It does not prove that masks are random or that nobody else knows them: whoever the dealer tells them reads everything. Nor
does it hold if the dealer measures what the parties send each other while it holds back the corrections of one of them.

**What it tells.** With an honest dealer nothing. A party gets the other's seed of a section in which no value was or will be
masked; seeds of other sections are independent of it (HMAC-SHA-512 and ChaCha20). Its own corrections are functions of both
seeds and of the mask of its own matrix. So it could have computed all it has from what it knew and from a seed drawn at
random. For that the owner of a matrix alone must get the corrections of its products: with the masks that are shown, anybody
else would get equations of the matrix. And a shared value under a mask of an earlier section must not be an operand: whoever
got the corrections could divide them by the masks shown, and unmask the value.
That a check fails depends on masks alone, so the dealer learns nothing by it.

**A section that was shown is never used.** Coins are the same in every attempt, and the context of all masks has their digest:
with other coins all masks are others.

Source: ours, from known parts: cut and choose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import numpy as np

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Corrections, Dealer, Sink
from vfl_node.crypto.shares.ring import Ring


class Coins:
    """Which sections are checked: a function of a seed that the parties toss.

    Args:
        seed: 32 bytes, which the dealer does not know.
        share: x, the probability that a section is checked.
        candidates: sections of which one is used and all others are checked.
    """

    def __init__(self, seed: bytes, share: float, candidates: Sequence[str] = ()) -> None:
        self._seed, self._share, self._candidates = Randomness(seed), share, candidates
        self.digest = hashlib.sha256(b"vfl-node audit" + seed).digest()
        self.used = candidates[self._seed.derive("used").draw_below(len(candidates))] if candidates else None

    def shows(self, section: str) -> bool:
        """Whether a section is checked."""
        if section in self._candidates:
            return section != self.used
        return bool(self._seed.derive(f"section {section}").uniform((1,))[0] < self._share)


class SectionAudit:
    """One party's part, as :class:`~vfl_node.crypto.shares.machine.Auditing`.

    Args:
        place: of the party, 0 or 1.
        shows: whether a section is checked.
        swap: shows the other party the seed of a section, and gets its seed of the same.
        hold: called with a section and all its corrections, before its coin is looked at; raises if they were others before.
        refusal: the error of a section whose corrections are wrong.
    """

    def __init__(
        self,
        place: int,
        shows: Callable[[str], bool],
        swap: Callable[[bytes], Awaitable[bytes]],
        hold: Callable[[str, Ring], None],
        refusal: Callable[[str], Exception],
    ) -> None:
        self._place, self._shows, self._swap, self._hold, self._refusal = place, shows, swap, hold, refusal

    async def gather(self, section: str, corrections: Corrections, count: int) -> None:
        """As in the contract. Raises what ``hold`` does."""
        self._hold(section, await corrections.ahead(count))

    async def auditor(self, section: str, seed: bytes, corrections: Corrections, count: int) -> Auditor | None:
        """As in the contract. Raises what ``hold`` and ``swap`` do."""
        await self.gather(section, corrections, count)
        if not self._shows(section):
            return None
        theirs = await self._swap(seed)
        seeds = (theirs, seed) if self._place else (seed, theirs)
        auditor = Auditor(self._place, seeds, _Compared(corrections, partial(self._refusal, section)))
        auditor.begin(section)
        return auditor


class Auditor(Dealer):
    """The dealer's own program for one section, at a party that knows all seeds of it; what came is compared.

    Args:
        receiver: place of the party.
        seeds: of the section, in the order of the parties.
        sink: that compares.
    """

    def __init__(self, receiver: int, seeds: Sequence[bytes], sink: Sink) -> None:
        super().__init__(receiver, [Randomness(seed) for seed in seeds], sink)
        self._shown = dict(zip(self._seeds, seeds, strict=True))

    def _section_seed(self, seed: Randomness) -> bytes:
        return self._shown[seed]


class _Compared:
    """A sink that takes what the dealer sent, and compares."""

    def __init__(self, came: Corrections, refusal: Callable[[], Exception]) -> None:
        self._came, self._refusal = came, refusal

    async def put(self, corrections: Ring) -> None:
        if not np.array_equal(corrections, await self._came.take(len(corrections))):
            raise self._refusal()
