from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.filters.values import KeyValues
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError
from vfl_node.job.keys import DateKey, Encoding, Key, NumberKey, PlaceKey, TextKey, filter_bits

SEED = bytes(range(32))
KEYS: dict[str, Key] = {
    "price": NumberKey(kind="number", low=0, high=100, reach=10),
    "name": TextKey(kind="text", length=10),
    "born": DateKey(kind="date", low="1950-01-01", high="2010-01-01", reach=400),
    "home": PlaceKey(kind="place", south=1.2, north=1.5, west=103.6, east=104.1, reach=8000),
}
ROWS = 157


@pytest.fixture(scope="module")
def columns() -> dict[str, KeyValues]:
    even, mixed = np.linspace(0, 1, ROWS), np.arange(ROWS) * 61 % ROWS / ROWS
    return {
        "price": 100 * even,
        "name": [f"Name {number} of many" for number in range(ROWS)],
        "born": 1.8e9 * mixed - 6e8,
        "home": np.stack([1.2 + 0.3 * mixed, 103.6 + 0.5 * even], axis=1),
    }


def encoded(
    columns: dict[str, KeyValues], *, keys: dict[str, Key] = KEYS, seed: bytes = SEED, start: int = 0, rows: int | None = None
) -> NDArray[np.uint8]:
    return np.concatenate(list(encode(keys, Encoding(), columns, Randomness(seed), start=start, rows=rows)))


@pytest.fixture(scope="module")
def whole(columns: dict[str, KeyValues]) -> NDArray[np.uint8]:
    return encoded(columns)


def test_filters_are_fixed_for_ever(columns: dict[str, KeyValues], whole: NDArray[np.uint8]) -> None:
    """A party that begins again, or has other library versions or another processor, must make these bytes."""
    assert whole.shape == (ROWS, filter_bits(KEYS, Encoding()) // 8)
    assert hashlib.sha256(whole.tobytes()).hexdigest()[:16] == "bfb0fdb2fa5525b9"


@pytest.mark.parametrize("rows", [1, 10, 156, 1000])
@pytest.mark.parametrize("start", [0, 3, 156])
def test_blocks_and_the_start_change_nothing(
    columns: dict[str, KeyValues], whole: NDArray[np.uint8], rows: int, start: int
) -> None:
    blocks = list(encode(KEYS, Encoding(), columns, Randomness(SEED), start=start, rows=rows))
    assert max(len(block) for block in blocks) <= rows
    assert np.array_equal(np.concatenate(blocks), whole[start:])
    assert list(encode(KEYS, Encoding(), columns, Randomness(SEED), start=ROWS)) == []


def test_nothing_is_computed_ahead_of_its_block(columns: dict[str, KeyValues], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.crypto.filters.encoding.BLOCK_BYTES", 20_000)
    blocks = encode(KEYS, Encoding(), columns, Randomness(SEED))
    assert next(blocks).nbytes <= 20_000
    assert len(list(blocks)) > 10


def test_memory_does_not_grow_with_the_number_of_records() -> None:
    """Filters of 62 KiB, 76 MB in all."""
    key = NumberKey(kind="number", low=0, high=1, reach=0.005)
    column = np.linspace(0, 1, 1200)
    tracemalloc.start()
    try:
        made = sum(block.nbytes for block in encode({"u": key}, Encoding(epsilon=0.0345), {"u": column}, Randomness(SEED)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made > 75e6
    assert peak < 45e6


def test_the_order_of_keys_changes_nothing(columns: dict[str, KeyValues], whole: NDArray[np.uint8]) -> None:
    assert np.array_equal(encoded(columns, keys=dict(reversed(KEYS.items()))), whole)


def test_what_was_drawn_from_the_seed_changes_nothing(columns: dict[str, KeyValues], whole: NDArray[np.uint8]) -> None:
    used = Randomness(SEED)
    used.bytes(1000)
    assert np.array_equal(np.concatenate(list(encode(KEYS, Encoding(), columns, used))), whole)
    assert used.bytes(8) == Randomness(SEED).bytes(1008)[1000:]


def test_equal_keys_have_equal_filters_and_others_do_not(columns: dict[str, KeyValues], whole: NDArray[np.uint8]) -> None:
    """Whatever record they are of, and whichever party has it."""
    order = np.random.default_rng(1).permutation(ROWS)
    moved = {name: [of[at] for at in order] if isinstance(of, list) else np.asarray(of)[order] for name, of in columns.items()}
    assert np.array_equal(encoded(moved), whole[order])
    assert len(np.unique(whole, axis=0)) == ROWS


def test_another_seed_makes_other_filters(columns: dict[str, KeyValues], whole: NDArray[np.uint8]) -> None:
    """With as many common ones as by chance."""
    other = encoded(columns, seed=b"o" * 32)
    assert not (other == whole).all(axis=1).any()
    for bits in (slice(0, 40), slice(-100, None)):
        one, two = (np.unpackbits(of[:, bits], axis=1).astype(float) for of in (whole, other))
        assert (one * two).mean() == pytest.approx(one.mean() * two.mean(), rel=0.5)


def test_keys_of_the_same_kind_have_pivots_of_their_own() -> None:
    key, column = KEYS["price"], np.linspace(0, 100, 50)
    filters = encoded({"one": column, "two": column}, keys={"one": key, "two": key})
    one, two = np.split(filters, 2, axis=1)
    assert not np.array_equal(one, two)
    home = PlaceKey(kind="place", south=-0.1, north=0.1, west=-0.1, east=0.1, reach=2000)
    diagonal = np.linspace(-0.1, 0.1, 50)[:, None].repeat(2, axis=1)
    north, east = np.split(encoded({"p": diagonal}, keys={"p": home}), 2, axis=1)
    assert not np.array_equal(north, east)


WRONG = [
    ("price", np.nan, "E_KEY_MISSING", "2 of 157 records have no 'price'"),
    ("price", 100.0001, "E_KEY_BOUNDS", "2 of 157 records have a 'price' outside the bounds of the job"),
    ("price", np.inf, "E_KEY_BOUNDS", "2 of 157 records have a 'price' outside"),
    ("born", np.nan, "E_KEY_MISSING", "2 of 157 records have no 'born'"),
    ("born", -631_152_001.0, "E_KEY_BOUNDS", "2 of 157 records have a 'born' outside"),  # the last second of 1949
    ("home", [1.3, np.nan], "E_KEY_MISSING", "2 of 157 records have no 'home'"),
    ("home", [1.1999, 104.0], "E_KEY_BOUNDS", "2 of 157 records have a 'home' outside"),
    ("home", [1.3, 104.2], "E_KEY_BOUNDS", "2 of 157 records have a 'home' outside"),
    ("name", None, "E_KEY_MISSING", "2 of 157 records have no 'name'"),
    ("name", " \u0301x ", "E_KEY_SHORT", "2 of 157 records have a 'name' with fewer letters than a group has (q = 2)"),
]


@pytest.mark.parametrize(("name", "value", "code", "message"), WRONG)
def test_what_cannot_be_encoded_is_counted_and_not_shown(
    columns: dict[str, KeyValues], name: str, value: object, code: str, message: str
) -> None:
    column = list(columns[name])
    column[5] = column[150] = value  # type: ignore[call-overload]
    wrong = column if name == "name" else np.array(column)
    with pytest.raises(DataError) as refused:
        encode(KEYS, Encoding(), columns | {name: wrong}, Randomness(SEED))  # at the call: before anything is sent
    assert refused.value.code == code
    assert refused.value.message.startswith(message)
    assert refused.value.hint
    assert (refused.value.peer_code, "price" in refused.value.for_peer, "157" in refused.value.for_peer) == (
        "E_DATA",
        False,
        False,
    )


def test_the_bounds_themselves_are_within() -> None:
    edges = {
        "price": np.array([0.0, 100.0]),
        "born": np.array([-631_152_000.0, 1_262_390_399.0]),  # 1950-01-01, and the last second of 2010-01-01
        "home": np.array([[1.2, 103.6], [1.5, 104.1]]),
        "name": ["ab", "x y"],
    }
    assert len(encoded(edges)) == 2


def test_columns_must_be_those_of_the_keys(columns: dict[str, KeyValues]) -> None:
    for wrong, text in (
        ({name: columns[name] for name in ("price", "name")}, "needs its column"),
        (columns | {"more": np.zeros(ROWS)}, "no other"),
        (columns | {"price": np.zeros(ROWS - 1)}, "differ in length"),
        (columns | {"price": np.zeros((ROWS, 2))}, "two coordinates"),
        (columns | {"home": np.zeros(ROWS)}, "two coordinates"),
    ):
        with pytest.raises(ValueError, match=text):
            encode(KEYS, Encoding(), wrong, Randomness(SEED))
