"""Sides of protocols that consist of lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

from vfl_node.alignment.alignment import Alignment, Party
from vfl_node.alignment.lists.lists import Lists
from vfl_node.alignment.spec import Side
from vfl_node.crypto.groups import Group
from vfl_node.crypto.groups import group as group_named
from vfl_node.job import Align
from vfl_node.settings import Role
from vfl_node.transport.channel import Channel


def over_lists(play: Callable[[Lists], Awaitable[Alignment]]) -> Side:
    """Open the party's lists for a coroutine, and close their files after it, however it ends."""

    @wraps(play)
    async def side(terms: Align, role: Role, channel: Channel, party: Party, group: Group | None) -> Alignment:
        lists = Lists(terms, role, channel, party, group or group_named(terms.group))
        try:
            return await play(lists)
        finally:
            lists.close()

    return side
