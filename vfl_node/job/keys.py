"""What records are compared by where no exact identifier is shared: ``align.keys``, ``encoding`` and ``noise``.

All of it is known to all parties of the job. Which columns are behind a key is each owner's own business (``data.keys`` of the
settings).

Each key becomes some bits of a record's filter (:mod:`vfl_node.crypto.filters`). How many follows from the key and from
``encoding``:

* A number x has the bits 1[|x − r| ≤ t], where t is ``reach`` and the pivots r are uniform on [low − t, high + t]. So each is 1
  with probability p1 = 2t / (high − low + 2t), and N = ⌈2·ln(1/δ) / (ε²·p1)⌉ bits have fewer than (1 − ε)·N·p1 ones with
  probability below δ (Chernoff). A date is a number of days, and a place two numbers of metres.
* A text has ⌈2·θ·k·n / ((c + 1)·δ)⌉ bits, c = ⌈4·θ·k·0.05⌉, where θ is ``edits``, k is ``hashes`` and n = length + q − 1 is the
  number of groups in a usual text. With ``fixed_ones`` M·(1 − (1 − 1/M)^(n·k)) of each filter's M bits are ones.

Source: Karapiperis, Gkoulalas-Divanis and Verykios, "FEDERAL: A framework for distance-aware privacy-preserving record
linkage", 2018, as FedSim uses it (Wu, Li and He 2021, arXiv 2106.06312, appendix B). There the pivots lie on [low, high], so
that a value at a border has only half as many ones as others and its filter tells that it is extreme.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from vfl_node.configuration.models import Frozen

MOST_BYTES = 1 << 16
"""The largest filter of a record, of all its keys."""

EARTH_M = 6_371_008.8
"""Mean radius of the earth, metres."""


class Encoding(Frozen):
    """How exact filters are: with probability 1 - delta one has at least (1 - epsilon) times the ones that are expected."""

    epsilon: float = Field(default=0.1, ge=0.001, lt=1)
    delta: float = Field(default=0.05, ge=1e-9, lt=1)

    def pivots(self, span: float, reach: float) -> int:
        """How many pivots a number gets whose bounds are ``span`` apart, a multiple of 8."""
        ones = -2 * math.log(self.delta) / self.epsilon**2
        return _whole_bytes(ones * (span + 2 * reach) / (2 * reach))


class NumberKey(Frozen):
    """A number within public bounds, such as a latitude in degrees."""

    kind: Literal["number"]
    low: float = Field(allow_inf_nan=False, description="smallest value that any record may have")
    high: float = Field(allow_inf_nan=False, description="largest value that any record may have")
    reach: float = Field(gt=0, allow_inf_nan=False, description="numbers twice as far apart or more are equally far")

    @model_validator(mode="after")
    def _check_order(self) -> NumberKey:
        if self.low >= self.high:
            raise ValueError("low must be below high: they are public bounds of the values")
        if not math.isfinite(self.span + 2 * self.reach):
            raise ValueError("low and high are too far apart for numbers of 64 bits")
        if self.reach > self.high - self.low:
            raise ValueError("reach is above high - low: every two values would be alike")
        return self

    @property
    def span(self) -> float:
        """The distance of the bounds."""
        return self.high - self.low

    def bits(self, encoding: Encoding) -> int:
        """Bits of a filter that are this key's."""
        return encoding.pivots(self.span, self.reach)


class DateKey(Frozen):
    """A day within public bounds."""

    kind: Literal["date"]
    low: date = Field(description="first day that any record may have")
    high: date = Field(description="last day that any record may have")
    reach: float = Field(gt=0, allow_inf_nan=False, description="days; twice as many or more are equally far")

    @model_validator(mode="after")
    def _check_order(self) -> DateKey:
        if self.low >= self.high:
            raise ValueError("low must be before high: they are public bounds of the days")
        if self.reach > self.span:
            raise ValueError("reach is more days than lie between low and high: every two days would be alike")
        return self

    @property
    def span(self) -> int:
        """Days from the first to the last."""
        return (self.high - self.low).days

    def bits(self, encoding: Encoding) -> int:
        """Bits of a filter that are this key's."""
        return encoding.pivots(self.span, self.reach)


class PlaceKey(Frozen):
    """A point on earth: latitude and longitude in degrees, within a public rectangle that does not cross the date line."""

    kind: Literal["place"]
    south: float = Field(ge=-90, le=90)
    north: float = Field(ge=-90, le=90)
    west: float = Field(ge=-180, le=180)
    east: float = Field(ge=-180, le=180)
    reach: float = Field(gt=0, allow_inf_nan=False, description="metres, along each axis; twice as far or more is equally far")

    @model_validator(mode="after")
    def _check_order(self) -> PlaceKey:
        if self.south >= self.north or self.west >= self.east:
            raise ValueError("south must be below north, and west below east: they are public bounds of the places")
        if self.reach > max(self.spans):
            raise ValueError("reach is more metres than the rectangle measures: every two places would be alike")
        return self

    @property
    def metres(self) -> tuple[float, float]:
        """Metres a degree of latitude and one of longitude, as on the rectangle's middle parallel (equirectangular map).

        The cosine is rounded, as its last bits are not the same on every machine.
        """
        degree = EARTH_M * math.pi / 180
        return degree, degree * round(math.cos(math.radians((self.south + self.north) / 2)), 12)

    @property
    def spans(self) -> tuple[float, float]:
        """Metres from south to north, and from west to east."""
        latitude, longitude = self.metres
        return (self.north - self.south) * latitude, (self.east - self.west) * longitude

    def bits(self, encoding: Encoding) -> int:
        """Bits of a filter that are this key's: those of both coordinates."""
        return sum(encoding.pivots(span, self.reach) for span in self.spans)


class TextKey(Frozen):
    """A short text such as a name or an address, compared by the groups of ``q`` letters in it."""

    kind: Literal["text"]
    length: int = Field(default=20, ge=2, le=256, description="letters of a usual text, by which the filter's size is chosen")
    q: int = Field(default=2, ge=1, le=4, description="letters of a group")
    hashes: int = Field(default=10, ge=1, le=64, description="bits that a group sets")
    edits: int = Field(default=1, ge=1, le=16, description="letters by which two texts of the same record usually differ")
    fixed_ones: bool = Field(
        default=False,
        description="whether the filters of all texts have as many ones, so that the coordinator does not read lengths from "
        "their number",
    )

    @model_serializer(mode="wrap")
    def _serialise(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``fixed_ones`` where it is off, so that linkages from before there was this key are on the same terms."""
        fields = written(self)
        if not self.fixed_ones:
            fields.pop("fixed_ones", None)
        return fields

    @property
    def _groups(self) -> int:
        """The groups of a usual text: q - 1 spaces stand before it and behind it."""
        return self.length + self.q - 1

    def ones(self, encoding: Encoding) -> int | None:
        """How many ones the filter of each text has; None: as many as its groups set."""
        if not self.fixed_ones:
            return None
        bits = self.bits(encoding)
        return round(bits * (1 - (1 - 1 / bits) ** (self._groups * self.hashes)))

    def bits(self, encoding: Encoding) -> int:
        """Bits of a filter that are this key's."""
        collisions = -(-self.edits * self.hashes // 5)  # ⌈4·θ·k·0.05⌉
        return _whole_bytes(2 * self.edits * self.hashes * self._groups / ((collisions + 1) * encoding.delta))


Key = Annotated[NumberKey | DateKey | PlaceKey | TextKey, Field(discriminator="kind")]

Keys = Mapping[str, NumberKey | DateKey | PlaceKey | TextKey]
"""Name → what records are compared by."""

NO_KEYS: Keys = {}


def filter_bits(keys: Mapping[str, Key], encoding: Encoding) -> int:
    """Bits of a record's filter, of all keys together: a multiple of 8."""
    return sum(key.bits(encoding) for key in keys.values())


def check_filters(keys: Mapping[str, Key], encoding: Encoding) -> None:
    """Refuse filters that are too large.

    Raises:
        ValueError: they have more than :data:`MOST_BYTES`; it names the largest key.
    """
    size = filter_bits(keys, encoding) // 8
    if size > MOST_BYTES:
        bits = {name: key.bits(encoding) for name, key in keys.items()}
        largest = max(bits, key=bits.__getitem__)
        raise ValueError(
            f"the filter of a record would have {size:,} bytes, {bits[largest] // 8:,} of them for {largest!r}, and "
            f"{MOST_BYTES:,} are the most: give a larger reach, closer bounds, or a larger align.encoding.epsilon or delta"
        )


def _whole_bytes(bits: float) -> int:
    """Rounded up to a multiple of 8; what is only an error of the last digit does not count."""
    return 8 * math.ceil(round(min(bits, 1e15) / 8, 6))


class SimilarityNoise(Frozen):
    """Normal noise on standardised similarities: its deviation, or what the greedy attack may guess right. One is given."""

    sigma: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False, description="standard deviation; 0: none")
    tau: float | None = Field(default=None, gt=0, lt=1, description="share of filters that the greedy attack guesses right")

    @model_validator(mode="after")
    def _check_one_given(self) -> SimilarityNoise:
        if (self.sigma is None) == (self.tau is None):
            raise ValueError("give either sigma (standard deviation) or tau (share that the greedy attack guesses)")
        return self
