"""Ids that are asked about under a key which stays the same over jobs, and how many of them a node's owner allows.

An alignment by unbalanced intersection answers many different sets under one key, so whoever asks often enough enumerates the
list. Therefore each id counts, at both sides: where it is answered, and where it is asked. What stands for those of a job is
their number, the job's id and a digest of the list: another list under the same id is counted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from vfl_node.errors import PolicyError
from vfl_node.session.counted import LOSS
from vfl_node.settings.limits import QueryLimits
from vfl_node.settings.refusals import tell_why

KIND = "queries"
"""What they are counted among."""

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
    way: Literal["asks", "answers"]
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
        allowed = self.allowed
        for key, days, most in (("per_day", 1, allowed.per_day), ("per_epoch", allowed.rotate_days, allowed.per_epoch)):
            begin = (datetime.fromisoformat(now) - timedelta(days=days)).isoformat(timespec="seconds")
            since = (
                self.since if key == "per_epoch" and self.since else now
            )  # an earlier one where a job was held open for long
            dated = [line for line, at in lines.items() if at > begin or at >= since]
            recent = [line for line in dated if line.startswith(LOSS) or f" {self.way} " in line]
            # What an accepted loss was of, nobody knows: it may have been all.
            used = (most or 0) if any(line.startswith(LOSS) for line in recent) else sum(map(_count, recent))
            if most is not None and used + self.count > most:
                period = "a day" if days == 1 else f"{days} days"
                raise PolicyError(
                    f"{peer}.queries_per_peer.{key}: {used:,} of {most:,} ids are used in {period}, and this job asks about "
                    f"{self.count:,}",
                    code="E_BUDGET",
                    hint=f"wait until earlier jobs are {period} old, ask about fewer ids, or raise queries_per_peer.{key} in "
                    "the policy: whoever asks about enough ids knows who is in the list",
                    for_peer=tell_why("budget"),
                )


def _count(line: str) -> int:
    return int(line.partition(" ")[0])
