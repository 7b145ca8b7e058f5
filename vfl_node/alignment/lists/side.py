"""Sides of protocols that consist of lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.protocols import Side
from vfl_node.crypto.groups import Group
from vfl_node.crypto.groups import group as group_named
from vfl_node.session.session import Session


def open_lists(play: Callable[[Lists], Awaitable[Alignment]]) -> Side:
    """Open the party's lists for a coroutine, and close their files after it, however it ends."""

    @wraps(play)
    async def side(session: Session, records: OwnRecords, group: Group | None) -> Alignment:
        lists = Lists(session, records, group or group_named(session.job.align.group))
        try:
            return await play(lists)
        finally:
            lists.close()

    return side
