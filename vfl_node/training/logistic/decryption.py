"""Decryption as a service with rules: by the coordinator for both data parties, by the active party for the passive one.

::

    party                                       key's holder
                        ◄── n, proof ────────
    checks both
    plan: tensors, widths ─────────────────►    pinned: the same in every attempt
    each iteration, each tensor of the plan once and in order:
    step, tensor, packed ciphertexts ──────►    checks place and shape, decrypts, checks ranges
                        ◄── last bits ───────   of each value as many as a gradient entry has
    done ──────────────────────────────────►

What is refused: a tensor that the job's flow does not give this sender, another shape than
planned, slots of another width than the job's, an iteration out of place, one asked twice in an
attempt, one before the last that was answered in any attempt, and more than :data:`REPEATED` answers
given again after restarts. Everything sent is masked (:mod:`vfl_node.training.logistic.masks`).

A masked value that lies where none can is not told, and ends the job. An honest sender's never does, whatever
it hides. To one that packed something else the refusal tells one bit, for which it has given up the job.

The active party is told how wide the passive one's side is, and says to the coordinator what
that one's plan must be; two statements that differ end the job. Its own plan is its own word.

What cannot be detected: a sender may hide other values than the planned ones, such as
residuals in place of gradient entries, and several in one slot, for a slot is 65 bits wider than
an entry, whose mask it need not add. Therefore only the last bits of a slot are told, an entry's.
The bound on what leaks in this way is in bits: those of an entry, times the entries, times the
answers; a residual takes about 41 − log₂|I| of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from vfl_node import failpoints
from vfl_node.crypto.fixed_point import GUARD_BITS, MASK_BITS, slot_bits
from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier import keys, packing
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.keys import Ciphertexts, PrivateKey, PublicKey
from vfl_node.engines.contract import Engine
from vfl_node.errors import ProtocolError, StateError
from vfl_node.files import read_checked, write_checked
from vfl_node.session.pins import Pins
from vfl_node.training.logistic import masks
from vfl_node.training.logistic.config import Logistic
from vfl_node.training.logistic.scales import Scales
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import decryption_pb2 as pb

GRADIENT, LOSS = "gradient", "loss"

REPEATED = 100
"""Answers that a sender may have given again after restarts, at most."""


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

    @property
    def told_bits(self) -> int:
        """Bits of each value that its owner is told."""
        return masks.told_bits(self.slot_bits - MASK_BITS - GUARD_BITS)

    def columns(self, outputs: int) -> int:
        """Of a side whose gradient for ``outputs`` models this is."""
        return self.units // -(-outputs // self.slots)

    def layout(self, outputs: int) -> list[int]:
        """How many values each unit has: those of the columns for the first models, then for the next ones."""
        if self.name == LOSS:
            return [1] * self.units
        return [min(self.slots, outputs - low) for low in range(0, outputs, self.slots) for _ in range(self.columns(outputs))]

    def values(self, outputs: int) -> int:
        """In all units together."""
        return sum(self.layout(outputs))

    def masked(self, plaintexts: Sequence[int], per: int, outputs: int, kind: masks.MaskKind) -> list[int] | None:
        """The masked values in ``plaintexts``, ``per`` units in all but the last; None if one lies where none can."""
        try:
            units = packing.unpack(plaintexts, self.unit_bits, self.units, per)
        except ProtocolError:  # beyond its units
            return None
        within = masks.masked_range(kind, self.slot_bits - MASK_BITS - GUARD_BITS)
        found = []
        for unit, size in zip(units, self.layout(outputs), strict=True):
            if unit.bit_length() > size * self.slot_bits:
                return None
            found += packing.split(unit, self.slot_bits, size)
        return found if all(value in within for value in found) else None


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
        repeated: of them, those of an iteration that had been answered before.
        values: in all of them.
        bits: that were told of these.
        columns: of the sender's side, as its plan has them; 0 before the first answer.
    """

    step: int = -1
    requests: int = 0
    repeated: int = 0
    values: int = 0
    bits: int = 0
    columns: int = 0


class DecryptionLog(Protocol):
    """Keeps the count of one sender."""

    def read(self) -> Count:
        """The newest count."""

    def write(self, count: Count) -> None:
        """Keep it; when this returns it survives a crash."""


class FileDecryptionLog:
    """A journal in a file.

    Args:
        path: of the file; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Count:
        """As :meth:`DecryptionLog.read`.

        Raises:
            StateError: the file is damaged (``E_STATE_CORRUPT``).
        """
        try:
            return Count(**json.loads(read_checked(self._path, hint="submit the job again as a new one")))
        except FileNotFoundError:
            return Count()

    def write(self, count: Count) -> None:
        """As :meth:`DecryptionLog.write`."""
        write_checked(self._path, json.dumps(vars(count)).encode())


class MemoryDecryptionLog:
    """A journal that lives as long as the object."""

    def __init__(self) -> None:
        self._count = Count()

    def read(self) -> Count:
        """As :meth:`DecryptionLog.read`."""
        return Count(**vars(self._count))

    def write(self, count: Count) -> None:
        """As :meth:`DecryptionLog.write`."""
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
        workers: Engine,
        journal: DecryptionLog,
        pins: Pins,
        other: str = "",
    ) -> None:
        self._channel, self._private, self._workers = channel, private, workers
        self._train, self._allowed = train, tensors_of(train, role)
        self._journal, self._pins, self._other = journal, pins, other
        self.count = journal.read()
        self._plan: Mapping[str, Tensor] = {}
        self._next = self._before = 0

    async def send_key(self) -> None:
        """Send the key and the proof that it is well formed."""
        proof = keys.prove(self._private, self._channel.job_id.encode())
        failpoints.reach("key")
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
        scales = Scales.of(self._train)
        shapes = {GRADIENT: (scales.groups[0], scales.slot, len(scales.groups)), LOSS: (1, slot_bits(scales.loss), 1)}
        for tensor in tensors:
            slots, bits, groups = shapes[tensor.name]
            fits = tensor.units < 1 << 24 and tensor.units % groups == 0 and (tensor.name == GRADIENT or tensor.units == 1)
            if not fits or (tensor.slots, tensor.slot_bits) != (slots, bits):
                raise self._refused("plans tensors of another shape than the job's")
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
        self._before = (self.count.step + 1) * len(tensors)

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
        if step >= self._train.iterations:
            raise self._refused(f"asks for iteration {step} of {self._train.iterations}")
        self._next += 1
        again = self._next <= self._before
        if again and self.count.repeated >= REPEATED:
            raise self._refused(f"asks again for what it was told, the {REPEATED + 1}th time")
        tensor, public, outputs = self._plan[due], self._private.public, self._train.outputs
        per = packing.slots(public.bits, tensor.unit_bits)
        packed = await self._channel.receive_rows(width=public.width, count=-(-tensor.units // per))
        homomorphic.check(public, packed)
        count, values = self.count, tensor.values(outputs)
        count.step, count.requests, count.repeated = step, count.requests + 1, count.repeated + again
        count.values, count.bits = count.values + values, count.bits + values * tensor.told_bits
        count.columns = self._plan[GRADIENT].columns(outputs)
        self._journal.write(count)  # before the answer: what may have been seen is counted
        failpoints.reach("decrypt")
        kind = self._train.mask if due == GRADIENT else "additive"
        masked = tensor.masked(decrypt(self._private, packed, self._workers), per, outputs, kind)
        if masked is None:
            raise self._refused("asks for values that lie where no masked value can")
        size, last = _width(tensor), (1 << tensor.told_bits) - 1
        rows = np.frombuffer(b"".join((value & last).to_bytes(size, "big") for value in masked), np.uint8)
        failpoints.reach("decrypted")
        await self._channel.send(pb.Decrypted(step=step, tensor=due))
        await self._channel.send_rows(rows.reshape(-1, size), count=len(masked), width=size)
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


def _width(tensor: Tensor) -> int:
    """Bytes of what is told of each value."""
    return -(-tensor.told_bits // 8)


def _read(tensors: Iterable[pb.MaskedTensor]) -> tuple[Tensor, ...]:
    return tuple(Tensor(tensor.name, tensor.units, tensor.slots, tensor.slot_bits) for tensor in tensors)


class Decryptor:
    """A party's end: has its masked tensors decrypted.

    Args:
        channel: the conversation with the key's holder.
        train: the job's section.
        workers: who packs and checks.
    """

    def __init__(self, channel: Channel, train: Logistic, workers: Engine) -> None:
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
        failpoints.reach("plan")
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
        """What is told of the masked values of tensor ``name``, unit by unit: the last :attr:`Tensor.told_bits` of each.

        Raises:
            ProtocolError: not the reply that is due (``E_ORDER``), or values that are wider (``E_DECRYPTION``).
        """
        reply = await self._channel.receive(pb.Decrypted)
        if (reply.step, reply.tensor) != (step, name):
            raise ProtocolError(f"{self._channel.peer} answered another request than the one asked", code="E_ORDER")
        tensor = self._tensors[name]
        rows = await self._channel.receive_rows(width=_width(tensor), count=tensor.values(self._train.outputs))
        values = [int.from_bytes(row.tobytes(), "big") for row in rows]
        if any(value >> tensor.told_bits for value in values):
            raise ProtocolError(f"{self._channel.peer} returned values wider than they may be", code="E_DECRYPTION")
        return values

    async def done(self) -> None:
        """Nothing more will be asked."""
        await self._channel.send(pb.DecryptionRequest(done=True))
