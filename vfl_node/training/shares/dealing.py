"""The coordinator's part: it deals randomness, and receives sizes alone.

Each data party says of which shapes the job is: how long the shared order is, how many columns everybody has, how rows are
batched. From these and from seeds of its own the coordinator computes, by the very program of the training, what each party
needs, and sends it ahead of need.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from typing import Any

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Dealer
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked, write_checked
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.session import Session
from vfl_node.session.share_wire import DealingSink
from vfl_node.training.shares import agreement
from vfl_node.training.shares.program import Program
from vfl_node.training.trainer import Trained
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealerSeed, DealingTerms


class Dealing:
    """All data parties' conversations in one job, each on a thread of its own.

    Args:
        session: the coordinator's.
        program: of the training.
    """

    def __init__(self, session: Session, program: Program[Any]) -> None:
        self._session, self._program = session, program
        self._said: dict[str, DealingTerms] = {}
        self._log = session.attempt.folder / "dealt"
        self._one = threading.Lock()
        self._began = False

    async def serve(self, channel: Channel) -> None:
        """Deal to one data party.

        Raises:
            ProtocolError: shapes that this job cannot have, or other ones than another data party says (``E_COUNT``).
            StateError: there is no memory for these (``E_MEMORY``).
        """
        session, parties, program = self._session, self._session.job.parties, self._program
        async with channel.phase("deal"):
            said = agreement.check_terms(await channel.receive(DealingTerms), channel.peer, session, program)
            with self._one:
                self._said[channel.peer] = said
            while len(self._said) < len(parties.data):
                await channel.pause()
            agreement.check_same(self._said)
            seeds = [seed_of(session.randomness, name) for name in parties.data]
            place = parties.data.index(channel.peer)
            await channel.send(DealerSeed(seed=seeds[place]))
            sink, plan = DealingSink(channel), program.plan(said)
            self._note(rows=said.rows, widths=list(said.widths), steps=program.steps(plan))

            async def report_step() -> None:
                session.progress.emit(Advanced(1))
                failpoints.reach("dealt")

            with self._one:
                if not self._began:
                    session.progress.emit(PhaseBegan("deal", program.steps(plan) * len(parties.data), program.unit))
                self._began = True
            session.progress.emit(Advanced(said.epoch))
            dealer = Dealer(place, [Randomness(seed) for seed in seeds], sink, said.context.hex())
            try:
                await program.deal(dealer, plan, said.epoch, report_step)
                await sink.finish()
            finally:
                self._note(sent=sink.sent)

    def result(self) -> Trained:
        """As :meth:`vfl_node.training.trainer.Coordination.result`."""
        known = self._read_notes()
        return Trained(
            epochs=(),
            steps=known["steps"],
            rows=(0, 0),
            device="cpu",
            disclosures=self._program.learns(known["rows"], known["widths"]),
            section=self._program.section(known["sent"]),
        )

    def _read_notes(self) -> dict[str, Any]:
        """What this party was told and has dealt in all attempts. Raises StateError if the file is damaged."""
        nothing: dict[str, Any] = {"rows": None, "widths": [], "sent": 0, "steps": 0}
        with suppress(FileNotFoundError):
            return nothing | json.loads(read_checked(self._log, hint="submit the job again as a new one"))
        return nothing

    def _note(self, *, sent: int = 0, **told: Any) -> None:
        """Store what this party was told, and so many more bytes that it has dealt."""
        with self._one:
            noted = self._read_notes() | told
            write_checked(self._log, json.dumps(noted | {"sent": noted["sent"] + sent}).encode())


def seed_of(randomness: Randomness, name: str) -> bytes:
    """The seed of a party's masks: the same in every attempt of the job, and in no other job."""
    return randomness.derive(f"dealer seed {name}").bytes(32)
