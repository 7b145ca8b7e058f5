"""The end of a run: nobody forgets anything, and nobody is done, before all parties are known to have stored theirs.

::

    stored     every two parties that have a conversation know that both have stored report and half
    confirm    the active party, which has heard that of all others, writes it down and passes it on

The active party's file is the one place that decides: before it is written, a job can be cancelled and goes on from what is
stored; after it, the job is done, and a party that misses the last message hears so when it asks again
(:mod:`vfl_node.node.others`). A party that waits for that message keeps all it needs to go on.
"""

from __future__ import annotations

from vfl_node.execution.run import Run
from vfl_node.process import failpoints
from vfl_node.session.heads import exchange_heads
from vfl_node.transport.channel import Channel

CONFIRM = "confirm"
"""The last phase: whoever leaves in it has stored its part, and asks again if it has missed the word."""


async def finish(run: Run) -> None:
    """The end of a data party's run, which has stored its part.

    Raises:
        VflError: a peer's error, or what the job was ended with before all had stored theirs.

    Leaks: that the others have stored their parts.
    """
    channels = list(run.session.peers.values())
    failpoints.reach("store")
    for channel in channels:
        await have_stored(run, channel)
    if run.session.role == "active":
        confirm(run)
    for channel in channels:  # a passive party's first one is that with the active party
        await hear_confirmed(run, channel)


async def have_stored(run: Run, channel: Channel) -> None:
    """Phase ``stored`` of one conversation. The ledgers have what the job has counted; their heads are exchanged once more."""
    async with channel.phase("stored"):
        if heads := run.session.heads(channel.peer):
            await exchange_heads(channel, heads, heads.shown)


async def hear_confirmed(run: Run, channel: Channel) -> None:
    """Phase ``confirm`` of one conversation: from the active party it says that all have stored theirs."""
    async with channel.phase(CONFIRM):
        pass
    if channel.peer == run.session.job.parties.active:
        confirm(run)


def confirm(run: Run) -> None:
    """Write down that all are known to have stored theirs. Raises what the job was ended with before."""
    failpoints.reach("confirm")
    run.folder.confirm()
    failpoints.reach("confirmed")
