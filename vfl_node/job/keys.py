"""What records are compared by where no exact identifier is shared: ``align.keys``, ``encoding`` and ``noise``.

All of it is known to all parties of the job. Which columns are behind a key is each owner's own business (``data.keys`` of the
settings).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vfl_node.configuration import Frozen


class NumberKey(Frozen):
    """A number within public bounds, such as a latitude in degrees."""

    kind: Literal["number"]
    low: float = Field(allow_inf_nan=False, description="smallest value that any record may have")
    high: float = Field(allow_inf_nan=False, description="largest value that any record may have")
    reach: float = Field(gt=0, allow_inf_nan=False, description="numbers twice as far apart or more are equally far")

    @model_validator(mode="after")
    def _ordered(self) -> NumberKey:
        if self.low >= self.high:
            raise ValueError("low must be below high: they are public bounds of the values")
        if self.reach > self.high - self.low:
            raise ValueError("reach is above high - low: every two values would be alike")
        return self


class DateKey(Frozen):
    """A day within public bounds."""

    kind: Literal["date"]
    low: date = Field(description="first day that any record may have")
    high: date = Field(description="last day that any record may have")
    reach: float = Field(gt=0, allow_inf_nan=False, description="days; twice as many or more are equally far")

    @model_validator(mode="after")
    def _ordered(self) -> DateKey:
        if self.low >= self.high:
            raise ValueError("low must be before high: they are public bounds of the days")
        if self.reach > (self.high - self.low).days:
            raise ValueError("reach is more days than lie between low and high: every two days would be alike")
        return self


class PlaceKey(Frozen):
    """A point on earth: latitude and longitude in degrees, within a public rectangle that does not cross the date line."""

    kind: Literal["place"]
    south: float = Field(ge=-90, le=90)
    north: float = Field(ge=-90, le=90)
    west: float = Field(ge=-180, le=180)
    east: float = Field(ge=-180, le=180)
    reach: float = Field(gt=0, allow_inf_nan=False, description="metres, along each axis; twice as far or more is equally far")

    @model_validator(mode="after")
    def _ordered(self) -> PlaceKey:
        if self.south >= self.north or self.west >= self.east:
            raise ValueError("south must be below north, and west below east: they are public bounds of the places")
        return self


class TextKey(Frozen):
    """A short text such as a name or an address, compared by the groups of ``q`` letters in it."""

    kind: Literal["text"]
    length: int = Field(default=20, ge=2, le=256, description="letters of a usual text, by which the filter's size is chosen")
    q: int = Field(default=2, ge=1, le=4, description="letters of a group")
    hashes: int = Field(default=10, ge=1, le=64, description="bits that a group sets")
    edits: int = Field(default=1, ge=1, le=16, description="letters by which two texts of the same record usually differ")


Key = Annotated[NumberKey | DateKey | PlaceKey | TextKey, Field(discriminator="kind")]

Keys = Mapping[str, NumberKey | DateKey | PlaceKey | TextKey]
"""Name → what records are compared by."""

NO_KEYS: Keys = {}


class Encoding(Frozen):
    """How exact filters are: with probability 1 - delta one has at least (1 - epsilon) times the ones that are expected."""

    epsilon: float = Field(default=0.1, gt=0, lt=1)
    delta: float = Field(default=0.05, gt=0, lt=1)


class Noise(Frozen):
    """Normal noise on standardised similarities: its deviation, or what the greedy attack may guess right. One is given."""

    sigma: float | None = Field(default=None, ge=0, le=1e6, allow_inf_nan=False, description="standard deviation; 0: none")
    tau: float | None = Field(default=None, gt=0, lt=1, description="share of filters that the greedy attack guesses right")

    @model_validator(mode="after")
    def _one(self) -> Noise:
        if (self.sigma is None) == (self.tau is None):
            raise ValueError("give either sigma (standard deviation) or tau (share that the greedy attack guesses)")
        return self
