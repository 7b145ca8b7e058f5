"""Everything one party brings to a job, and whom it meets there."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.evidence import KeptEvidence
from vfl_node.engines.contract import Engine, Inline
from vfl_node.job import Job
from vfl_node.process.machine import free_bytes
from vfl_node.process.tensors import choose_device
from vfl_node.progress import Progress, Silent
from vfl_node.roles import Role
from vfl_node.session.heads import Heads
from vfl_node.session.memory import Memory, PeerMemory, join_memories
from vfl_node.session.pins import MemoryPins, Pins, PinsOfPart
from vfl_node.session.preflight import NO_MARKS, ConsentMarks
from vfl_node.session.transcript import Transcript
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import Obfuscation, role_in
from vfl_node.settings.protection import NO_TREE, Compare, Protection
from vfl_node.transport.channel import Channel
from vfl_node.transport.pipe import Traffic, total

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a run of a job, and what it has of earlier ones.

    Attributes:
        number: how often the party has begun the job. If a value may differ between attempts, its mask is drawn
            under this number, so that no mask covers two values.
        job_id: of the run.
        folder: private; large intermediate results lie there until the job no longer needs them.
        pins: digests of what the peers sent in earlier attempts.
        split: the seed by which the job held out rows whose alignment is used again; None: rows are held out anew.
        synthetic: the seed of synthetic rows, the same in every training over one alignment; None: each training draws its own.
        cached: folder for what outlives the job, and can be had again (lists of tags); None: the job's own.
        evidence: what an earlier job over the alignment that is used again has counted; None: none has.
        start: the model of an earlier job, as :func:`vfl_node.models.storage.load` reads it, from which training goes on.
    """

    folder: Path
    number: int = 1
    job_id: str = ""
    pins: Pins = field(default_factory=MemoryPins)
    split: bytes | None = None
    evidence: KeptEvidence | None = None
    start: Path | None = None
    synthetic: bytes | None = None
    cached: Path | None = None

    def part(self, name: str) -> Attempt:
        """The same for a part of the job whose pins would have the same names as those of another part."""
        return replace(self, pins=PinsOfPart(self.pins, name))


@dataclass(frozen=True, kw_only=True)
class OwnMachine:
    """What computes at one party.

    Attributes:
        workers: who computes group operations.
        processes: who computes on ciphertexts.
        beside: threads of this process, where the workers are elsewhere; None: the workers are such threads.
        device_name: where tensors are, as :func:`vfl_node.process.tensors.settle_device` names it.
        clock: seconds since any fixed moment, for durations only.
        memory_mib: the most that this owner allows all jobs together; None: what is free.
    """

    workers: Engine = field(default_factory=Inline)
    processes: Engine = field(default_factory=Inline)
    beside: Engine | None = None
    device_name: str = "cpu"
    clock: Callable[[], float] = time.monotonic
    memory_mib: int | None = None

    @property
    def threads(self) -> Engine:
        """Who goes through much data with little work: it is not worth sending."""
        return self.beside or self.workers

    @cached_property
    def device(self) -> torch.device:
        """Where tensors are. Loads torch."""
        return choose_device(self.device_name)

    @property
    def accelerated(self) -> bool:
        """Whether tensors are on another device than the CPU; loads torch only where they may be."""
        return self.device_name != "cpu" and self.device.type != "cpu"

    @property
    def free_bytes(self) -> float:
        """Memory that a job may still take."""
        return free_bytes() if self.memory_mib is None else min(free_bytes(), self.memory_mib << 20)


@dataclass(frozen=True, kw_only=True)
class OwnSettings:
    """What one party's owner allows, and wishes.

    Attributes:
        limits: what it allows in this job: the tightest of those for its partners.
        obfuscation: its own wishes for an obfuscated set.
        models: its own architectures: name → ``module:Class``.
        protection: what it does about what tensors tell.
        compare: the local models with which it compares a federated one; a boosted tree only if it asks for it.
        check_hours: called before a training begins whose random numbers were made ahead; raises GaveWay where the owner's
            hours let it begin later.
    """

    limits: Limits = field(default_factory=Limits)
    obfuscation: Obfuscation = field(default_factory=Obfuscation)
    models: Mapping[str, str] = field(default_factory=dict)
    protection: Protection = field(default_factory=Protection)
    compare: Compare = NO_TREE
    check_hours: Callable[[], None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What a trial keeps of the tensors of a training, where it is asked to.

    Attributes:
        transcript: records what split training exchanges; None: nothing does.
        received: where what was received of some rows is kept for the joint attack; None: nowhere.
    """

    transcript: Transcript | None = None
    received: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Session:
    """One party's side of one attempt at a job.

    Attributes:
        job: the shared part, as this party holds it.
        name: this party.
        peers: name → the conversation with that party. A passive party has one with the active party and, where the job has
            one, with the coordinator; the active party has one with everybody.
        randomness: this party's own for the job; the same on every attempt.
        attempt: its number, and what it has of earlier ones.
        memories: name of a data party → what this node remembers of it beyond the job.
        ledgers: name of a party → the ledger about it, once it was shown in this attempt.
        progress: follows the job: every event of it is emitted there.
        machine: what computes.
        policy: this owner's.
        recording: what a trial keeps.
        marks: what all parties must have in common about their owners' consent.
    """

    job: Job
    name: str
    peers: Mapping[str, Channel]
    randomness: Randomness
    attempt: Attempt
    memories: Mapping[str, PeerMemory] = field(default_factory=dict)
    ledgers: dict[str, Heads | None] = field(default_factory=dict)
    progress: Progress = field(default_factory=Silent)
    machine: OwnMachine = field(default_factory=OwnMachine)
    policy: OwnSettings = field(default_factory=OwnSettings)
    recording: Recording = field(default_factory=Recording)
    marks: ConsentMarks = NO_MARKS

    @property
    def role(self) -> Role:
        """This party's role in the job."""
        role = role_in(self.job.parties, self.name)
        if role is None:
            raise ValueError(f"the job does not name {self.name}")
        return role

    @property
    def data_peers(self) -> dict[str, Channel]:
        """Name → conversation, of those peers that have data, in the order of the job's parties."""
        return {name: self.peers[name] for name in self.job.parties.data if name in self.peers}

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the other data parties, in their order; with some of them this party may have no conversation."""
        return self.job.parties.others(self.name)

    @asynccontextmanager
    async def phase(self, name: str) -> AsyncIterator[Sequence[Traffic]]:
        """Phase ``name`` of the conversations with all data peers (:meth:`Channel.phase`); the traffic of each."""
        async with AsyncExitStack() as phases:
            yield [await phases.enter_async_context(channel.phase(name)) for channel in self.data_peers.values()]

    def traffic(self) -> dict[str, Traffic]:
        """Phase → traffic so far with all data peers together."""
        return total(channel.traffic for channel in self.data_peers.values())

    @property
    def peer(self) -> Channel:
        """The conversation with the one other data party, in a protocol of two.

        Raises:
            ValueError: there are several; a protocol that calls this must not run with them.
        """
        (channel,) = self.data_peers.values()
        return channel

    def heads(self, peer: str) -> Heads | None:
        """The ledger about ``peer``, to be shown to it; None if none is kept. Raises OSError, StateError."""
        if peer in self.ledgers or peer not in self.memories:
            return self.ledgers.get(peer)
        about = {"name": self.job.name, "manifest": self.marks.manifest.hex(), "consents": self.marks.consents.hex()}
        self.ledgers[peer] = self.memories[peer].heads(self.attempt.job_id, about)
        return self.ledgers[peer]

    @property
    def memory(self) -> Memory:
        """What this node remembers of the other data party; of several, of all of them as one."""
        return join_memories([self.memories[name] for name in self.others])

    @property
    def coordinator(self) -> Channel | None:
        """The conversation with the coordinator, where the job has one."""
        name = self.job.parties.coordinator
        return self.peers[name] if name is not None and name in self.peers else None


def bytes_moved(traffic: Iterable[Traffic]) -> int:
    """How many bytes several conversations have moved, both ways."""
    return sum(each.bytes_sent + each.bytes_received for each in traffic)
