"""A coordinator's run: a conversation with each data party, side by side, and the one report that they have in common."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Coroutine
from typing import Any

from vfl_node import failpoints
from vfl_node.execution.keep import keep
from vfl_node.execution.run import KEPT, Run
from vfl_node.machine import now
from vfl_node.session.agree import agree
from vfl_node.training.trainer import trainer_of
from vfl_node.transport.channel import Channel, Traffic

NO_INPUT = hashlib.sha256(b"no input").digest()
"""Digest in place of a table's, since a coordinator has none."""


def conversations(run: Run) -> list[Coroutine[Any, Any, None]]:
    """One coroutine for each data party, in the order of the session's peers."""
    coordinated = CoordinatorRun(run)
    return [coordinated.attend(channel) for channel in run.session.peers.values()]


class CoordinatorRun:
    """The conversations of one attempt. Each may run on a thread of its own."""

    def __init__(self, run: Run) -> None:
        train = run.session.job.train
        assert train is not None
        self._run, self._started = run, now()
        self._coordination = trainer_of(train).coordination(run.session)
        self._traffic: dict[str, Traffic] = {}
        self._over: set[str] = set()
        self._one = threading.Lock()

    async def attend(self, channel: Channel) -> None:
        """The conversation with one data party, from the first message to the last."""
        point = await agree(self._run.session, [KEPT], input_digest=NO_INPUT, inputs=self._run.folder, peers=[channel])
        if point != KEPT:
            await self._coordination.serve(channel)
        await self._keep(channel)
        failpoints.reach("finish")
        async with channel.phase("finish"):
            pass

    async def _keep(self, channel: Channel) -> None:
        """Write the report once no data party needs the coordinator any more.

        It is written only once, because a data party may be done as soon as its conversation has ended after that.
        """
        with self._one:
            self._traffic |= {f"{phase} ({channel.peer})": of for phase, of in channel.traffic.items()}
            self._over.add(channel.peer)
        while len(self._over) < len(self._run.session.peers):
            await channel.pause()
        with self._one:
            if not self._run.folder.whole:
                keep(self._run, self._started, self._traffic, trained=self._coordination.result())
