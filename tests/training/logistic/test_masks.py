"""What the key's holder decrypts is noise: wide, never drawn again, the same whatever it hides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sympy import divisors

from vfl_node.crypto.fixed_point import MASK_BITS, slot_bits
from vfl_node.crypto.randomness import Randomness
from vfl_node.training.glm import decryption, masks
from vfl_node.training.glm.masked_tensors import MaskedTensor
from vfl_node.training.glm.masks import LEAST_FACTOR, Mask, masked_range, returned_bits
from vfl_node.training.glm.scales import Scales

BOUND = 70
KINDS = ("additive", "multiplicative")

Opened = list[tuple[list[int], list[int]]]
"""What was decrypted for a party, slot by slot, and what it hid."""


def seed(number: int = 0) -> Randomness:
    return Randomness(bytes([number]) * 32)


def hide(mask: Mask, values: list[int]) -> list[int]:
    factors = mask.factors or (1,) * len(values)
    return [value * factor + offset for value, factor, offset in zip(values, factors, mask.offsets, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.integers(1 - 2**BOUND, 2**BOUND - 1), max_size=5), number=st.integers(0, 255))
def test_a_mask_comes_off_and_fits_its_slot(kind: Any, values: list[int], number: int) -> None:
    mask = Mask.draw(kind, len(values), BOUND, seed(number))
    hidden = hide(mask, values)
    assert mask.remove([value % 2 ** returned_bits(BOUND) for value in hidden]) == values
    assert all(value in masked_range(kind, BOUND) for value in hidden)
    assert masked_range(kind, BOUND).stop <= 1 << slot_bits(BOUND)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_shows_no_number(kind: Any) -> None:
    assert not any(character.isdigit() for character in repr(Mask.draw(kind, 3, BOUND, seed())))


def test_factors_are_wide_and_of_either_sign() -> None:
    factors = Mask.draw("multiplicative", 400, BOUND, seed()).factors
    assert factors is not None
    assert all(2**LEAST_FACTOR <= abs(factor) < 2**MASK_BITS and factor % 2 for factor in factors)
    assert 150 < sum(factor > 0 for factor in factors) < 250
    assert len(set(factors)) == 400


def drawn(kind: Any, value: int, number: int) -> list[float]:
    """500 times ``value``, masked."""
    return [float(masked) for masked in hide(Mask.draw(kind, 500, BOUND, seed(number)), [value] * 500)]


def test_an_additive_mask_hides_which_value_is_below(monkeypatch: pytest.MonkeyPatch) -> None:
    extremes = [2**BOUND, -(2**BOUND), 0]
    samples = [drawn("additive", value, number) for number, value in enumerate(extremes)]
    assert ks_2samp(samples[0], samples[1]).pvalue > 0.05
    assert ks_2samp(samples[0], samples[2]).pvalue > 0.05
    monkeypatch.setattr(masks, "MASK_BITS", 2)  # a mask hardly wider than the value
    narrow = [drawn("additive", value, number) for number, value in enumerate(extremes)]
    assert ks_2samp(narrow[0], narrow[1]).pvalue < 1e-9


def test_a_factor_hides_neither_zero_nor_size() -> None:
    assert set(drawn("multiplicative", 0, 0)) == {2.0 ** (slot_bits(BOUND) - 1)}
    assert len(set(drawn("additive", 0, 0))) == 500
    assert ks_2samp(drawn("multiplicative", 3, 0), drawn("multiplicative", 2**BOUND, 1)).pvalue < 1e-9


def test_two_factors_for_one_value_give_it_away() -> None:
    """Why factors, unlike additive masks, stay the same where an iteration is repeated."""
    value = 0x1F2E3D4C5B6A7988
    mask = Mask.draw("multiplicative", 2, BOUND, seed())
    first, second = (masked - offset for masked, offset in zip(hide(mask, [value, value]), mask.offsets, strict=True))
    assert math.gcd(first, second) // value < 100
    assert math.gcd(first, second) % value == 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Opened]:
    """What was decrypted since the last call."""
    found: Opened = []
    decrypted: list[list[int]] = []
    masked_values, remove = MaskedTensor.unpack, Mask.remove

    def seeing(*arguments: Any) -> list[int] | None:
        masked = masked_values(*arguments)
        decrypted.append(masked or [])
        return masked

    def spying(mask: Mask, masked: Any) -> list[int]:
        values, last = remove(mask, masked), 1 << returned_bits(mask.bound)
        (seen,) = (of for of in decrypted if [value % last for value in of] == masked)  # that is all that was told of them
        decrypted.remove(seen)
        found.append((seen, values))
        return values

    monkeypatch.setattr(MaskedTensor, "unpack", seeing)
    monkeypatch.setattr(Mask, "remove", spying)

    def since() -> Opened:
        taken = found.copy()
        found.clear()
        return taken

    return since


FLOWS = [
    {},
    {"flow": "coordinator-open-scores"},
    {"flow": "coordinator", "loss": "taylor", "tolerance": 1e-12},
    {"flow": "coordinator", "loss": "taylor", "tolerance": 1e-12, "labels": "passive"},
]


def named(given: dict[str, Any]) -> str:
    return f"{given.get('flow', 'two-party')}-{given.get('labels', 'active')}"


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_the_holder_sees_masked_values_only(
    attempt: Any, shared: Any, logistic: Any, opened: Any, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    over = shared(lab=4, labels=given.get("labels", "active"))
    plaintexts: list[int] = []
    decrypt = decryption.decrypt

    def spying(*arguments: Any) -> list[int]:
        found = decrypt(*arguments)
        plaintexts.extend(found)
        return found

    monkeypatch.setattr(decryption, "decrypt", spying)
    train = logistic(**given)
    attempt(train)(over)
    seen, scales = opened(), Scales.from_config(train)
    # the lab's columns, the clinic's and its intercept, a loss
    assert {len(values) for _, values in seen} == ({4, 3, 1} if train.flow == "coordinator" else {4})
    masked = {value for values, _ in seen for value in values}
    assert len(masked) == sum(len(values) for values, _ in seen)
    slots = {
        plaintext >> shift & (1 << width) - 1
        for plaintext in plaintexts
        for width in (scales.slot, slot_bits(scales.loss))
        for shift in range(0, train.key_bits, width)
    }
    assert masked <= slots  # it is these that were decrypted
    hidden = {value for _, values in seen for value in values}
    assert not hidden & slots
    assert not {abs(value) for value in hidden} & slots
    largest = max(abs(value) for value in hidden).bit_length()
    assert min(value.bit_length() for value in masked) > largest + 40


@pytest.mark.parametrize("given", FLOWS, ids=named)
def test_another_attempt_has_other_masks_and_the_same_result(
    attempt: Any, shared: Any, logistic: Any, opened: Any, given: Any
) -> None:
    over, train = shared(lab=4, labels=given.get("labels", "active")), logistic(**given)
    made = [attempt(train, number=number) for number in (1, 2, 2)]
    results, seen = [], []
    for of in made:
        results.append(of(over))
        seen.append(opened())
    for party in (0, 1):
        weights = [result[party].weights for result in results]
        assert all(torch.equal(weights[0][name], other[name]) for other in weights for name in weights[0])
    masked = [{value for values, _ in of for value in values} for of in seen]
    hidden = [[values for _, values in of] for of in seen]
    assert hidden[0] == hidden[1] == hidden[2]
    assert not masked[0] & masked[1]
    ciphertexts = [
        {
            row.tobytes()
            for party in ("clinic", "lab", "hub")
            for column in of.columns(party)
            for row in column.rows
            if len(row) == 128
        }
        for of in made
    ]
    assert not ciphertexts[0] & ciphertexts[1]
    # were the attempt's number left out of the derivation, all of them would be as in these two
    assert masked[1] == masked[2]
    assert made[1].transcript == made[2].transcript


def test_factors_of_a_repeated_iteration_are_the_same(attempt: Any, shared: Any, logistic: Any, opened: Any) -> None:
    over, train = shared(lab=4), logistic(mask="multiplicative")
    made = [attempt(train, number=number) for number in (1, 2)]
    seen = []
    for of in made:
        of(over)
        seen.append(opened())
    assert seen[0] == seen[1]  # the holder gets the product a second time, and nothing else
    sent = [[column.rows.tobytes() for column in of.columns("clinic")] for of in made]
    assert not set(sent[0]) & set(sent[1])
    products = [values for values, _ in seen[0]]
    assert len({value for values in products for value in values}) == 12  # other factors in each iteration


def test_a_column_of_dummies_alone_shows_under_factors_only(attempt: Any, shared: Any, logistic: Any, opened: Any) -> None:
    """Its gradient is 0, which no factor changes: the paper's mask, and its documented weakness."""
    plain = shared(lab=3)
    column = np.zeros(60)
    column[plain.lab_view.rows[~plain.genuine]] = 1.0
    by_person = np.empty(60)
    by_person[[int(person) for person in plain.lab.ids]] = column
    over = shared(lab=3, columns=[by_person])
    zero = {}
    for mask in KINDS:
        attempt(logistic(mask=mask, scaling="unit"))(over)
        zero[mask] = [values[3] for values, _ in opened()]
        assert opened() == []
    assert len(set(zero["multiplicative"])) == 1
    assert math.log2(zero["multiplicative"][0]).is_integer()
    assert len(set(zero["additive"])) == 3
    np.testing.assert_array_less(2.0**100, [float(value) for value in zero["additive"]])


@pytest.mark.slow
def test_factors_hide_little_from_who_factors_the_products() -> None:
    """The paper's mask again: a product has few divisors, and the entry is one of them."""
    left = []
    entries = [seed().derive(f"entry {number}").draw_below(1 << 57) | 1 << 55 for number in range(5)]
    for number, entry in enumerate(entries):
        mask = Mask.draw("multiplicative", 1, 61, seed().derive(f"mask {number}"))
        assert mask.factors is not None
        product = abs(entry * mask.factors[0])
        possible = [g for g in divisors(product) if g < 1 << 61 and 1 << LEAST_FACTOR <= product // g < 1 << 64]
        assert entry in possible
        left.append(len(possible))
    assert np.median(left) < 100
