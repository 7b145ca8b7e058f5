"""The holder of the key decrypts for the data parties by fixed rules.

In the coordinator flows the coordinator decrypts for all data parties, for each in a conversation of its own, in the
two-party flow the active party for the passive one::

    party                                       key's holder
                        ◄── n, proof ────────
    checks both
    plan: tensors, widths ─────────────────►    pinned: the same in every attempt
    each iteration, each tensor of the plan once and in order:
    step, tensor, packed ciphertexts ──────►    checks place and shape, decrypts, checks ranges
                        ◄── last bits ───────   of each value, as many as an entry of a gradient has
    done ──────────────────────────────────►

The service refuses

- a tensor that the job's flow does not give this sender,
- a shape other than the planned one, and slots of another width than the job's,
- an iteration out of place: asked for twice in one attempt, or older than the last one answered in any attempt,
- more than :data:`REPEATED` answers that are given again after restarts.

Everything that is sent to the service is masked (:mod:`vfl_node.training.glm.masks`).

A decrypted value outside the range of masked values is not returned, and ends the job. The values of an honest sender are
always within this range. A sender that packed something else learns one bit from the refusal, and loses the job.

Each passive party tells the active one how many columns it has. So the active party can state to the coordinator what the
passive parties' plans must be. If two statements differ, the job ends. The active party's own plan cannot be checked.

What cannot be detected: a sender may have other values decrypted than the planned ones, such as residuals in place of
gradient entries, and several of them in one slot, because a slot is 65 bits wider than an entry and the sender may leave out
the mask. Therefore only the last bits of a slot are returned, as many as an entry has. This bounds the leak in bits: the bits
of an entry, times the number of entries, times the number of answers. A residual takes about 41 − log₂|I| bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from vfl_node.crypto.fixed_point import slot_bits
from vfl_node.crypto.paillier import keys, packing
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.keys import Ciphertexts, PrivateKey, PublicKey
from vfl_node.engines.contract import Engine
from vfl_node.errors import ProtocolError, StateError
from vfl_node.job import Parties
from vfl_node.process import failpoints
from vfl_node.session.pins import Pins
from vfl_node.settings.node import role_in
from vfl_node.training.glm.config import GeneralisedLinear
from vfl_node.training.glm.decryption_log import DecryptionLog
from vfl_node.training.glm.exchange import check_ciphertexts
from vfl_node.training.glm.masked_tensors import GRADIENT, LOSS, MaskedTensor, tensors_of
from vfl_node.training.glm.scales import Scales
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import decryption_pb2 as pb

NOTHING_STATED: Mapping[str, Sequence[MaskedTensor]] = {}
"""What a party says of the others' plans that does not know how many columns they have."""

REPEATED = 100
"""How many answers a sender may get a second time, after restarts."""


class DecryptionService:
    """Answers one sender's requests in one attempt.

    Args:
        channel: the conversation with the sender.
        private: the key.
        train: the job's section.
        parties: the job's.
        workers: the engine that decrypts.
        log: what was decrypted for the sender so far.
        pins: where plans are pinned.

    Attributes:
        count: what was decrypted for the sender, in all attempts.
    """

    def __init__(
        self,
        channel: Channel,
        private: PrivateKey,
        train: GeneralisedLinear,
        parties: Parties,
        workers: Engine,
        log: DecryptionLog,
        pins: Pins,
    ) -> None:
        self._channel, self._private, self._workers = channel, private, workers
        self._train, self._allowed = train, tensors_of(train, str(role_in(parties, channel.peer)))
        self._log, self._pins, self._others = log, pins, parties.others(channel.peer)
        self._scales = Scales.from_config(train, len(parties.passive))
        self.count = log.read()
        self._plan: Mapping[str, MaskedTensor] = {}
        self._next = self._before = 0

    async def send_key(self) -> None:
        """Send the key and the proof that it is well formed."""
        proof = keys.prove(self._private, self._channel.job_id.encode())
        failpoints.reach("key")
        await self._channel.send(pb.PaillierKey(n=self._private.public.to_bytes(), proof=proof))

    async def take_plan(self, expected: Sequence[MaskedTensor] | None = None) -> None:
        """Receive what the sender will ask for.

        Args:
            expected: the whole plan, if this party knows how many columns the sender has, as the active party does.

        Raises:
            ProtocolError: tensors the job does not give this sender, an iteration out of place, or a statement about a party
                that is no other one with data (``E_DECRYPTION``).
            StateError: another plan than in an earlier attempt, or than another party has stated (``E_REPLAY``).
        """
        plan = await self._channel.receive(pb.DecryptionPlan)
        tensors = _read(plan.tensors)
        if tuple(tensor.name for tensor in tensors) != self._allowed:
            raise self._refusal("plans to have other tensors decrypted than the job gives it")
        if expected is not None and tensors != tuple(expected):
            raise self._refusal("plans other shapes than those of a gradient of its columns")
        scales = self._scales
        shapes = {GRADIENT: (scales.groups[0], scales.slot, len(scales.groups)), LOSS: (1, slot_bits(scales.loss), 1)}
        for tensor in tensors:
            slots, bits, groups = shapes[tensor.name]
            fits = tensor.units < 1 << 24 and tensor.units % groups == 0 and (tensor.name == GRADIENT or tensor.units == 1)
            if not fits or (tensor.slots, tensor.slot_bits) != (slots, bits):
                raise self._refusal("plans tensors of another shape than the job's")
        self._pin(self._channel.peer, tensors)
        for party, stated in self._read_plans(plan.theirs).items():
            self._pin(party, stated)
        if tensors and self.count.step < 0 < plan.first_step:
            raise StateError(
                f"{self._channel.peer} goes on from iteration {plan.first_step}, and nothing is stored here of those before",
                code="E_STATE_LOST",
                hint="put the state folder back, or submit a new job",
                for_peer="it has lost what it stored of the job",
            )
        if tensors and not max(self.count.step, 0) <= plan.first_step <= self.count.step + 1:
            raise self._refusal(f"goes on from iteration {plan.first_step}, and the last one answered is {self.count.step}")
        self._plan, self._next = {tensor.name: tensor for tensor in tensors}, plan.first_step * len(tensors)
        self._before = (self.count.step + 1) * len(tensors)

    async def answer(self) -> bool:
        """Answer one request; False once the sender has no more.

        Cost: a decryption for every ciphertext; the packing puts as many values into one as fit.

        Raises:
            ProtocolError: a request that the rules refuse (``E_DECRYPTION``), or bytes that are no ciphertexts
                (``E_CIPHERTEXT``).

        Leaks: to the sender the last bits of the plaintexts; to this party masked values.
        """
        request = await self._channel.receive(pb.DecryptionRequest)
        if request.done:
            return False
        if not self._allowed:
            raise self._refusal("asks for a decryption, and the job gives it none")
        step, place = divmod(self._next, len(self._allowed))
        due = self._allowed[place]
        if (request.step, request.tensor) != (step, due):
            raise self._refusal(f"asks for {request.tensor[:20]!r} of iteration {request.step}; {due!r} of {step} is due")
        if step >= self._train.iterations:
            raise self._refusal(f"asks for iteration {step} of {self._train.iterations}")
        self._next += 1
        again = self._next <= self._before
        if again and self.count.repeated >= REPEATED:
            raise self._refusal(f"asks again for what it was told, the {REPEATED + 1}th time")
        tensor, public, outputs = self._plan[due], self._private.public, self._train.outputs
        per = packing.slots(public.bits, tensor.unit_bits)
        packed = await self._channel.receive_rows(width=public.width, count=-(-tensor.units // per))
        check_ciphertexts(self._channel, public, packed)
        count, values = self.count, tensor.values(outputs)
        count.step, count.requests, count.repeated = step, count.requests + 1, count.repeated + again
        count.values, count.bits = count.values + values, count.bits + values * tensor.returned_bits
        count.columns = self._plan[GRADIENT].columns(outputs)
        self._log.write(count)  # before the answer: what may have been seen is counted
        failpoints.reach("decrypt")
        kind = self._train.mask if due == GRADIENT else "additive"
        masked = tensor.unpack(decrypt(self._private, packed, self._workers), per, outputs, kind)
        if masked is None:
            raise self._refusal("asks for values that lie where no masked value can")
        size, last = tensor.returned_bytes, (1 << tensor.returned_bits) - 1
        rows = np.frombuffer(b"".join((value & last).to_bytes(size, "big") for value in masked), np.uint8)
        failpoints.reach("decrypted")
        await self._channel.send(pb.Decrypted(step=step, tensor=due))
        await self._channel.send_rows(rows.reshape(-1, size), count=len(masked), width=size)
        return True

    def _read_plans(self, theirs: Sequence[pb.MaskedTensor]) -> dict[str, tuple[MaskedTensor, ...]]:
        """Other data party → what its plan must be, as the sender says; an only other party is not named."""
        named = {"" if len(self._others) == 1 else party: party for party in self._others}
        if any(tensor.party not in named for tensor in theirs):
            raise self._refusal("states the plan of a party that is none of the others with data")
        stated = {party: _read(tensor for tensor in theirs if tensor.party == name) for name, party in named.items()}
        return {party: tensors for party, tensors in stated.items() if tensors}

    def _pin(self, sender: str, tensors: tuple[MaskedTensor, ...]) -> None:
        """Check that the plan of ``sender`` is the same in the statements of all data parties and in all attempts."""
        try:
            self._pins.check(f"decryption plan of {sender}", hashlib.sha256(repr(tensors).encode()).digest())
        except StateError as error:
            if error.code != "E_REPLAY":
                raise
            raise StateError(
                f"{self._channel.peer} states another decryption plan of {sender} than was stated before by any party",
                code="E_REPLAY",
                hint="the widths of a job's columns do not change; submit a new job",
            ) from None

    def _refusal(self, what: str) -> ProtocolError:
        return ProtocolError(
            f"{self._channel.peer} {what}",
            code="E_DECRYPTION",
            hint="this request was not answered; the job ends",
            for_peer="it refuses to decrypt what the job does not allow",
        )


def _read(tensors: Iterable[pb.MaskedTensor]) -> tuple[MaskedTensor, ...]:
    return tuple(MaskedTensor(tensor.name, tensor.units, tensor.slots, tensor.slot_bits) for tensor in tensors)


class Decryptor:
    """A data party's end of the conversation with the service: it has its masked tensors decrypted.

    Args:
        channel: the conversation with the key's holder.
        train: the job's section.
        workers: the engine that packs ciphertexts.
    """

    def __init__(self, channel: Channel, train: GeneralisedLinear, workers: Engine) -> None:
        self._channel, self._train, self._workers = channel, train, workers
        self.peer = channel.peer
        self._tensors: dict[str, MaskedTensor] = {}
        self.public: PublicKey

    async def meet(self) -> PublicKey:
        """Receive the holder's key and check it.

        Raises:
            ProtocolError: a key of another size, or one that is not well formed (``E_KEY``).
        """
        message = await self._channel.receive(pb.PaillierKey)
        self.public = PublicKey.from_bytes(message.n)
        keys.check(self.public, self._train.key_bits)
        keys.verify(self.public, message.proof, self._channel.job_id.encode())
        return self.public

    async def plan(
        self, tensors: Sequence[MaskedTensor], first_step: int, theirs: Mapping[str, Sequence[MaskedTensor]] = NOTHING_STATED
    ) -> None:
        """State what will be asked for in each iteration from ``first_step`` on, and what other parties' plans must be."""
        self._tensors = {tensor.name: tensor for tensor in tensors}
        ours = [pb.MaskedTensor(**vars(tensor)) for tensor in tensors]
        named = {party if len(theirs) > 1 else "": plan for party, plan in theirs.items()}
        others = [pb.MaskedTensor(**vars(tensor), party=party) for party, plan in named.items() for tensor in plan]
        failpoints.reach("plan")
        await self._channel.send(pb.DecryptionPlan(tensors=ours, first_step=first_step, theirs=others))

    def pack(self, name: str, ciphertexts: Ciphertexts) -> Ciphertexts:
        """Pack the units of tensor ``name``, one in each of ``ciphertexts``, into as few ciphertexts as can hold them."""
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

    async def receive_values(self, step: int, name: str) -> list[int]:
        """The last bits of each masked value of tensor ``name``, unit by unit (:attr:`MaskedTensor.returned_bits`).

        Raises:
            ProtocolError: not the reply that is due (``E_ORDER``), or values that are wider (``E_DECRYPTION``).
        """
        reply = await self._channel.receive(pb.Decrypted)
        if (reply.step, reply.tensor) != (step, name):
            raise ProtocolError(f"{self._channel.peer} answered another request than the one asked", code="E_ORDER")
        tensor = self._tensors[name]
        rows = await self._channel.receive_rows(width=tensor.returned_bytes, count=tensor.values(self._train.outputs))
        values = [int.from_bytes(row.tobytes(), "big") for row in rows]
        if any(value >> tensor.returned_bits for value in values):
            raise ProtocolError(f"{self._channel.peer} returned values wider than they may be", code="E_DECRYPTION")
        return values

    async def end(self) -> None:
        """Say that nothing more will be asked."""
        await self._channel.send(pb.DecryptionRequest(done=True))
