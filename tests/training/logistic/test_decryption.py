"""The key's holder decrypts what the job allows, in its order, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.sessions import TWO
from vfl_node.crypto.paillier import keys, packing
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.errors import ProtocolError, StateError, VflError
from vfl_node.job import Parties
from vfl_node.progress import Silent
from vfl_node.session.pins import MemoryPins
from vfl_node.training.glm import decryption
from vfl_node.training.glm.coordinator import coordinate
from vfl_node.training.glm.decryption import DecryptionService, Decryptor
from vfl_node.training.glm.decryption_log import DecryptionCount, FileDecryptionLog, MemoryDecryptionLog
from vfl_node.training.glm.masked_tensors import MaskedTensor, shapes
from vfl_node.training.glm.scales import Scales
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import decryption_pb2 as pb
from vfl_node.transport.memory import memory_channels, run_together

TAYLOR = {"flow": "coordinator", "loss": "taylor", "tolerance": 1e-9}


GRADIENT, LOSS = MaskedTensor("gradient", 5, 1, 174), MaskedTensor("loss", 1, 1, 162)


class Holder:
    """A coordinator that has lived through attempts, and a count of what it decrypted."""

    def __init__(self, private: Any, train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.private, self.train = private, train
        self.log: Any = MemoryDecryptionLog()
        self.pins = MemoryPins()
        self.decrypted = 0
        decrypt = decryption.decrypt

        def counting(private: Any, ciphertexts: Any, workers: Any) -> list[int]:
            self.decrypted += len(ciphertexts)
            return decrypt(private, ciphertexts, workers)

        monkeypatch.setattr(decryption, "decrypt", counting)

    def serve(self, sender: Callable[[Channel], Any], role: str = "passive") -> list[Any]:
        """What became of the holder and of ``sender`` in a new attempt."""
        name = "clinic" if role == "active" else "lab"
        ours, theirs = memory_channels("hub", name)
        serving = coordinate(
            ours,
            self.train,
            Parties(active="clinic", passive=("lab",), coordinator="hub"),
            self.private,
            workers=Inline(),
            log=self.log,
            pins=self.pins,
            progress=Silent(),
        )
        return run_together((serving, ours), (sender(theirs), theirs))

    def refuses(self, sender: Callable[[Channel], Any], role: str = "passive", code: str = "E_DECRYPTION") -> VflError:
        """The refusal, and that nothing more was decrypted for it."""
        before = self.decrypted
        answered = sender.opened if isinstance(sender, Sender) else 0
        refusal, _ = self.serve(sender, role)
        assert isinstance(refusal, VflError), refusal
        assert refusal.code == code
        if isinstance(sender, Sender):
            assert self.decrypted - before == sender.opened - answered
        return refusal


class Sender:
    """Plans and asks as it is told to, one ciphertext a unit unless it is given others."""

    def __init__(
        self,
        private: Any,
        *asks: Any,
        plan: tuple[MaskedTensor, ...] = (GRADIENT,),
        theirs: tuple[MaskedTensor, ...] = (),
        first_step: int = 0,
        number: int = 0,
    ) -> None:
        self.private, self.asks, self.plan, self.theirs, self.first_step = private, asks, plan, theirs, first_step
        self.encryptor = Encryptor(private.public, Randomness(bytes([number]) * 32), Inline())
        self.answers: list[Any] = []
        self.opened = 0

    async def __call__(self, channel: Channel) -> None:
        public = self.private.public
        async with channel.phase("decrypt"):
            await channel.receive(pb.PaillierKey)
            ours, theirs = ([pb.MaskedTensor(**vars(of)) for of in plan] for plan in (self.plan, self.theirs))
            await channel.send(pb.DecryptionPlan(tensors=ours, theirs=theirs, first_step=self.first_step))
            for count, (step, name, rows) in enumerate(self.asks):
                await channel.send(pb.DecryptionRequest(step=step, tensor=name))
                if rows is None:
                    tensor = {of.name: of for of in self.plan}.get(name, GRADIENT)
                    per = packing.slots(public, tensor.unit_bits)
                    rows = self.encryptor.encrypt([count + 1] * -(-tensor.units // per), f"{count}")
                await channel.send_rows(rows, count=len(rows), width=public.width)
                await channel.receive(pb.Decrypted)
                self.opened += len(rows)
                for row in await channel.receive_rows(width=14 if name == "gradient" else 13):
                    self.answers.append(int.from_bytes(row.tobytes(), "big"))
            await channel.send(pb.DecryptionRequest(done=True))


@pytest.fixture
def holder(hub: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch) -> Holder:
    return Holder(hub, logistic(**TAYLOR), monkeypatch)


def gradient(step: int, rows: Any = None) -> tuple[int, str, Any]:
    return step, "gradient", rows


def loss(step: int) -> tuple[int, str, Any]:
    return step, "loss", None


def test_requests_in_order_are_answered_and_counted(holder: Holder, hub: Any) -> None:
    lab = Sender(hub, gradient(0), gradient(1), gradient(2))
    assert holder.serve(lab) == [None, None]
    assert lab.answers == [1, 0, 1, 0, 1, 2, 0, 2, 0, 2, 3, 0, 3, 0, 3]  # five units of 174 bits fill three ciphertexts
    assert holder.log.read() == DecryptionCount(step=2, requests=3, values=15, bits=15 * 109, columns=5)
    holder.log, holder.pins = MemoryDecryptionLog(), MemoryPins()
    clinic = Sender(hub, gradient(0), loss(0), gradient(1), loss(1), plan=(GRADIENT, LOSS))
    assert holder.serve(clinic, "active") == [None, None]
    assert holder.log.read() == DecryptionCount(step=1, requests=4, values=12, bits=10 * 109 + 2 * 97, columns=5)


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ([gradient(1)], "asks for 'gradient' of iteration 1; 'gradient' of 0 is due"),
        ([gradient(0), gradient(0)], "asks for 'gradient' of iteration 0; 'gradient' of 1 is due"),
        ([gradient(0), gradient(1), gradient(0)], "'gradient' of 2 is due"),
        ([gradient(0), gradient(2)], "asks for 'gradient' of iteration 2; 'gradient' of 1 is due"),
        ([loss(0)], "asks for 'loss' of iteration 0; 'gradient' of 0 is due"),
        ([(0, "residuals", None)], "asks for 'residuals'"),
        ([(0, "x" * 90, None)], "asks for 'xxxxxxxxxxxxxxxxxxxx' of"),
        ([gradient(0), gradient(1), gradient(2), gradient(3)], "asks for iteration 3 of 3"),
    ],
)
def test_another_place_or_tensor_is_refused(holder: Holder, hub: Any, asks: Any, said: str) -> None:
    refusal = holder.refuses(Sender(hub, *asks))
    assert said in refusal.message
    assert refusal.message.startswith("lab ")
    assert holder.decrypted == 3 * (len(asks) - 1)
    assert "decrypt" in refusal.for_peer
    assert "gradient" not in refusal.for_peer


@pytest.mark.parametrize(
    ("asks", "due"),
    [([gradient(0), gradient(1)], "'loss' of 0"), ([loss(0)], "'gradient' of 0"), ([gradient(0), loss(1)], "'loss' of 0")],
)
def test_with_a_loss_its_turn_is_after_the_gradient(holder: Holder, hub: Any, asks: Any, due: str) -> None:
    refusal = holder.refuses(Sender(hub, *asks, plan=(GRADIENT, LOSS)), "active")
    assert f"{due} is due" in refusal.message


@pytest.mark.parametrize(
    ("role", "plan"),
    [
        ("passive", (GRADIENT, LOSS)),
        ("passive", ()),
        ("passive", (MaskedTensor("residuals", 5, 1, 174),)),
        ("passive", (GRADIENT, GRADIENT)),
        ("active", (GRADIENT,)),
        ("active", (LOSS, GRADIENT)),
    ],
)
def test_a_plan_of_other_tensors_than_the_jobs_is_refused(holder: Holder, hub: Any, role: str, plan: Any) -> None:
    refusal = holder.refuses(Sender(hub, gradient(0), plan=plan), role)
    assert "other tensors decrypted than the job gives it" in refusal.message
    assert holder.decrypted == 0


def test_who_has_nothing_to_decrypt_gets_nothing(hub: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = Holder(hub, logistic(flow="coordinator-open-scores"), monkeypatch)
    assert holder.serve(Sender(hub, plan=()), "active") == [None, None]
    assert holder.serve(Sender(hub, plan=(), first_step=2), "active") == [None, None]  # resumed
    assert "the job gives it none" in holder.refuses(Sender(hub, gradient(0), plan=()), "active").message
    assert "other tensors" in holder.refuses(Sender(hub, gradient(0)), "active").message
    assert holder.decrypted == 0
    assert holder.serve(Sender(hub, plan=(MaskedTensor("gradient", 5, 1, 127),)), "passive") == [None, None]


@pytest.mark.parametrize(
    "shape", [(5, 1, 0), (5, 1, 173), (5, 1, 175), (5, 1, 510), (5, 0, 174), (5, 2, 174), (1 << 24, 1, 174)]
)
def test_slots_of_another_shape_than_the_jobs_are_refused(holder: Holder, hub: Any, shape: tuple[int, int, int]) -> None:
    """Wider ones would open more than a gradient has."""
    refusal = holder.refuses(Sender(hub, plan=(MaskedTensor("gradient", *shape),)))
    assert "another shape than the job's" in refusal.message
    refusal = holder.refuses(Sender(hub, plan=(GRADIENT, MaskedTensor("loss", 2, 1, 162))), "active")
    assert "another shape than the job's" in refusal.message


@pytest.mark.parametrize("units", [1, 3])
def test_a_gradient_is_planned_for_all_models(hub: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch, units: int) -> None:
    """Four models in two units a column, of two each: a unit too many would be one that nothing is due in."""
    train = logistic(**TAYLOR | {"tolerance": 0}, classes=4)
    assert Scales.from_config(train).groups == (2, 2)
    holder = Holder(hub, train, monkeypatch)
    refusal = holder.refuses(Sender(hub, plan=(MaskedTensor("gradient", units, 2, 174),)))
    assert "another shape than the job's" in refusal.message


def test_another_plan_in_a_later_attempt_is_refused(holder: Holder, hub: Any) -> None:
    assert holder.serve(Sender(hub, gradient(0))) == [None, None]
    wider = MaskedTensor("gradient", 6, 1, 174)
    refusal = holder.refuses(Sender(hub, gradient(1), plan=(wider,), first_step=1), code="E_REPLAY")
    assert isinstance(refusal, StateError)
    assert holder.serve(Sender(hub, gradient(1), first_step=1, number=1)) == [None, None]


@pytest.mark.parametrize(("first_step", "fine"), [(0, False), (1, True), (2, True), (3, False)])
def test_an_attempt_goes_on_where_the_last_one_ended(holder: Holder, hub: Any, first_step: int, fine: bool) -> None:
    holder.train = holder.train.model_copy(update={"iterations": 9})
    assert holder.serve(Sender(hub, gradient(0), gradient(1))) == [None, None]
    again = Sender(hub, gradient(first_step), first_step=first_step, number=1)
    if fine:
        assert holder.serve(again) == [None, None]
        assert holder.log.read().requests == 3
        assert holder.log.read().step == first_step
    else:
        refusal = holder.refuses(again)
        assert f"goes on from iteration {first_step}, and the last one answered is 1" in refusal.message


def test_a_first_attempt_begins_at_the_beginning(holder: Holder, hub: Any) -> None:
    refusal = holder.refuses(Sender(hub, gradient(1), first_step=1), code="E_STATE_LOST")
    assert isinstance(refusal, StateError)
    assert "goes on from iteration 1" in refusal.message


@pytest.mark.parametrize("first", ["active", "passive"])
def test_the_parties_statements_about_a_plan_must_agree(holder: Holder, hub: Any, first: str) -> None:
    """Who was told the other's width says what the other's plan must be."""
    wider = MaskedTensor("gradient", 40, 1, 174)
    both = (GRADIENT, LOSS)
    fine = {"passive": Sender(hub, gradient(0)), "active": Sender(hub, gradient(0), plan=both, theirs=(GRADIENT,))}
    second = "active" if first == "passive" else "passive"
    assert holder.serve(fine[first], first) == [None, None]
    assert holder.decrypted == 3
    holder.log = MemoryDecryptionLog()
    bad = {"passive": Sender(hub, gradient(0), plan=(wider,)), "active": Sender(hub, gradient(0), plan=both, theirs=(wider,))}
    refusal = holder.refuses(bad[second], second, code="E_REPLAY")
    assert "another decryption plan of lab" in refusal.message
    assert holder.serve(fine[second], second) == [None, None]


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_another_number_of_ciphertexts_is_refused(holder: Holder, hub: Any, count: int) -> None:
    rows = Encryptor(hub.public, Randomness(bytes(32)), Inline()).encrypt([1] * count, "x")
    refusal = holder.refuses(Sender(hub, gradient(0, rows)), code="E_COUNT")
    assert f"{count} elements announced, expected 3" in refusal.message
    assert holder.decrypted == 0
    assert holder.log.read() == DecryptionCount()


@pytest.mark.parametrize("kind", ["zero", "square", "largest", "factor", "multiple"])
def test_what_is_no_ciphertext_is_refused(holder: Holder, hub: Any, kind: str) -> None:
    public = hub.public
    bad = {"zero": 0, "square": public.n**2, "largest": (1 << 1024) - 1, "factor": hub.p * 12345, "multiple": public.n}[kind]
    rows = np.frombuffer(b"".join(value.to_bytes(public.width, "big") for value in (bad, 7, 7)), np.uint8).reshape(3, -1)
    holder.refuses(Sender(hub, gradient(0, rows)), code="E_CIPHERTEXT")
    assert holder.decrypted == 0
    assert holder.log.read() == DecryptionCount()


LAST = 2**109 + 2**173
"""An entry has 108 bits and a sign, its mask 64 more: no masked one reaches this."""


@pytest.mark.parametrize("mask", ["additive", "multiplicative"])
def test_what_lies_where_no_masked_value_can_is_not_told(
    hub: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch, mask: str
) -> None:
    holder = Holder(hub, logistic(**TAYLOR, mask=mask), monkeypatch)
    encryptor = Encryptor(hub.public, Randomness(bytes(32)), Inline())
    least, last = (0, LAST - 1) if mask == "additive" else (2**173 - 2**172, 2**173 + 2**172)
    fine = [packing.join([least, last], 174), packing.join([last, least], 174), last]

    def asks(step: int, values: list[int]) -> Any:
        return gradient(step, encryptor.encrypt(values, f"{step}/{values}"))

    lab = Sender(hub, asks(0, fine))
    assert holder.serve(lab) == [None, None]
    assert lab.answers == [value % 2**109 for value in (least, last, last, least, last)]  # no bit above an entry's
    for place, wrong in [(2, last + 1), (0, packing.join([least - 1, last], 174)), (2, -1), (2, 1 << 174), (1, 1 << 348)]:
        values = [wrong if place == of else value for of, value in enumerate(fine)]
        lab = Sender(hub, asks(1, values), first_step=1)
        refusal, _ = holder.serve(lab)
        assert isinstance(refusal, ProtocolError)
        assert refusal.code == "E_DECRYPTION"
        assert "where no masked value can" in refusal.message
        assert not any(character.isdigit() for character in refusal.message + refusal.for_peer)
        assert lab.answers == []
    assert holder.log.read().step == 1  # what was decrypted is counted, told or not


def test_answers_are_given_again_so_often_and_no_more(holder: Holder, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decryption, "REPEATED", 3)
    for number in range(4):
        assert holder.serve(Sender(hub, gradient(0), number=number)) == [None, None]
    assert holder.log.read() == DecryptionCount(step=0, requests=4, repeated=3, values=20, bits=20 * 109, columns=5)
    assert "asks again" in holder.refuses(Sender(hub, gradient(0), number=9)).message
    assert holder.serve(Sender(hub, gradient(1), first_step=1, number=10)) == [None, None]  # the job can go on


def test_the_active_party_knows_the_plan_and_takes_no_other(hub: Any, logistic: Any) -> None:
    train = logistic()
    expected = shapes(("gradient",), 5, Scales.from_config(train))

    def plan(announced: tuple[MaskedTensor, ...]) -> Any:
        ours, theirs = memory_channels("clinic", "lab")
        service = DecryptionService(ours, hub, train, TWO, Inline(), MemoryDecryptionLog(), MemoryPins())

        async def send() -> None:
            await theirs.send(pb.DecryptionPlan(tensors=[pb.MaskedTensor(**vars(of)) for of in announced]))

        return run_together((service.take_plan(expected), ours), (send(), theirs))[0]

    assert plan(expected) is None
    (right,) = expected
    for changed in ({"units": 40}, {"slot_bits": 510}, {"slots": 2}, {"units": 40, "slots": 2}):
        refusal = plan((MaskedTensor(**{**vars(right), **changed}),))
        assert isinstance(refusal, ProtocolError)
        assert refusal.code == "E_DECRYPTION"
        assert "other shapes than those of a gradient of its columns" in refusal.message


def test_a_log_in_a_file_survives_and_a_damaged_one_is_named(holder: Holder, hub: Any, tmp_path: Path) -> None:
    path = tmp_path / "decryptions-lab"
    holder.log = FileDecryptionLog(path)
    assert holder.log.read() == DecryptionCount()
    assert holder.serve(Sender(hub, gradient(0), gradient(1))) == [None, None]
    holder.log = FileDecryptionLog(path)
    assert holder.log.read() == DecryptionCount(step=1, requests=2, values=10, bits=10 * 109, columns=5)
    assert "the last one answered is 1" in holder.refuses(Sender(hub, gradient(0), number=1)).message
    whole = path.read_bytes()
    for damage in (b"", whole[:-3], whole[:-1] + bytes([whole[-1] ^ 1]), b'{"step": 1}'):
        path.write_bytes(damage)
        with pytest.raises(StateError) as caught:
            FileDecryptionLog(path).read()
        assert caught.value.code == "E_STATE_CORRUPT"
        assert "decryptions-lab" in caught.value.message


def test_an_answer_is_counted_before_it_is_given(holder: Holder, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def dies(*_: Any) -> list[int]:
        counted.append(holder.log.read())
        raise MemoryError

    monkeypatch.setattr(decryption, "decrypt", dies)
    holder.serve(Sender(hub, gradient(0)))
    assert counted == [DecryptionCount(step=0, requests=1, values=5, bits=5 * 109, columns=5)]


def decrypted(train: Any, private: Any, *answers: tuple[int, str, list[int]], tensor: MaskedTensor = GRADIENT) -> Any:
    """What a party makes of a holder's ``answers``."""
    ours, theirs = memory_channels("lab", "hub")

    async def holder() -> None:
        await DecryptionService(theirs, private, train, TWO, Inline(), MemoryDecryptionLog(), MemoryPins()).send_key()
        await theirs.receive(pb.DecryptionPlan)
        for step, name, values in answers:
            await theirs.send(pb.Decrypted(step=step, tensor=name))
            rows = np.frombuffer(b"".join(value.to_bytes(14, "big") for value in values), np.uint8).reshape(-1, 14)
            await theirs.send_rows(rows, count=len(rows), width=14)

    async def party() -> list[int]:
        decryptor = Decryptor(ours, train, Inline())
        await decryptor.meet()
        await decryptor.plan([tensor], 0)
        return await decryptor.receive_values(0, "gradient")

    return run_together((party(), ours), (holder(), theirs))[0]


def test_the_holders_answer_is_checked(hub: Any, logistic: Any) -> None:
    train = logistic(**TAYLOR)
    told = [1, 2, 3, 4, 2**109 - 1]
    assert decrypted(train, hub, (0, "gradient", told)) == told
    for answer, code in [
        ((1, "gradient", told), "E_ORDER"),
        ((0, "loss", told), "E_ORDER"),
        ((0, "gradient", told[:4]), "E_COUNT"),
        ((0, "gradient", [*told[:4], 2**109]), "E_DECRYPTION"),
    ]:
        refused = decrypted(train, hub, answer)
        assert isinstance(refused, ProtocolError), refused
        assert refused.code == code


@pytest.mark.parametrize("kind", ["size", "small factor", "no proof", "other job's proof", "prime", "square"])
def test_a_bad_key_is_refused(hub: Any, logistic: Any, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    train = logistic(flow="coordinator-open-scores")
    ours, theirs = memory_channels("lab", "hub")
    n, proof = hub.public.n, keys.prove(hub, ours.job_id.encode())
    if kind == "size":
        other = keys.generate(640, Randomness(bytes(32)))
        n, proof = other.public.n, keys.prove(other, ours.job_id.encode())
    elif kind == "small factor":
        n = n // 65521 * 65521
    elif kind == "no proof":
        proof = b""
    elif kind == "other job's proof":
        proof = keys.prove(hub, b"another job")
    elif kind == "prime":
        n = 2**512 - 569
    else:
        n = keys.generate(256, Randomness(bytes(32))).public.n ** 2
    assert n.bit_length() == (640 if kind == "size" else 512)

    async def party() -> None:
        await Decryptor(ours, train, Inline()).meet()

    async def holder() -> None:
        await theirs.send(pb.PaillierKey(n=n.to_bytes((n.bit_length() + 7) // 8, "big"), proof=proof))

    refused, _ = run_together((party(), ours), (holder(), theirs))
    assert isinstance(refused, ProtocolError)
    assert refused.code == "E_KEY"
    words = {
        "size": "640 bits",
        "small factor": "prime factor",
        "no proof": "proof of 0 bytes",
        "other job's proof": "does not hold",
    }
    assert {**words, "prime": "prime number", "square": "power"}[kind] in refused.message
