"""Every encrypted number fits its place, whatever the data: shown at the widest values the bounds allow."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto.fixed_point import MASK_BITS, SPARE_BITS, slot_bits
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import MOST
from vfl_node.errors import UsageError
from vfl_node.job import Logistic
from vfl_node.training.logistic.masks import Mask
from vfl_node.training.logistic.opening import shapes
from vfl_node.training.logistic.scales import SCORE, SCORE_RANGE, WEIGHT, Scales, loss_fraction, packed
from vfl_node.transport.generated.vfl.v1 import decryption_pb2 as pb

JOBS = [
    {},
    {"loss": "taylor"},
    {"flow": "coordinator", "loss": "taylor"},
    {"flow": "coordinator", "loss": "taylor", "labels": "passive", "tolerance": 0.1},
]


def job(**given: Any) -> Logistic:
    return Logistic(algorithm="logistic", **given)


@pytest.mark.parametrize("given", JOBS)
@pytest.mark.parametrize("rows", [1, 2, 1000, 1023, 1024, 10**6, 10**9])
@pytest.mark.parametrize("bits", [2048, 3072, 4096])
def test_the_widest_sum_fits_its_bound_and_its_slot_the_key(given: Any, rows: int, bits: int) -> None:
    train = job(key_bits=bits, **given)
    scales = Scales.of(train, rows)
    # residuals are divided by the number of genuine rows: only if each is as large as one of a single row would be ...
    widest = rows * 2**scales.residual * MOST
    assert widest <= 2**scales.gradient
    assert sum(scales.groups) == train.outputs
    assert max(scales.groups) * scales.slot <= bits - SPARE_BITS
    for kind in ("additive", "multiplicative"):
        for value in (widest, -widest, 0):
            mask = Mask.draw(kind, 1, scales.gradient, Randomness(bytes(32)))
            factor = mask.factors[0] if mask.factors else 1
            assert 0 <= value * factor + mask.offsets[0] < 2**scales.slot
    if train.flow == "coordinator":
        largest = 0.7 + (2**SCORE_RANGE * 2) / 2 + (2**SCORE_RANGE * 2) ** 2 / 8
        assert largest * 2 ** loss_fraction(train) < 2**scales.loss
    else:
        assert scales.loss == 0


@pytest.mark.parametrize("rows", [2, 20, 10**6])
def test_products_under_encryption_fit_too(rows: int) -> None:
    scales = Scales.of(job(flow="coordinator", loss="taylor"), rows)
    assert scales.fraction == SCORE + WEIGHT
    most = 2**SCORE_RANGE  # of either party's scores; the factors 1/|I| of all rows add up to 1
    assert (most / 4 + most / 4 + 0.5) * 2**scales.fraction * MOST <= 2**scales.gradient
    assert (most + most + 2) * 2**scales.fraction * MOST <= 2**scales.gradient  # labels: passive, four times as large


def test_an_overflow_is_told_with_its_numbers() -> None:
    train = job(flow="coordinator", loss="taylor").model_copy(update={"key_bits": 190})
    fits = Scales.of(train, 2**13 - 1)
    assert (fits.gradient, fits.slot) == (121, 187)
    with pytest.raises(UsageError) as caught:
        Scales.of(train, 2**15)
    assert caught.value.code == "E_OVERFLOW"
    for number in ("32768 products", "21 and 89 bits", "up to 124", "64 bits wider", "takes 190", "room for 188"):
        assert number in caught.value.message
    assert "train.key_bits" in caught.value.hint
    assert "124" not in caught.value.for_peer


@pytest.mark.parametrize(
    ("classes", "bits", "groups"),
    [
        (2, 2048, (1,)),
        (4, 2048, (4,)),
        (10, 2048, (10,)),
        (20, 2048, (14, 6)),
        (28, 2048, (14, 14)),
        (64, 3072, (22, 22, 20)),
    ],
)
def test_outputs_share_as_few_ciphertexts_as_hold_them(classes: int, bits: int, groups: tuple[int, ...]) -> None:
    scales = Scales.of(job(classes=classes, key_bits=bits), 8000)
    assert scales.slot == 40 + 20 + 13 + MASK_BITS + SPARE_BITS
    assert scales.groups == groups


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-(2**30), 2**30), min_size=5, max_size=5), max_size=4),
    groups=st.sampled_from([(5,), (3, 2), (2, 2, 1), (1, 1, 1, 1, 1)]),
)
def test_packed_values_come_apart_again(rows: list[list[int]], groups: tuple[int, ...]) -> None:
    slot = 40
    columns = packed(rows, groups, slot)
    assert [len(column) for column in columns] == [len(rows)] * len(groups)
    for place, row in enumerate(rows):
        found = []
        for size, column in zip(groups, columns, strict=True):
            shifted = column[place] + sum(1 << (slot * k + slot - 1) for k in range(size))
            found += [(shifted >> (slot * k) & (1 << slot) - 1) - (1 << slot - 1) for k in range(size)]
        assert found == row


def test_a_plan_fits_its_message() -> None:
    """What is announced travels as 32-bit numbers."""
    scales = Scales.of(job(classes=64, key_bits=2048), 10**6)
    for tensor in shapes(("gradient", "loss"), 10**5, scales):
        message = pb.MaskedTensor(**vars(tensor))
        assert (message.units, message.slots, message.slot_bits) == (tensor.units, tensor.slots, tensor.slot_bits)
    gradient = shapes(("gradient",), 3, scales)[0]
    assert (gradient.columns(64), gradient.values(64)) == (3, 3 * 64)
    assert gradient.unit_bits == scales.groups[0] * scales.slot


def test_a_slot_has_room_for_mask_and_carry() -> None:
    assert slot_bits(10) == 10 + MASK_BITS + SPARE_BITS
