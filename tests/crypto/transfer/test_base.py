"""Base transfers: keys agree for the choice alone, bad points are refused, and answers show no choice."""

from __future__ import annotations

import pickle
from hashlib import sha256, sha512

import numpy as np
import pytest
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_scalar_reduce,
    crypto_core_ed25519_sub,
    crypto_scalarmult_ed25519_base_noclamp,
)

from tests.crypto.transfer.parties import bound, randomness, seeds
from vfl_node.crypto.transfer.base import BaseReceiver, BaseSender, ChosenSeeds, SeedPairs
from vfl_node.crypto.transfer.sizes import ANNOUNCEMENT_BYTES, ANSWER_BYTES, TRANSFERS

P, ORDER = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
BASE = (15112221349535400772501151409588531511454012693041857206046113283949847762202, 4 * pow(5, -1, P) % P)

TORSION = [  # the eight points whose order divides 8
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
NOT_CANONICAL = [
    (P + 1).to_bytes(32, "little").hex(),  # the neutral element once more
    (P + 5).to_bytes(32, "little").hex(),
    "ff" * 32,
    "01" + "00" * 30 + "80",  # the neutral element with a negative 0
]


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """The sum of two points of −x² + y² = 1 + dx²y² (RFC 8032, 5.1.4), with Python's integers."""
    product = D * a[0] * b[0] * a[1] * b[1]
    x = (a[0] * b[1] + a[1] * b[0]) * pow(1 + product, -1, P) % P
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, P) % P
    return x, y


def times(number: int, point: tuple[int, int]) -> tuple[int, int]:
    total = (0, 1)
    for bit in bin(number)[2:]:
        total = add(total, total)
        if bit == "1":
            total = add(total, point)
    return total


def encoded(point: tuple[int, int]) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def decoded(row: bytes) -> tuple[int, int]:
    number = int.from_bytes(row, "little")
    y = number & (1 << 255) - 1
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    assert x * x % P == square
    return (P - x if x & 1 != number >> 255 else x), y


def scalar_of(name: str, which: str, count: int = 1) -> list[int]:
    """The secrets that a party draws, by Python's own division."""
    source = randomness(name)
    for label in which.split("/"):
        source = source.derive(label)
    return [int.from_bytes(source.bytes(64), "little") % ORDER for _ in range(count)]


@pytest.mark.parametrize(
    ("secret", "public"),
    [  # RFC 8032, 7.1: tests 1, 2 and 3
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        ),
    ],
)
def test_multiples_of_the_base_point_are_published_ones(secret: str, public: str) -> None:
    number = int.from_bytes(sha512(bytes.fromhex(secret)).digest()[:32], "little") & ((1 << 254) - 8) | 1 << 254
    reduced = crypto_core_ed25519_scalar_reduce(number.to_bytes(64, "little"))
    assert int.from_bytes(reduced, "little") == number % ORDER
    assert crypto_scalarmult_ed25519_base_noclamp(reduced).hex() == public == encoded(times(number, BASE)).hex()


def test_messages_and_keys_are_what_the_paper_says() -> None:
    """Each by Python's integers, from the secrets themselves."""
    offering = BaseSender(randomness("a"))
    answer, chosen = BaseReceiver(randomness("b")).answer(offering.announcement)
    pairs = offering.pairs(answer)
    (y,) = scalar_of("a", "base sender")
    announced = times(y, BASE)
    assert offering.announcement == encoded(announced)
    secrets = scalar_of("b", f"base receiver/answer to {offering.announcement.hex()}/scalars", TRANSFERS)
    for number in (0, 1, 2, 3, 64, 127):
        row = answer[32 * number : 32 * number + 32]
        point = times(secrets[number], BASE)
        point = add(point, announced) if chosen.choices[number] else point
        assert row == encoded(point)
        opposite = (P - announced[0], announced[1])
        for keys, shared in ((pairs.zero, times(y, point)), (pairs.one, times(y, add(point, opposite)))):
            hashed = b"vfl-node base transfer" + number.to_bytes(2, "big") + offering.announcement + row + encoded(shared)
            assert keys[number].tobytes() == sha256(hashed).digest()


def test_keys_agree_for_the_choice_and_differ_for_the_other() -> None:
    pairs, chosen = seeds()
    for number, choice in enumerate(chosen.choices):
        both = (pairs.zero[number].tobytes(), pairs.one[number].tobytes())
        assert chosen.seeds[number].tobytes() == both[choice]
        assert chosen.seeds[number].tobytes() != both[1 - choice]
    every = {row.tobytes() for rows in (pairs.zero, pairs.one) for row in rows}
    assert len(every) == 2 * TRANSFERS
    assert 30 < chosen.choices.sum() < 98  # 128 fair bits are outside with a probability below 2e-9


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    offering = BaseSender(randomness("a"))
    assert BaseSender(randomness("a")).announcement == offering.announcement != BaseSender(randomness("c")).announcement
    first, second, other = (BaseReceiver(randomness(name)).answer(offering.announcement) for name in ("b", "b", "c"))
    assert first[0] == second[0] != other[0]
    assert (first[1].seeds == second[1].seeds).all()
    assert (first[1].seeds != other[1].seeds).any(axis=1).all()
    assert len(offering.announcement) == ANNOUNCEMENT_BYTES
    assert len(first[0]) == ANSWER_BYTES
    pairs = offering.pairs(first[0])
    assert (BaseSender(randomness("a")).pairs(first[0]).one == pairs.one).all()


def read(answers: tuple[bytes, bytes], difference: bytes) -> np.ndarray:
    """Where two answers differ by the difference of their announcements, and not by 0: the choices, if scalars are the same."""
    rows = [[answer[start : start + 32] for start in range(0, ANSWER_BYTES, 32)] for answer in answers]
    return np.array([crypto_core_ed25519_sub(one, other) == difference for one, other in zip(*rows, strict=True)])


def test_answers_to_two_announcements_show_no_choice() -> None:
    announced = [BaseSender(randomness(name)).announcement for name in ("a", "restarted with another seed")]
    difference = crypto_core_ed25519_sub(announced[0], announced[1])
    receiver = BaseReceiver(randomness("b"))
    answers = [receiver.answer(each) for each in announced]
    assert not read((answers[0][0], answers[1][0]), difference).any()
    assert 30 < (answers[0][1].choices ^ answers[1][1].choices).sum() < 98  # independent choices, as above

    # Control: with the first answer's scalars and choices for both, whoever sees the two answers reads all choices.
    choices, moved = answers[0][1].choices, []
    for number, choice in enumerate(choices):
        row = answers[0][0][32 * number : 32 * number + 32]
        plain = crypto_core_ed25519_sub(row, announced[0]) if choice else row
        moved.append(crypto_core_ed25519_add(plain, announced[1]) if choice else plain)
    assert (read((answers[0][0], b"".join(moved)), difference) == choices.astype(bool)).all()


def test_answers_are_as_uniform_for_one_choice_as_for_the_other() -> None:
    """Bits of a y coordinate, per choice; the sign of x is among them."""
    announcement = BaseSender(randomness("a")).announcement
    answers = [BaseReceiver(randomness(f"b{number}")).answer(announcement) for number in range(8)]
    rows = np.concatenate([np.frombuffer(answer, np.uint8).reshape(-1, 32) for answer, _ in answers])
    choices = np.concatenate([chosen.choices for _, chosen in answers])
    for choice in (0, 1):
        seen = np.unpackbits(rows[choices == choice], axis=1)
        assert (np.abs(seen.mean(axis=0) - 0.5) < bound(len(seen), 512)).all()


@pytest.mark.parametrize("size", [0, 31, 33, ANSWER_BYTES])
def test_announcements_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        BaseReceiver(randomness("b")).answer(bytes(size))


@pytest.mark.parametrize("size", [0, 32, ANSWER_BYTES - 1, ANSWER_BYTES + 32])
def test_answers_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="4096 bytes"):
        BaseSender(randomness("a")).pairs(bytes(size))


def off_curve() -> str:
    """The first y above 2 that no point has."""
    for y in range(3, 50):
        square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
        if pow(square, (P - 1) // 2, P) == P - 1:
            return y.to_bytes(32, "little").hex()
    raise AssertionError


def mixed() -> list[str]:
    """A point of order ℓ plus each other one of order 2, 4 or 8."""
    point = decoded(BaseSender(randomness("m")).announcement)
    return [encoded(add(point, decoded(bytes.fromhex(other)))).hex() for other in TORSION[1:]]


def test_the_test_s_points_have_the_orders_it_says() -> None:
    points = [decoded(bytes.fromhex(row)) for row in TORSION]
    orders = [next(n for n in (1, 2, 4, 8) if times(n, point) == (0, 1)) for point in points]
    assert sorted(orders) == [1, 2, 4, 4, 8, 8, 8, 8]
    assert len(set(points)) == 8
    for row in mixed():
        assert times(ORDER, decoded(bytes.fromhex(row))) != (0, 1) == times(8 * ORDER, decoded(bytes.fromhex(row)))


@pytest.mark.parametrize("row", [*TORSION, *NOT_CANONICAL, off_curve(), *mixed()])
def test_points_outside_the_group_are_refused(row: str) -> None:
    offering = BaseSender(randomness("a"))
    with pytest.raises(ValueError, match="not a point of the group"):
        BaseReceiver(randomness("b")).answer(bytes.fromhex(row))
    good, _ = BaseReceiver(randomness("b")).answer(offering.announcement)
    for number in (0, 127):
        bad = good[: 32 * number] + bytes.fromhex(row) + good[32 * number + 32 :]
        with pytest.raises(ValueError, match=f"point {number} of the answer"):
            offering.pairs(bad)


def test_the_announcement_itself_is_no_answer() -> None:
    """Its second key would be a hash of public points."""
    offering = BaseSender(randomness("a"))
    good, _ = BaseReceiver(randomness("b")).answer(offering.announcement)
    with pytest.raises(ValueError, match="point 5 of the answer"):
        offering.pairs(good[:160] + offering.announcement + good[192:])


def test_keys_are_not_shown_and_not_serialised() -> None:
    pairs, chosen = seeds()
    for secret in (pairs, chosen, BaseSender(randomness("a")), BaseReceiver(randomness("b"))):
        assert repr(secret).endswith("(secret)")
        with pytest.raises(TypeError, match="secret"):
            pickle.dumps(secret)


def test_seeds_of_another_shape_are_refused() -> None:
    good = np.zeros((TRANSFERS, 32), np.uint8)
    for bad in (good[:-1], good[:, :-1], good.astype(np.uint64)):
        with pytest.raises(ValueError, match="seeds are"):
            SeedPairs(good, bad)
        with pytest.raises(ValueError, match="seeds are"):
            ChosenSeeds(np.zeros(TRANSFERS, np.uint8), bad)
    for choices in (np.full(TRANSFERS, 2, np.uint8), np.zeros(127, np.uint8), np.zeros(TRANSFERS, np.int64)):
        with pytest.raises(ValueError, match="choices are"):
            ChosenSeeds(choices, good)
