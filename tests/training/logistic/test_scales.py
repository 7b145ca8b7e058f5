"""Every encrypted number fits its place, whatever the data: shown at the widest values the bounds allow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.crypto.fixed_point import MASK_BITS, SPARE_BITS, encode, slot_bits
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import MOST
from vfl_node.errors import UsageError
from vfl_node.training.glm.blind import DITHER
from vfl_node.training.glm.masked_tensors import shapes
from vfl_node.training.glm.masks import Mask
from vfl_node.training.glm.scales import SCORE, SCORE_RANGE, WEIGHT, Scales, loss_fraction, pack_rows
from vfl_node.training.linear.config import LinearRegression
from vfl_node.training.logistic.config import Logistic
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
@pytest.mark.parametrize("bits", [2048, 3072, 4096])
def test_the_widest_sum_fits_its_bound_and_its_slot_the_key(given: Any, bits: int) -> None:
    train = job(key_bits=bits, **given)
    scales = Scales.from_config(train)
    widest = 2**scales.gradient - 1
    assert sum(scales.groups) == train.outputs
    assert max(scales.groups) * scales.slot <= bits - SPARE_BITS
    for kind in ("additive", "multiplicative"):
        for value in (widest, -widest, 0):
            mask = Mask.draw(kind, 1, scales.gradient, Randomness(bytes(32)))
            factor = mask.factors[0] if mask.factors else 1
            masked = value * factor + mask.offsets[0]
            assert 0 <= masked < 2**scales.slot
            assert mask.remove([masked % 2**scales.returned_bits]) == [value]
    if train.flow == "coordinator":
        largest = 0.7 + (2**SCORE_RANGE * 2) / 2 + (2**SCORE_RANGE * 2) ** 2 / 8
        rounding = 2**32 * 2.0 ** (loss_fraction(train) - SCORE)  # of a weight's or a score's last bit, in every row
        assert largest * 2 ** loss_fraction(train) + rounding < 2**scales.loss
    else:
        assert scales.loss == 0


@pytest.mark.parametrize("genuine", [1, 3, 1000, 10**5])
def test_residuals_in_clear_add_up_to_their_bound(genuine: int) -> None:
    """All wrong as far as they can be, all columns at their largest: the bound is as narrow as whole bits make it."""
    for chosen, most in (({}, 1.0), ({"loss": "taylor"}, 2.0**SCORE_RANGE)):
        scales = Scales.from_config(job(**chosen))
        sums = sum(encode(np.full(genuine, most / genuine), scales.fraction)) * MOST
        assert 2 ** (scales.gradient - 1) - genuine * MOST < sums < 2**scales.gradient
        assert sums + 2**32 * MOST < 2**scales.gradient  # half a last bit in each of any number of rows


@pytest.mark.parametrize("genuine", [2, 20, 10**6])
def test_products_under_encryption_fit_too(genuine: int) -> None:
    """Of scores within ±2⁸ each, with factors 1/|I| as they are rounded, and noise in each row."""
    scales = Scales.from_config(job(flow="coordinator", loss="taylor"))
    assert scales.fraction == SCORE + WEIGHT
    most, noise = 2 ** (SCORE_RANGE + SCORE), 2**DITHER
    one = round(0.25 / genuine * 2**WEIGHT) * most + ((most // 4 + 2 ** (SCORE - 1)) << WEIGHT) // genuine + noise
    assert one * genuine * MOST < 2**scales.gradient
    labels = Scales.from_config(job(flow="coordinator", loss="taylor", labels="passive"))
    four = round(2**WEIGHT / genuine) * (most + 2 ** (SCORE + 1)) + (most << WEIGHT) // genuine + noise
    assert four * genuine * MOST < 2**labels.gradient


@pytest.mark.parametrize("parties", range(1, 9))
@pytest.mark.parametrize("rows", [2, 1000, 2**32 - 1])
def test_the_widest_scores_of_several_passive_parties_fit(parties: int, rows: int) -> None:
    """All scores and targets at the end of their range, all columns at their largest, noise and rounding in each row."""
    most, joint = 2**SCORE_RANGE, (parties + 1) * 2**SCORE_RANGE
    taylor, squares = job(flow="coordinator", loss="taylor"), LinearRegression(algorithm="linear", flow="coordinator")
    for train, curvature, slope, loss in (
        (taylor, 0.25, 0.5, math.log(2) + joint / 2 + joint**2 / 8),
        (squares, 1.0, most, (joint + most) ** 2 / 2),
    ):
        scales = Scales.from_config(train, parties)
        factor, fixed = round(curvature / rows * 2**WEIGHT) + 1, int((curvature * most + slope) * 2 ** (SCORE + WEIGHT))
        one = factor * parties * ((most << SCORE) + 1) + fixed // rows + 2**DITHER
        assert one * rows * MOST < 2**scales.gradient
        rounding = rows * 2.0 ** -(WEIGHT + 1) * joint**2 / 2  # of a factor's last bit, in every row
        assert (loss + rounding + 1) * 2 ** loss_fraction(train) < 2**scales.loss
        assert max(scales.groups) * scales.slot <= train.key_bits - SPARE_BITS


@pytest.mark.parametrize("parties", [1, 3, 8])
@pytest.mark.parametrize(
    "train", [job(flow="coordinator-open-scores", loss="taylor"), job(flow="coordinator-open-scores")], ids=["taylor", "exact"]
)
def test_residuals_in_clear_of_several_fit_too(parties: int, train: Logistic) -> None:
    scales = Scales.from_config(train, parties)
    most = 1.0 if train.loss == "exact" else 2.0 ** (scales.residual - scales.fraction)
    if train.loss == "taylor":
        assert (parties + 1) * 2**SCORE_RANGE / 4 + 0.5 < most
    assert sum(encode(np.full(1000, most / 1000), scales.fraction)) * MOST + 2**32 * MOST < 2**scales.gradient


def test_an_overflow_is_told_with_its_numbers() -> None:
    train = job(flow="coordinator", loss="taylor").model_copy(update={"key_bits": 176})
    fits = Scales.from_config(train)
    assert (fits.gradient, fits.slot, fits.returned_bits) == (108, 174, 109)
    with pytest.raises(UsageError) as caught:
        Scales.from_config(train.model_copy(update={"key_bits": 175}))
    assert caught.value.code == "E_OVERFLOW"
    for number in ("21 bits", "add up to 88", "up to 108", "takes 174", "175 bits", "room for 173"):
        assert number in caught.value.message
    assert "train.key_bits" in caught.value.hint
    assert "174" not in caught.value.for_peer


@pytest.mark.parametrize(
    ("classes", "bits", "groups"),
    [
        (2, 2048, (1,)),
        (4, 2048, (4,)),
        (10, 2048, (10,)),
        (20, 2048, (16, 4)),
        (32, 2048, (16, 16)),
        (64, 3072, (24, 24, 16)),
    ],
)
def test_outputs_share_as_few_ciphertexts_as_hold_them(classes: int, bits: int, groups: tuple[int, ...]) -> None:
    scales = Scales.from_config(job(classes=classes, key_bits=bits))
    assert scales.slot == 40 + 20 + 1 + MASK_BITS + SPARE_BITS
    assert scales.groups == groups


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-(2**30), 2**30), min_size=5, max_size=5), max_size=4),
    groups=st.sampled_from([(5,), (3, 2), (2, 2, 1), (1, 1, 1, 1, 1)]),
)
def test_packed_values_come_apart_again(rows: list[list[int]], groups: tuple[int, ...]) -> None:
    slot = 40
    columns = pack_rows(rows, groups, slot)
    assert [len(column) for column in columns] == [len(rows)] * len(groups)
    for place, row in enumerate(rows):
        found = []
        for size, column in zip(groups, columns, strict=True):
            shifted = column[place] + sum(1 << (slot * k + slot - 1) for k in range(size))
            found += [(shifted >> (slot * k) & (1 << slot) - 1) - (1 << slot - 1) for k in range(size)]
        assert found == row


def test_a_plan_fits_its_message() -> None:
    """What is announced travels as 32-bit numbers."""
    scales = Scales.from_config(job(classes=64, key_bits=2048))
    for tensor in shapes(("gradient", "loss"), 10**5, scales):
        message = pb.MaskedTensor(**vars(tensor))
        assert (message.units, message.slots, message.slot_bits) == (tensor.units, tensor.slots, tensor.slot_bits)
    gradient = shapes(("gradient",), 3, scales)[0]
    assert (gradient.columns(64), gradient.values(64)) == (3, 3 * 64)
    assert gradient.unit_bits == scales.groups[0] * scales.slot


def test_a_slot_has_room_for_mask_and_carry() -> None:
    assert slot_bits(10) == 10 + MASK_BITS + SPARE_BITS
