"""Decryption as a service with rules: by the coordinator for both data parties, by the active party for the passive one.

::

    party                                       key's holder
                        ◄── n, proof ────────
    checks both
    plan: tensors, widths ─────────────────►    pinned: the same in every attempt
    each iteration, each tensor of the plan once and in order:
    step, tensor, packed ciphertexts ──────►    checks place and shape, decrypts
                        ◄── plaintexts ──────
    done ──────────────────────────────────►

What is refused: a tensor that the job's flow does not give this sender, another shape than
planned, an iteration out of place, one asked twice in an attempt, and one before the last
that was answered in any attempt. Everything sent is masked (:mod:`vfl_node.training.logistic.masks`).

The active party is told how wide the passive one's side is, and says to the coordinator what
that one's plan must be; two statements that differ end the job. Its own plan is its own word.

What cannot be detected: a sender may hide other values of the same shape than the planned
ones, such as residuals in place of gradient entries. The plan bounds how many it can have
decrypted: its values times the iterations, and once more for each restart.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vfl_node.alignment.alignment import Pins
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier import keys, packing
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.keys import Ciphertexts, PrivateKey, PublicKey
from vfl_node.crypto.processes import Processes
from vfl_node.errors import ProtocolError, StateError
from vfl_node.files import write_whole
from vfl_node.job import Logistic
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import decryption_pb2 as pb

GRADIENT, LOSS = "gradient", "loss"


@dataclass(frozen=True)
class Tensor:
    """One masked tensor of every iteration.

    Attributes:
        name: ``gradient`` or ``loss``.
        units: what one ciphertext held before packing: a value, or several side by side.
        slots: values a unit, at most.
        slot_bits: bits of each.
    """

    name: str
    units: int
    slots: int
    slot_bits: int

    @property
    def unit_bits(self) -> int:
        """Bits of a unit."""
        return self.slots * self.slot_bits

    def columns(self, outputs: int) -> int:
        """Of a side whose gradient for ``outputs`` models this is."""
        return self.units // -(-outputs // self.slots)

    def values(self, outputs: int) -> int:
        """In all units together."""
        return self.columns(outputs) * outputs

    def fits(self, plaintexts: Sequence[int], per: int) -> bool:
        """Whether each of ``plaintexts``, ``per`` units in all but the last, holds nothing beyond its units."""
        filled = [min(per, self.units - start) * self.unit_bits for start in range(0, self.units, per)]
        return all(value.bit_length() <= bits for value, bits in zip(plaintexts, filled, strict=True))


def tensors_of(train: Logistic, role: str) -> tuple[str, ...]:
    """Which tensors the job lets the data party in ``role`` have decrypted, in their order within an iteration."""
    if train.flow != "coordinator":
        return (GRADIENT,) if role == "passive" else ()
    return (GRADIENT, LOSS) if role == train.labels and train.tolerance > 0 else (GRADIENT,)


@dataclass
class Count:
    """What one sender has had decrypted, in all attempts.

    Attributes:
        step: the last iteration answered; −1: none.
        requests: answers given.
        values: in them.
        columns: of the sender's side, as its plan has them; 0 before the first answer.
    """

    step: int = -1
    requests: int = 0
    values: int = 0
    columns: int = 0


class Journal(Protocol):
    """Keeps the count of one sender."""

    def read(self) -> Count:
        """The newest count."""

    def write(self, count: Count) -> None:
        """Keep it; when this returns it survives a crash."""


class FileJournal:
    """A journal in a file.

    Args:
        path: of the file; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Count:
        """As :meth:`Journal.read`.

        Raises:
            StateError: the file is damaged (``E_STATE_CORRUPT``).
        """
        if not self._path.exists():
            return Count()
        try:
            return Count(**json.loads(self._path.read_text()))
        except (ValueError, TypeError):
            hint = "submit the job again as a new one"
            raise StateError(f"{self._path} is damaged", code="E_STATE_CORRUPT", hint=hint) from None

    def write(self, count: Count) -> None:
        """As :meth:`Journal.write`."""
        write_whole(self._path, json.dumps(vars(count)).encode())


class MemoryJournal:
    """A journal that lives as long as the object."""

    def __init__(self) -> None:
        self._count = Count()

    def read(self) -> Count:
        """As :meth:`Journal.read`."""
        return Count(**vars(self._count))

    def write(self, count: Count) -> None:
        """As :meth:`Journal.write`."""
        self._count = Count(**vars(count))


class Service:
    """Answers one sender's requests in one attempt.

    Args:
        channel: the conversation with the sender.
        private: the key.
        train: the job's section.
        role: the sender's role.
        workers: who decrypts.
        journal: what the sender has had so far.
        pins: where its plan is pinned.
        other: the other data party's name, at a coordinator.
    """

    def __init__(
        self,
        channel: Channel,
        private: PrivateKey,
        train: Logistic,
        role: str,
        workers: Processes,
        journal: Journal,
        pins: Pins,
        other: str = "",
    ) -> None:
        self._channel, self._private, self._workers = channel, private, workers
        self._allowed = tensors_of(train, role)
        self._iterations, self._outputs = train.iterations, train.outputs
        self._journal, self._pins, self._other = journal, pins, other
        self.count = journal.read()
        self._plan: Mapping[str, Tensor] = {}
        self._next = 0

    async def send_key(self) -> None:
        """Send the key and the proof that it is well formed."""
        proof = keys.prove(self._private, self._channel.job_id.encode())
        await self._channel.send(pb.PaillierKey(n=self._private.public.to_bytes(), proof=proof))

    async def take_plan(self, expected: Sequence[Tensor] | None = None) -> None:
        """Receive what the sender will ask for.

        Args:
            expected: the whole plan, where this party knows how wide the sender's side is, as the active party does.

        Raises:
            ProtocolError: tensors the job does not give this sender, or an iteration out of place (``E_DECRYPTION``).
            StateError: another plan than in an earlier attempt (``E_REPLAY``).
        """
        plan = await self._channel.receive(pb.DecryptionPlan)
        tensors = _read(plan.tensors)
        if tuple(tensor.name for tensor in tensors) != self._allowed:
            raise self._refused("plans to have other tensors decrypted than the job gives it")
        if expected is not None and tensors != tuple(expected):
            raise self._refused("plans other shapes than those of a gradient of its columns")
        room = self._private.public.bits - 2
        if any(
            not (0 < tensor.unit_bits <= room and 0 <= tensor.units < 1 << 24 and tensor.slots <= self._outputs)
            for tensor in tensors
        ):
            raise self._refused("plans tensors of an impossible shape")
        self._pin(self._channel.peer, tensors)
        if plan.theirs:
            self._pin(self._other, _read(plan.theirs))
        if tensors and self.count.step < 0 < plan.first_step:
            raise StateError(
                f"{self._channel.peer} goes on from iteration {plan.first_step}, and nothing is stored here of those before",
                code="E_STATE_LOST",
                hint="put the state folder back, or submit a new job",
                for_peer="it has lost what it stored of the job",
            )
        if tensors and not max(self.count.step, 0) <= plan.first_step <= self.count.step + 1:
            raise self._refused(f"goes on from iteration {plan.first_step}, and the last one answered is {self.count.step}")
        self._plan, self._next = {tensor.name: tensor for tensor in tensors}, plan.first_step * len(tensors)

    async def answer(self) -> bool:
        """Answer one request; False once the sender has no more.

        Cost: a decryption for every ciphertext; the packing puts as many values into one as fit.

        Raises:
            ProtocolError: a request that the rules refuse (``E_DECRYPTION``), or ciphertexts that are none (``E_CIPHERTEXT``).

        Leaks: to the sender the plaintexts; to this party masked values.
        """
        request = await self._channel.receive(pb.DecryptionRequest)
        if request.done:
            return False
        if not self._allowed:
            raise self._refused("asks for a decryption, and the job gives it none")
        step, place = divmod(self._next, len(self._allowed))
        due = self._allowed[place]
        if (request.step, request.tensor) != (step, due):
            raise self._refused(f"asks for {request.tensor[:20]!r} of iteration {request.step}; {due!r} of {step} is due")
        if step >= self._iterations:
            raise self._refused(f"asks for iteration {step} of {self._iterations}")
        self._next += 1
        tensor, public = self._plan[due], self._private.public
        per = packing.slots(public.bits, tensor.unit_bits)
        packed = await self._channel.receive_rows(width=public.width, count=-(-tensor.units // per))
        homomorphic.check(public, packed)
        count = self.count
        count.step, count.requests, count.values = step, count.requests + 1, count.values + tensor.values(self._outputs)
        count.columns = self._plan[GRADIENT].columns(self._outputs)
        self._journal.write(count)  # before the answer: what may have been seen is counted
        plaintexts = decrypt(self._private, packed, self._workers)
        if not tensor.fits(plaintexts, per):
            raise self._refused("asks for values that are wider than planned")
        size = public.width // 2
        rows = np.frombuffer(b"".join(int(value).to_bytes(size, "big") for value in plaintexts), np.uint8)
        await self._channel.send(pb.Decrypted(step=step, tensor=due))
        await self._channel.send_rows(rows.reshape(-1, size), count=len(plaintexts), width=size)
        return True

    def _pin(self, sender: str, tensors: tuple[Tensor, ...]) -> None:
        """Both data parties' statements about the plan of ``sender``, and those of all attempts, are one."""
        try:
            self._pins.check(f"decryption plan of {sender}", hashlib.sha256(repr(tensors).encode()).digest())
        except StateError as error:
            if error.code != "E_REPLAY":
                raise
            raise StateError(
                f"{self._channel.peer} states another decryption plan of {sender} than was stated before, by either party",
                code="E_REPLAY",
                hint="the widths of a job's columns do not change; submit a new job",
            ) from None

    def _refused(self, what: str) -> ProtocolError:
        return ProtocolError(
            f"{self._channel.peer} {what}",
            code="E_DECRYPTION",
            hint="this request was not answered; the job ends",
            for_peer="it refuses to decrypt what the job does not allow",
        )


def _read(tensors: Iterable[pb.MaskedTensor]) -> tuple[Tensor, ...]:
    return tuple(Tensor(tensor.name, tensor.units, tensor.slots, tensor.slot_bits) for tensor in tensors)


class Decryptor:
    """A party's end: has its masked tensors decrypted.

    Args:
        channel: the conversation with the key's holder.
        train: the job's section.
        workers: who packs and checks.
    """

    def __init__(self, channel: Channel, train: Logistic, workers: Processes) -> None:
        self._channel, self._train, self._workers = channel, train, workers
        self.peer = channel.peer
        self._tensors: dict[str, Tensor] = {}
        self.public: PublicKey

    async def meet(self) -> PublicKey:
        """The holder's key, checked.

        Raises:
            ProtocolError: a key of another size, or one that is not well formed (``E_KEY``).
        """
        message = await self._channel.receive(pb.PaillierKey)
        self.public = PublicKey.from_bytes(message.n)
        keys.check(self.public, self._train.key_bits)
        keys.verify(self.public, message.proof, self._channel.job_id.encode())
        return self.public

    async def plan(self, tensors: Sequence[Tensor], first_step: int, theirs: Sequence[Tensor] = ()) -> None:
        """Say what will be asked for in each iteration, from ``first_step`` on, and what the other's plan must be."""
        self._tensors = {tensor.name: tensor for tensor in tensors}
        ours, others = ([pb.MaskedTensor(**vars(tensor)) for tensor in of] for of in (tensors, theirs))
        await self._channel.send(pb.DecryptionPlan(tensors=ours, first_step=first_step, theirs=others))

    def pack(self, name: str, ciphertexts: Ciphertexts) -> Ciphertexts:
        """The units of tensor ``name``, each in its own ciphertext, in as few as hold them."""
        return packing.pack(self.public, ciphertexts, self._tensors[name].unit_bits, self._workers)

    def packed_units(self, name: str, units: Sequence[int]) -> list[int]:
        """Plain ``units`` of tensor ``name`` laid out as :meth:`pack` does."""
        tensor = self._tensors[name]
        per = packing.slots(self.public.bits, tensor.unit_bits)
        return [packing.join(units[start : start + per], tensor.unit_bits) for start in range(0, len(units), per)]

    async def ask(self, step: int, name: str, packed: Ciphertexts) -> None:
        """Send the packed, masked and blinded tensor ``name`` of iteration ``step``."""
        await self._channel.send(pb.DecryptionRequest(step=step, tensor=name))
        await self._channel.send_rows(packed, count=len(packed), width=self.public.width)

    async def opened(self, step: int, name: str) -> list[int]:
        """The masked units of tensor ``name``.

        Raises:
            ProtocolError: not the reply that is due (``E_ORDER``), or values that do not fit (``E_DECRYPTION``).
        """
        reply = await self._channel.receive(pb.Decrypted)
        if (reply.step, reply.tensor) != (step, name):
            raise ProtocolError(f"{self._channel.peer} answered another request than the one asked", code="E_ORDER")
        tensor, size = self._tensors[name], self.public.width // 2
        per = packing.slots(self.public.bits, tensor.unit_bits)
        rows = await self._channel.receive_rows(width=size, count=-(-tensor.units // per))
        values = [int.from_bytes(row.tobytes(), "big") for row in rows]
        if not tensor.fits(values, per):
            raise ProtocolError(f"{self._channel.peer} returned values wider than they were masked", code="E_DECRYPTION")
        return packing.unpack(values, tensor.unit_bits, tensor.units, per)

    async def done(self) -> None:
        """Nothing more will be asked."""
        await self._channel.send(pb.DecryptionRequest(done=True))
