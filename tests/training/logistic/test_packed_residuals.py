"""A passive party that has residuals decrypted in place of its gradient, as many as the key's holder will tell it.

Nothing shows the holder what it decrypts. A slot is wide for the mask's sake, which a deviating party need not add; what it
is told of each is no wider than a gradient entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gmpy2
import numpy as np
import pytest

from benchmarks.sessions import TWO
from vfl_node.crypto.fixed_point import encode
from vfl_node.crypto.paillier import packing
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.session.pins import MemoryPins
from vfl_node.training.glm import masks
from vfl_node.training.glm.decryption import DecryptionService
from vfl_node.training.glm.decryption_log import MemoryDecryptionLog
from vfl_node.training.glm.masked_tensors import MaskedTensor, shapes
from vfl_node.training.glm.scales import RESIDUAL, Scales
from vfl_node.transport.generated.vfl.v1 import decryption_pb2 as pb
from vfl_node.transport.memory import memory_channels, run_together

COLUMNS, ROWS, GENUINE = 18, 80, 40
WIDTH = 36
"""Bits of a residual over 40 genuine rows, the sign included: 41 − log₂ 40."""


@pytest.fixture
def residuals() -> list[int]:
    """What the active party encrypts: of genuine rows and of dummies."""
    rng = np.random.default_rng(0)
    return encode(rng.uniform(-1, 1, ROWS) * (rng.permutation(ROWS) < GENUINE) / GENUINE, RESIDUAL)


def places(tensor: MaskedTensor, per: int) -> Iterator[list[int]]:
    """For each ciphertext, the bits at which a residual can be put so that all of it is told."""
    for start in range(0, tensor.units, per):
        slots = min(per, tensor.units - start)
        if tensor.returned_bits == tensor.slot_bits:  # slots are told whole, so a residual may lie across them
            yield list(range(0, slots * tensor.slot_bits - WIDTH + 1, WIDTH))
        else:
            in_slot = range(0, tensor.returned_bits - WIDTH + 1, WIDTH)
            yield [slot * tensor.slot_bits + bit for slot in range(slots) for bit in in_slot]


def read(private: Any, train: Any, residuals: list[int]) -> tuple[list[int], Any]:
    """The residuals that one answer to the attacker holds, and what the holder has counted."""
    clinic, lab = memory_channels("clinic", "lab")
    public, workers = private.public, Inline()
    log, (tensor,) = MemoryDecryptionLog(), shapes(("gradient",), COLUMNS, Scales.from_config(train))
    per = packing.slots(public, tensor.unit_bits)
    rows = Encryptor(public, Randomness(b"a" * 32), workers).encrypt(residuals, "residuals")

    async def holder() -> None:
        service = DecryptionService(clinic, private, train, TWO, workers, log, MemoryPins())
        await service.take_plan([tensor])
        await service.answer()

    async def attacker() -> list[int]:
        await lab.send(pb.DecryptionPlan(tensors=[pb.MaskedTensor(**vars(tensor))]))
        left, packed = list(public.integers(rows)), []
        layout = list(places(tensor, per))
        for bits in layout:
            plaintext = gmpy2.mpz(1)
            for bit, ciphertext in zip(bits, left, strict=False):
                shifted = gmpy2.powmod(ciphertext, 1 << bit, public.square)  # d·2^bit, and an offset against its sign
                plaintext = plaintext * shifted * (1 + (1 << (bit + WIDTH - 1)) * public.n) % public.square
            left = left[len(bits) :]
            packed.append(plaintext)
        blinded = Encryptor(public, Randomness(b"b" * 32), workers).blind(public.rows(packed), "attack")
        await lab.send(pb.DecryptionRequest(step=0, tensor="gradient"))
        await lab.send_rows(blinded, count=len(blinded), width=public.width)
        await lab.receive(pb.Decrypted)
        told = await lab.receive_rows(width=-(-tensor.returned_bits // 8), count=COLUMNS)
        slots = [int.from_bytes(row.tobytes(), "big") for row in told]
        found = []
        for start, bits in zip(range(0, COLUMNS, per), layout, strict=True):
            whole = packing.join(slots[start : start + per], tensor.slot_bits)
            found += [(whole >> bit & (1 << WIDTH) - 1) - (1 << (WIDTH - 1)) for bit in bits]
        return found

    problem, found = run_together((holder(), clinic), (attacker(), lab))
    assert problem is None
    assert isinstance(found, list), found
    return found, log.read()


def test_a_slot_tells_one_residual(hub: Any, logistic: Any, residuals: list[int]) -> None:
    train = logistic()
    found, count = read(hub, train, residuals)
    assert found == residuals[:COLUMNS]
    assert (count.values, count.bits) == (18, 18 * 62)  # that is what ledger and report say; 31 residuals would fit into it
    assert Scales.from_config(train).returned_bits == 62


def test_told_whole_it_would_tell_three_and_a_half(
    hub: Any, logistic: Any, residuals: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskedTensor, "returned_bits", property(lambda tensor: tensor.slot_bits))
    monkeypatch.setattr(masks, "masked_range", lambda kind, bound: range(1 << (bound + 66)))
    found, _ = read(hub, logistic(), residuals)
    assert found == residuals[:63]
