"""Ids that are asked about under a key which stays the same over jobs, and how many of them a node's owner allows.

An alignment by unbalanced intersection answers many different sets under one key, so whoever asks often enough enumerates the
list. Therefore each id counts, at both sides: where it is answered, and where it is asked. What stands for those of a job is
their number, the job's id and a digest of the list: another list under the same id is counted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Literal

from vfl_node.errors import PolicyError
from vfl_node.session.counted import LOSS
from vfl_node.settings.bounds import Use
from vfl_node.settings.limits import QueryLimits
from vfl_node.settings.refusals import tell_why

KIND = "queries"
"""What they are counted among."""

Way = Literal["asks", "answers"]
"""What a node does about ids; each has its own count."""

DIGITS = 32
"""Digits of a digest that stand for a list."""


@dataclass(frozen=True)
class AskedIds:
    """The ids that one job asks about.

    Attributes:
        job_id: of the job. Another attempt at it asks about the same ids, which count once.
        count: how many they are.
        allowed: by this node's owner.
        way: whether this node asks or answers; each has its own count.
        about: a digest of them; empty before they are known.
        since: when the key was drawn with which they are answered, UTC; empty where that is not known.
    """

    job_id: str
    count: int
    allowed: QueryLimits
    way: Way
    about: bytes = b""
    since: str = ""

    @property
    def line(self) -> str:
        """What stands for them."""
        return f"{self.count} {self.job_id} {self.way} {self.about.hex()[:DIGITS]}"

    def is_known(self, lines: Collection[str]) -> bool:
        """Whether they are counted already, or others under the same id where it is not known yet which these are."""
        return self.line in lines or (not self.about and any(line.startswith(self.line) for line in lines))

    def check(self, lines: Mapping[str, str], peer: str, now: str) -> None:
        """Refuse them if they are too many. What is counted already is free.

        Args:
            lines: of what was counted with ``peer`` before → since when.
            peer: a partner.
            now: the time, UTC.

        Raises:
            PolicyError: they would be more than the owner allows (``E_BUDGET``).
        """
        if self.is_known(lines):
            return
        for per, use in count_uses(lines, self.way, self.allowed, now, self.since).items():
            if self.count > use.left:
                period = "a day" if per == "day" else f"{self.allowed.rotate_days} days"
                raise PolicyError(
                    f"{peer}.queries_per_peer.per_{per}: {use.used:,} of {use.most:,} ids are used in {period}, and this job "
                    f"asks about {self.count:,}",
                    code="E_BUDGET",
                    hint=f"wait until earlier jobs are {period} old, ask about fewer ids, or raise queries_per_peer.per_{per} "
                    "in the policy: whoever asks about enough ids knows who is in the list",
                    for_peer=tell_why("budget"),
                )


def count_uses(
    lines: Mapping[str, str], way: Way, allowed: QueryLimits, now: str, since: str = ""
) -> dict[Literal["day", "epoch"], Use]:
    """Period → how many ids are used in it, of as many as the owner allows.

    Args:
        lines: as for :meth:`AskedIds.check`.
        way: which ids.
        allowed: by this node's owner.
        now: the time, UTC.
        since: as :attr:`AskedIds.since`; an earlier time than the period's begin where a job was held open for long.
    """
    found: dict[Literal["day", "epoch"], Use] = {}
    periods: tuple[tuple[Literal["day", "epoch"], int, int | None, str], ...] = (
        ("day", 1, allowed.per_day, now),
        ("epoch", allowed.rotate_days, allowed.per_epoch, since or now),
    )
    for per, days, most, begun in periods:
        length = timedelta(days=days)
        begin = (datetime.fromisoformat(now) - length).isoformat(timespec="seconds")
        own = [(at, line) for line, at in lines.items() if line.startswith(LOSS) or f" {way} " in line]
        recent = sorted((at, line) for at, line in own if at > begin or at >= begun)
        # What an accepted loss was of, nobody knows: it may have been all.
        counts = [(most or 0) if line.startswith(LOSS) else int(line.partition(" ")[0]) for _, line in recent]
        stay = sum(most is None or total < most for total in accumulate(reversed(counts[1:])))  # while one more fits
        leaving = recent[-1 - stay][0] if recent else None
        free = (datetime.fromisoformat(leaving) + length).date() if leaving else None
        found[per] = Use(sum(counts), most, per, free)
    return found
