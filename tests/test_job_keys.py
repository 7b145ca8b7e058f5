"""Keys of a job: how many bits of a filter each has, and which filters are too large."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from vfl_node.alignment.linkage.terms import digest_of
from vfl_node.job.alignment import Align
from vfl_node.job.keys import EARTH_M, MOST_BYTES, Encoding, Key, check_filters, filter_bits

HOUSES = (
    {"kind": "number", "low": 1.2, "high": 1.5, "reach": 0.05},
    {"kind": "number", "low": 103.6, "high": 104.1, "reach": 0.05},
)


def key(**of: Any) -> Key:
    return TypeAdapter(Key).validate_python(of)


def test_numbers_of_degrees() -> None:
    """N = 2·ln(20) / (0.1²·p1), p1 = 0.1/0.4 and 0.1/0.6: 2,396.6 and 3,594.9."""
    latitude, longitude = (key(**of) for of in HOUSES)
    assert (latitude.bits(Encoding()), longitude.bits(Encoding())) == (2400, 3600)
    assert filter_bits({"lat": latitude, "lon": longitude}, Encoding()) == 6000
    unit = key(kind="number", low=0, high=1, reach=0.05)
    assert unit.bits(Encoding(epsilon=0.05, delta=0.05)) == 26_368  # 26,362.4


def test_a_number_has_as_many_ones_as_the_bound_needs() -> None:
    for reach in (0.01, 0.2, 1):
        for encoding in (Encoding(), Encoding(epsilon=0.03, delta=0.03)):
            bits = key(kind="number", low=0, high=1, reach=reach).bits(encoding)
            ones = bits * 2 * reach / (1 + 2 * reach)
            most = math.exp(-(encoding.epsilon**2) * ones / 2)  # Chernoff's bound of Pr[ω ≤ (1 − ε)·E ω]
            assert bits % 8 == 0
            assert 0.95 * encoding.delta < most <= encoding.delta


def test_days_are_numbers() -> None:
    day = key(kind="date", low="2000-01-01", high="2020-01-01", reach=30)
    assert day.bits(Encoding()) == key(kind="number", low=0, high=7305, reach=30).bits(Encoding())


def test_a_place_is_two_numbers_of_metres() -> None:
    place = key(kind="place", south=59, north=61, west=10, east=12, reach=5000)
    degree = math.pi * EARTH_M / 180
    sides = (2 * degree, 2 * degree / 2)  # the cosine of 60 degrees is a half
    assert place.spans == pytest.approx(sides)
    assert place.bits(Encoding()) == sum(key(kind="number", low=0, high=side, reach=5000).bits(Encoding()) for side in sides)


def test_texts() -> None:
    """M = 2·θ·k·n / ((c + 1)·δ), c = ⌈4·θ·k·0.05⌉."""
    assert key(kind="text").bits(Encoding()) == 2800  # 2·1·10·21 / (3·0.05), exactly
    assert key(kind="text").bits(Encoding(delta=0.1)) == 1400
    assert key(kind="text", length=30, q=3, hashes=7, edits=2).bits(Encoding()) == 4480  # 896 / (4·0.05)
    assert key(kind="text", length=10, hashes=11).bits(Encoding()) == 1216  # 242 / (4·0.05) = 1,210


def test_jobs_without_fixed_ones_are_what_they_were_before_there_was_this_key() -> None:
    """Noise, and what is counted, hang on the terms."""
    text = {"kind": "text", "length": 20, "q": 2, "hashes": 10, "edits": 1}
    assert key(**text).model_dump(mode="json") == key(**text, fixed_ones=False).model_dump(mode="json") == text
    fixed = key(**text, fixed_ones=True)
    assert fixed.model_dump(mode="json") == text | {"fixed_ones": True}
    assert fixed.bits(Encoding()) == key(**text).bits(Encoding())
    before, after = (align({"name": of.model_dump(mode="json")}) for of in (key(**text), fixed))
    assert digest_of(before, bytes(32)).hex()[:16] == "18d8184bf844c2a4"
    assert digest_of(after, bytes(32)) != digest_of(before, bytes(32))


def align(keys: dict[str, Any], **encoding: float) -> Align:
    return Align(protocol="linkage", keys=keys, encoding=encoding, noise={"sigma": 0.4})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("useless", "text"),
    [
        ({"expect": {"at_least": 2}}, r"align\.expect counts shared records"),
        ({"padding": 2}, r"align\.padding: linkage sends a filter for each record"),
        ({"group": "modp2048"}, r"align\.group: linkage compares filters"),
    ],
)
def test_what_does_nothing_in_a_linkage_is_refused(useless: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Align(protocol="linkage", keys={"u": HOUSES[0]}, noise={"sigma": 0}, **useless)  # type: ignore[arg-type]
    defaults = {"expect": {"at_least": 1}, "padding": 0, "group": "curve25519"}
    assert Align(protocol="linkage", keys={"u": HOUSES[0]}, noise={"sigma": 0}, **defaults).keys  # type: ignore[arg-type]


def test_the_filters_of_the_paper_are_too_large() -> None:
    """Its ε = δ = 0.005 and t = 0.01 degrees: more than a megabyte a record."""
    near = [{**of, "reach": 0.01} for of in HOUSES]
    keys = dict(zip(("lat", "lon"), near, strict=True))
    assert 1e6 < filter_bits({name: key(**of) for name, of in keys.items()}, Encoding(epsilon=0.005, delta=0.005)) / 8 < 3e6
    with pytest.raises(ValidationError, match=r"would have [\d,]+ bytes, [\d,]+ of them for 'lon', and 65,536 are the most"):
        align(keys, epsilon=0.005, delta=0.005)
    assert align(keys).keys is not None


def test_the_largest_filter_is_the_limit() -> None:
    text = {"kind": "text", "length": 256, "hashes": 64, "edits": 1}
    large, encoding = key(**text), Encoding(delta=0.005)
    many = MOST_BYTES * 8 // large.bits(encoding)
    check_filters({str(number): large for number in range(many)}, encoding)
    with pytest.raises(ValueError, match="give a larger reach"):
        check_filters({str(number): large for number in range(many + 1)}, encoding)


def test_a_huge_filter_is_refused_like_a_large_one() -> None:
    with pytest.raises(ValidationError, match="65,536 are the most"):
        align({"x": {"kind": "number", "low": 0, "high": 1e308, "reach": 5e-324}})


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"kind": "number", "low": 1, "high": 1, "reach": 0.1}, "low must be below high"),
        ({"kind": "number", "low": 0, "high": 1, "reach": 1.1}, "every two values would be alike"),
        ({"kind": "number", "low": -1.7e308, "high": 1.7e308, "reach": 1}, "too far apart"),
        ({"kind": "number", "low": 0, "high": 1.7e308, "reach": 1e308}, "too far apart"),
        ({"kind": "date", "low": "2020-01-02", "high": "2020-01-01", "reach": 1}, "low must be before high"),
        ({"kind": "date", "low": "2020-01-01", "high": "2020-01-09", "reach": 9}, "every two days would be alike"),
        ({"kind": "place", "south": 1, "north": 1, "west": 0, "east": 1, "reach": 1}, "south must be below north"),
        ({"kind": "place", "south": 0, "north": 1, "west": 0, "east": 1, "reach": 120_000}, "every two places would be alike"),
        ({"kind": "text", "q": 5}, "less than or equal to 4"),
        ({"kind": "colour"}, "colour"),
    ],
)
def test_what_is_no_key(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        align({"x": wrong})
