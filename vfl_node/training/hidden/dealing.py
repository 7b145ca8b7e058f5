"""The coordinator's part: it deals randomness, and receives sizes alone.

Each data party says of which shapes the job is: how long the shared order is, how many columns everybody has, how rows are
batched. From these and from seeds of its own the coordinator computes, by the very program of the training
(:mod:`vfl_node.training.hidden.computation`), what each party needs, and sends it ahead of need.
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
from vfl_node.training.hidden import terms
from vfl_node.training.hidden.computation import WeightShares, compute
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.disclosures import HiddenNumbers, learns
from vfl_node.training.hidden.section import HiddenSection
from vfl_node.training.trainer import Trained
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealerSeed, DealingTerms


class Dealing:
    """All data parties' conversations in one job, each on a thread of its own.

    Args:
        session: the coordinator's.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._train = session, Hidden.section_of(session.job)
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
        session, parties = self._session, self._session.job.parties
        async with channel.phase("deal"):
            said = terms.check_terms(await channel.receive(DealingTerms), channel.peer, session)
            with self._one:
                self._said[channel.peer] = said
            while len(self._said) < len(parties.data):
                await channel.pause()
            terms.check_same(self._said)
            seeds = [seed_of(session.randomness, name) for name in parties.data]
            place = parties.data.index(channel.peer)
            await channel.send(DealerSeed(seed=seeds[place]))
            sink, plan = DealingSink(channel), terms.plan_of(said, session.job)
            self._note(rows=said.rows, widths=list(said.widths), steps=plan.epochs)

            async def report_epoch(epoch: int, parts: WeightShares) -> None:
                session.progress.emit(Advanced(1))
                failpoints.reach("dealt")

            with self._one:
                if not self._began:
                    session.progress.emit(PhaseBegan("deal", plan.epochs * len(parties.data), "epochs"))
                self._began = True
            session.progress.emit(Advanced(said.epoch))
            dealer = Dealer(place, [Randomness(seed) for seed in seeds], sink, said.context.hex())
            try:
                await compute(dealer, plan, None, None, said.epoch, report_epoch)
                await sink.finish()
            finally:
                self._note(sent=sink.sent)

    def result(self) -> Trained:
        """As :meth:`vfl_node.training.trainer.Coordination.result`."""
        session, known = self._session, self._read_notes()
        return Trained(
            epochs=(),
            steps=known["steps"],
            rows=(0, 0),
            device="cpu",
            disclosures=learns(session.job, HiddenNumbers(known["rows"], tuple(known["widths"]), None)),
            section=HiddenSection(dealer_bytes=known["sent"]),
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
