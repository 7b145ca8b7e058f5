"""What an attempt of a data party has in common in all trainings in shares: it meets the dealer, and keeps its steps."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import Auditing, Party
from vfl_node.errors import ProtocolError
from vfl_node.process import failpoints
from vfl_node.progress import Advanced, PhaseBegan
from vfl_node.session.openings import OpeningLog
from vfl_node.session.session import Session, bytes_moved
from vfl_node.session.share_wire import DealtCorrections, PairWire, StarWire
from vfl_node.training.checkpoints import Checkpoints, load_of
from vfl_node.training.shares import agreement
from vfl_node.training.trainer import Epoch
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealerSeed, DealingTerms
from vfl_node.transport.pipe import Traffic

Wire = PairWire | StarWire


@dataclass(frozen=True)
class DealtParty:
    """What a party computes with.

    Attributes:
        party: its machine.
        wire: to the other data parties.
        corrections: what the dealer sends.
        log: of what was opened: the same must be opened in each attempt.
    """

    party: Party
    wire: Wire
    corrections: DealtCorrections
    log: OpeningLog


@asynccontextmanager
async def meet_dealer(
    session: Session, said: DealingTerms, audit: Callable[[Wire, OpeningLog, str], Auditing] | None = None
) -> AsyncIterator[DealtParty]:
    """Tell the dealer the shapes, and compute with what it deals; at the end it has heard that all was used.

    Args:
        session: of a data party.
        said: the shapes.
        audit: what checks the dealer, made of the wire, the log and the dealer's name; None: nothing does.

    Raises:
        ProtocolError: the dealer sent no seed (``E_COUNT``).
        StateError: it sent another seed than in an earlier attempt (``E_REPLAY``).
    """
    dealer, place = session.coordinator, session.job.parties.data.index(session.name)
    assert dealer is not None  # the job was checked
    await dealer.send(said)
    masks = (await dealer.receive(DealerSeed)).seed
    if len(masks) != agreement.DIGEST_BYTES:
        raise ProtocolError(f"{dealer.peer} sent a seed of {len(masks)} bytes", code="E_COUNT")
    # which shares of a checkpoint fit
    session.attempt.pins.check(f"masks of {dealer.peer}", hashlib.sha256(masks).digest())
    channels, parties = list(session.data_peers.values()), len(session.job.parties.data)
    wire = PairWire(place, channels[0]) if parties == 2 else StarWire(place, channels)
    corrections = DealtCorrections(dealer)
    log = OpeningLog(session.attempt.folder / "openings", hashlib.sha256(said.context + masks).digest())
    try:
        audits = audit(wire, log, dealer.peer) if audit else None
        party = Party(place, parties, Randomness(masks), wire, corrections, said.context.hex(), log.check, audits)
        yield DealtParty(party, wire, corrections, log)
    finally:
        log.close()
    await corrections.finish()


class ShareSteps:
    """The steps of a training, such as epochs or trees: which are done, and a checkpoint after each.

    Args:
        session: of a data party.
        checkpoints: where its state is kept.
        schedule: fingerprint of the schedule.
        context: of all masks.
        unit: what a step is called.
    """

    def __init__(self, session: Session, checkpoints: Checkpoints, schedule: str, context: bytes, unit: str) -> None:
        self._session, self._checkpoints, self._unit = session, checkpoints, unit
        self._schedule, self._context = schedule, context.hex()
        self.done: list[Epoch] = []

    def resume(self, name: str | None) -> Mapping[str, Tensor] | None:
        """What the checkpoint ``name`` has, whose steps are done. None: all begin anew, as the context is another one."""
        checkpoint = load_of(self._checkpoints, name, self._schedule) if name else None
        if checkpoint is None or checkpoint.meta["context"] != self._context:
            self._checkpoints.clear()  # which would be agreed upon later, as names are the same
            return None
        self.done = [Epoch(loss=None, auc=None, **figures) for figures in checkpoint.meta["epochs"]]
        return checkpoint.tensors

    def begin(self, log: OpeningLog, count: int, traffic: Sequence[Traffic]) -> None:
        """Before the first step of this attempt, of ``count`` in all; ``traffic`` with each peer."""
        self._log, self._count, self._traffic = log, count, traffic
        self._session.progress.emit(PhaseBegan("train", count, f"{self._unit}s"))
        self._session.progress.emit(Advanced(len(self.done)))
        self._mark()
        self._hold()

    def finish(self, tensors: Mapping[str, Tensor]) -> None:
        """After a step; ``tensors`` are this party's state."""
        session, seconds = self._session, self._session.machine.clock() - self._began
        self.done.append(Epoch(None, None, seconds, bytes_moved(self._traffic) - self._moved))
        failpoints.reach("updated")
        self._log.keep()
        self._hold()
        figures = [{"seconds": each.seconds, "bytes": each.bytes} for each in self.done]
        meta = {"schedule": self._schedule, "context": self._context, "epochs": figures}
        self._checkpoints.save(f"{self._unit}-{len(self.done):06}", tensors, meta)
        session.progress.emit(Advanced(1))
        self._mark()

    def _hold(self) -> None:
        """After the last step what is opened is opened under one context: under another one, noise would be drawn again.

        Raises:
            StateError: it was another one in an earlier attempt, as before an update of the software (``E_REPLAY``).
        """
        if len(self.done) == self._count:
            self._session.attempt.pins.check("context of what is opened", bytes.fromhex(self._context))

    def _mark(self) -> None:
        self._began, self._moved = self._session.machine.clock(), bytes_moved(self._traffic)
