"""A node whose training is an act: rounds in which all parties talk, for as long as a file says; it dies where a file says.

:func:`run` becomes one, as :mod:`killed_node` does. The folder that all of them share holds

- ``enough``, once the rounds are to end;
- ``NAME-death``, until ``NAME`` dies in the place it names;
- ``NAME-full``: in the place that it names the disk of ``NAME`` is full;
- ``NAME-other-version``, while ``NAME`` speaks another version of the protocol in its conversations;
- ``NAME-other-greeting``, while it does so in its links;
- ``NAME-no-thread``, while no job of ``NAME`` gets a thread;
- ``NAME-fails``: in the place that it names the part of ``NAME`` fails;
- ``NAME-holds``: in the place that it names ``NAME`` waits until the file is gone;
- ``NAME-drawn``, written here: what each attempt draws from the secrets of the job, which stands in the report too.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from vfl_node.cli import main
from vfl_node.errors import DataError
from vfl_node.execution.finish import finish, have_stored, hear_confirmed
from vfl_node.node import peer_state as greeting
from vfl_node.node import work, works
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session import preflight
from vfl_node.session.agree import agree
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.alignment_pb2 import SetSize

ENDS = ("store", "confirm", "confirmed", "finished", "forget")
"""Failpoints at the end of a job, in their order."""

PLACES = (
    "when all are met",
    "in a round",
    "before its report",
    "with its report",
    *ENDS,
)


class Act:
    """What a party's part is instead of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.keeping = threading.Lock()

    def told(self, what: str) -> bool:
        return (self.folder / f"{self.name}-{what}").exists()

    def at(self, place: str, what: str) -> bool:
        file = self.folder / f"{self.name}-{what}"
        return file.exists() and file.read_text() == place

    def may_die(self, place: str) -> None:
        if self.at(place, "death"):
            (self.folder / f"{self.name}-death").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.at(place, "full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        while self.at(place, "holds"):
            time.sleep(0.02)
        if self.at(place, "fails"):
            raise DataError("told to fail", code="E_DATA")

    def conversations(self, run: Any) -> list[Coroutine[Any, Any, None]]:
        part, channels = run.session, run.session.peers
        self.run, self.own, self.inputs = run, run.folder, run.inputs
        with (self.folder / f"{self.name}-drawn").open("a") as drawn:
            drawn.write(f"{part.attempt.job_id} {self.drawn(part)}\n")
        self.may_die("when all are met")
        if part.role == "coordinator":
            part.progress.emit(PhaseBegan("act", 0, "rounds"))
            return [self.attend(part, peer, channel) for peer, channel in channels.items()]
        return [self.play(part, channels)]

    async def agree(self, part: Any, points: list[str], digest: bytes, *peers: Channel) -> bool:
        """Whether all have kept theirs: the data parties, or ``peers``."""
        return await agree(part, points, input_digest=digest, inputs=self.own, peers=peers or None) == "kept"

    async def play(self, part: Any, channels: Mapping[str, Channel]) -> None:
        """A data party: the active one says whether there is another round, and each tells the coordinator, if there is one."""
        points = ["kept"] if self.own.sealed else []
        points = points if await self.agree(part, points, self.inputs.table.digest()) else []
        if part.coordinator:
            points = points if await self.agree(part, points, self.inputs.table.digest(), part.coordinator) else []
        part.progress.emit(PhaseBegan("act", 0, "rounds"))
        active = part.role == "active"
        while not points:
            if active:
                more = not (self.folder / "enough").exists()
                time.sleep(0.02)
            for other in part.data_peers.values():
                async with other.phase("act"):
                    if active:
                        await other.send(SetSize(count=int(more)))
                    else:
                        more = bool((await other.receive(SetSize)).count)
            if part.coordinator:
                async with part.coordinator.phase("act"):
                    await part.coordinator.send(SetSize(count=int(more)))
                    await part.coordinator.receive(SetSize)
            part.progress.emit(Advanced(1))
            self.may_die("in a round")
            if not more:
                self.keep(part)
                break
        await finish(self.run)

    async def attend(self, part: Any, peer: str, channel: Channel) -> None:
        """The coordinator with one data party."""
        more = not await self.agree(part, ["kept"], b"none", channel)
        while more:
            async with channel.phase("act"):
                more = bool((await channel.receive(SetSize)).count)
                await channel.send(SetSize())
            part.progress.emit(Advanced(1))
            self.may_die("in a round")
        self.keep(part)
        self.may_die("store")
        await have_stored(self.run, channel)
        while channel.peer != part.job.parties.active and not self.own.confirmed:
            await channel.pause()
        await hear_confirmed(self.run, channel)

    def drawn(self, part: Any) -> str:
        return part.randomness.derive("draw").bytes(8).hex()

    def keep(self, part: Any) -> None:
        with self.keeping:  # a coordinator's two conversations end at once, and a report is written once: a kill while
            if self.own.sealed:  # it is written again would leave it unsealed when one party may have ended the job
                return
            self.may_die("before its report")
            self.own.artefacts.mkdir(exist_ok=True)
            self.own.artefacts.joinpath("model.safetensors").write_text("learnt in the act")
            self.own.artefacts.joinpath("report.html").write_text("an act")
            self.own.artefacts.joinpath("report.json").write_text(json.dumps({"party": part.name, "drawn": self.drawn(part)}))
            self.may_die("before its seal")
            self.own.seal()
            self.may_die("with its report")


def run(folder: Path, name: str, arguments: list[str], log: Path) -> None:
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    act = Act(folder, name)
    if act.told("other-version"):
        preflight.PROTOCOL_VERSION += 1
    if act.told("other-greeting"):
        greeting.PROTOCOL_VERSION += 1
    start = threading.Thread.start

    def start_unless_told(thread: threading.Thread) -> None:
        if thread.name.startswith("job-") and act.told("no-thread"):
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = start_unless_told  # type: ignore[method-assign]
    begin = works.Works.start

    def begin_later(works: works.Works) -> None:
        act.may_die("works")
        begin(works)

    works.Works.start = begin_later  # type: ignore[method-assign]
    work.conversations = act.conversations  # type: ignore[attr-defined]
    failpoints.reach = act.may_die
    sys.argv = ["vfl-node", *arguments]
    main()
