"""A coordinator's run: a conversation with each data party, side by side, and the one report that they have in common.

What it does in them is what the job's alignment, and its training or predictions ask of it, each where it takes part.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Coroutine
from typing import Any, Protocol

from vfl_node.alignment.protocols import coordination_of
from vfl_node.execution.finish import have_stored, hear_confirmed
from vfl_node.execution.keep import keep
from vfl_node.execution.run import ALIGNED, KEPT, Run
from vfl_node.process import failpoints
from vfl_node.process.machine import utc_now
from vfl_node.session.agree import agree
from vfl_node.training.predictor import ReportedPredictions
from vfl_node.training.trainer import trainer_of
from vfl_node.transport.channel import Channel
from vfl_node.transport.pipe import Traffic

NO_INPUT = hashlib.sha256(b"no input").digest()
"""Digest in place of a table's, since a coordinator has none."""


class PredictionsPart(Protocol):
    """A coordinator's part in a job of predictions."""

    async def serve(self, channel: Channel) -> None:
        """Do what one data party asks for until it needs no more."""

    def report(self) -> ReportedPredictions:
        """What is reported, once every data party is served."""


def conversations(run: Run, predictions: PredictionsPart | None = None) -> list[Coroutine[Any, Any, None]]:
    """One coroutine for each data party, in the order of the session's peers; ``predictions``: of a job that makes some."""
    coordinated = CoordinatorRun(run, predictions)
    return [coordinated.attend(channel) for channel in run.session.peers.values()]


class CoordinatorRun:
    """The conversations of one attempt. Each may run on a thread of its own."""

    def __init__(self, run: Run, predictions: PredictionsPart | None) -> None:
        spec, train = run.session.job.align.spec, run.session.job.train
        self._run, self._predictions, self._started = run, predictions, utc_now()
        self._alignment = coordination_of(spec, run.session) if spec.coordinated else None
        self._training = trainer_of(train).coordination(run.session) if train and train.coordinated else None
        self._traffic: dict[str, Traffic] = {}
        self._over: set[str] = set()
        self._attended = len(run.session.peers)
        self._one = threading.Lock()

    async def attend(self, channel: Channel) -> None:
        """The conversation with one data party, from the first message to the last."""
        try:
            await self._converse(channel)
        finally:
            with self._one:
                self._attended -= 1
                if self._alignment and not self._attended:
                    self._alignment.close()

    async def _converse(self, channel: Channel) -> None:
        held = [ALIGNED, KEPT] if self._alignment else [KEPT]  # the data parties know what they still need
        point = await agree(self._run.session, held, input_digest=NO_INPUT, inputs=self._run.folder, peers=[channel])
        if self._alignment and point is None:
            await self._alignment.serve(channel)
        if self._training and point != KEPT:
            await self._training.serve(channel)
        if self._predictions and point != KEPT:
            await self._predictions.serve(channel)
        await self._keep(channel)
        failpoints.reach("store")
        await have_stored(self._run, channel)
        while channel.peer != self._run.session.job.parties.active and not self._run.folder.confirmed:
            await channel.pause()
        await hear_confirmed(self._run, channel)

    async def _keep(self, channel: Channel) -> None:
        """Write the report once no data party needs the coordinator any more.

        It is written only once, because a data party may be done as soon as its conversation has ended after that.
        """
        with self._one:
            self._traffic |= {f"{phase} ({channel.peer})": traffic for phase, traffic in channel.traffic.items()}
            self._over.add(channel.peer)
        while len(self._over) < len(self._run.session.peers):
            await channel.pause()
        with self._one:
            if not self._run.folder.whole:
                trained = self._training.result() if self._training else None
                learnt = self._alignment.disclosures() if self._alignment else None
                told = self._predictions.report() if self._predictions else None
                keep(self._run, self._started, self._traffic, trained=trained, predictions=told, coordinated=learnt)
