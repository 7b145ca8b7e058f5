"""The alignment protocols by the names a job file uses, and which side of them a party runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from vfl_node.alignment import psi, psu
from vfl_node.alignment.alignment import Alignment, Pins
from vfl_node.crypto.groups import Group, group
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import Workers
from vfl_node.job import Align
from vfl_node.progress import Progress
from vfl_node.transport.channel import Channel


class Side(Protocol):
    """One party's side of a protocol, as :func:`vfl_node.alignment.psu.active`."""

    async def __call__(
        self,
        channel: Channel,
        ids: Sequence[bytes],
        *,
        group: Group,
        randomness: Randomness,
        workers: Workers,
        pins: Pins,
        progress: Progress,
    ) -> Alignment:
        """Run it to its end."""


PROTOCOLS: dict[str, dict[str, Side]] = {
    "psu": {"active": psu.active, "passive": psu.passive},
    "psi": {"active": psi.active, "passive": psi.passive},
}
"""Protocol → role → coroutine; a new protocol is one entry."""

LEARNT: dict[str, Callable[[str, int, int, int | None, int | None], tuple[str, ...]]] = {
    "psu": psu.learnt,
    "psi": psi.learnt,
}
"""Protocol → what a party learns, in plain words, from the peer's name, its own and the peer's number of records,
and the sizes of union and intersection."""


async def align(
    role: Literal["active", "passive"],
    align: Align,
    channel: Channel,
    ids: Sequence[bytes],
    *,
    randomness: Randomness,
    workers: Workers,
    pins: Pins,
    progress: Progress,
) -> Alignment:
    """Run this party's side of the protocol that the job names.

    Args:
        role: the side.
        align: the job's alignment section.
        channel: the conversation with the peer; everything happens in its phase ``align``.
        ids: this party's distinct canonical identifiers; row i of its table has ``ids[i]``.
        randomness: this party's own for this job; the same again on a resumed attempt.
        workers: who computes group operations.
        pins: digests of what the peer sent in earlier attempts.
        progress: told of every group operation.

    Raises:
        DataError: an identifier occurs twice (``E_DUP_IDS``).
        ProtocolError: the peer sent what the protocol does not permit.
        StateError: the peer sent another list than in an earlier attempt (``E_REPLAY``).

    Leaks: as the protocol's own file says; the result's ``learnt`` puts it in words.
    """
    side = PROTOCOLS[align.protocol][role]
    return await side(
        channel, ids, group=group(align.group), randomness=randomness, workers=workers, pins=pins, progress=progress
    )
