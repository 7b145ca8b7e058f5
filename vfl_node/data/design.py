"""A table's columns as the design matrix of a linear model: whole numbers, and a step for each column.

Why integers: under encryption a row enters the gradient as the exponent of a ciphertext. The
model is trained on exactly ``integers * steps``. So a plaintext regression on
:attr:`Design.values` has the same input, to the last bit; nothing is rounded later.

Why over the party's whole table: to use means and peaks of the shared rows, a party would have to know
which rows are shared, and a party that holds an obfuscated set must not know this. So the design
depends only on the party's own table, and is the same for every intersection.

=============  ===================================================================================
scaling        a numeric column x becomes
=============  ===================================================================================
``standard``   (x − mean) / sd, cut off at ±10, in steps of 2^−16
``unit``       x / peak, the largest absolute value of the table's numeric columns together; not
               centred, so that zeros stay zeros. Steps of 2^−16, or of 1/peak if the columns hold
               integers up to 2^20: then the integers are the table's own
``quantile``   the normal score of its rank, in steps of 2^−16 (:mod:`vfl_node.data.transforms`, also for ``log``)
``log``        sign(x)·log(1 + |x| / unit), then as ``standard``
``auto``       ``standard``, ``quantile`` or ``log``, as the column's values suggest
``none``       x, in steps of 2^−16; at most ±16
=============  ===================================================================================

A date becomes a column of days, and its month, weekday and hour become categories where they vary
(:mod:`vfl_node.data.dates`). Days are standardised where the job says ``unit`` or ``none``.

A missing number becomes 0 and is marked in a separate column. A category becomes one column of 0 and 1 for each level, and one
for "missing" if some rows have no level; the most frequent one has no column. With a column for every level, the columns of two
categories would have the same sum, and a rare level that is left out elsewhere would follow from the others. A level that was
not in the table is 0 in all columns. Columns without information are left out: columns of zeros, and under ``standard``
constants, whose effect the intercept of the party with the labels has as well. Of weights of evidence none is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen
from vfl_node.data import transforms
from vfl_node.data.dates import Part, parts_of
from vfl_node.data.encoded import column_for, kinds_of
from vfl_node.data.evidence import EvidenceColumns, weigh
from vfl_node.data.levels import Levels
from vfl_node.data.stored import StoredEncoder, notations_of, rows_read
from vfl_node.data.tables import CategoricalColumn, Column, ListColumn, NumericColumn, Table
from vfl_node.errors import DataError
from vfl_node.job.names import LinearScaling, ScalingMethod
from vfl_node.settings.declared import Kind

MOST_BITS = 20
MOST = 1 << MOST_BITS
"""No integer of a design is larger. It is public, because the proof against overflow under encryption uses it."""

RESOLUTION = 1 << 16
"""Steps per unit, if the table's own integers are not kept."""

MOST_AS_IT_IS = MOST // RESOLUTION
"""The largest number with ``scaling: none``."""

CENTRED = int(transforms.CLIP) * RESOLUTION
"""No integer of a column that is centred, such as a standardised one, is larger."""


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """The design matrix x = integers · steps of n rows; a party may have no columns at all (d = 0).

    Attributes:
        integers: int64[n, d], within ±:data:`MOST`.
        steps: float64[d], positive.
        names: of the d columns; names of category columns contain levels, so they stay with the party.
        shown: the same without levels, which are cells of the table, for reports.
    """

    integers: NDArray[np.int64]
    steps: NDArray[np.float64]
    names: tuple[str, ...]
    shown: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.integers)

    def __repr__(self) -> str:
        return f"Design({len(self)} rows, {len(self.steps)} columns)"

    @property
    def values(self) -> NDArray[np.float64]:
        """The matrix itself, float64[n, d]; computed at each access, 8·n·d bytes."""
        return self.integers * self.steps


class LinearScale(Frozen):
    """How the numbers of one column become integers: (x − centre) / unit, in 1/resolution, cut off at ±most."""

    kind: Literal["numeric"] = "numeric"
    name: str
    centre: float = Field(allow_inf_nan=False)
    unit: float = Field(gt=0, allow_inf_nan=False)
    resolution: int = Field(gt=0, le=MOST)
    most: int = Field(gt=0, le=MOST)
    method: Literal["standard", "unit", "none"] = "standard"
    part: Part | None = None

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Integers int64[n]; missing: 0."""
        with np.errstate(over="ignore"):  # values that overflow are cut off
            scaled = np.rint((values - self.centre) / self.unit * self.resolution)
        return np.where(np.isnan(values), 0.0, np.clip(scaled, -self.most, self.most)).astype(np.int64)


class TransformedNumbers(Frozen):
    """How the numbers of one column become integers by a transform that is no straight line, in steps of 2^−16."""

    kind: Literal["transformed"] = "transformed"
    name: str
    transform: transforms.Transform
    part: Part | None = None

    @property
    def method(self) -> ScalingMethod:
        """How numbers are scaled."""
        return self.transform.method

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Integers int64[n]; missing: 0."""
        scaled = np.rint(self.transform.apply(values) * RESOLUTION)
        return np.clip(scaled, -CENTRED, CENTRED).astype(np.int64)


class MissingCells(Frozen):
    """One more column marks the rows in which a numeric column has no value."""

    kind: Literal["missing"] = "missing"
    name: str
    part: Part | None = None

    @property
    def method(self) -> None:
        """None: there are no numbers."""


class Categories(Levels):
    """How a column of categories becomes columns of 0 and 1: one for each code of ``coded``.

    Attributes:
        coded: codes that have a column; 0 stands for missing.
    """

    coded: tuple[int, ...]

    def match(self, column: CategoricalColumn) -> NDArray[np.int64]:
        """Codes int64[n]; −1 for a level that was not in the table."""
        codes = self.apply(column)
        return np.where((codes == 0) & (column.codes >= 0), -1, codes)


Numbers = LinearScale | TransformedNumbers
Encoding = Numbers | MissingCells | Categories


class LinearEncoder(StoredEncoder):
    """How each column of a table enters a linear model.

    It contains means, peaks and levels of the party's own data. It stays at the party, as part of
    its half of the model.

    Attributes:
        columns: in the order of the design.
        dropped: columns of the table that are not in the design, because they have no information; with ``evidence`` those
            that were not counted.
        evidence: weights that replace the columns of the table before these are read; None: they are read as they are.
    """

    version: ClassVar[int] = 5
    # which had no transforms, notations, columns of rows, weights of evidence
    steps: ClassVar[versions.Steps] = {1: dict, 2: dict, 3: dict, 4: dict}

    columns: tuple[Annotated[Encoding, Field(discriminator="kind")], ...]
    dropped: tuple[str, ...]
    evidence: EvidenceColumns | None = None

    @property
    def width(self) -> int:
        """d, number of columns of the design."""
        return sum(1 for encoding in self.columns for _ in _layout(encoding))

    @property
    def kinds(self) -> dict[str, Kind]:
        """Column → kind, for the columns that are in the design."""
        return self.evidence.kinds if self.evidence else kinds_of(self.columns)

    @classmethod
    def fit(cls, table: Table, scaling: LinearScaling, evidence: EvidenceColumns | None = None) -> LinearEncoder:
        """Learn from all rows of ``table`` (see the module for why).

        Raises:
            DataError: a column has numbers too large for ``scaling: none`` (``E_OVERFLOW``); ``evidence`` reads another one
                (``E_COLUMN``).
        """
        read_of = weigh(table, evidence).columns
        common = _common_unit(read_of)
        columns: list[Encoding] = []
        for name, column in read_of.items():
            for part, read in parts_of(column):
                if isinstance(read, CategoricalColumn):
                    columns += _levels(name, read, part)
                elif not isinstance(read, ListColumn):  # which no linear model reads
                    scaled = _scaling_of(read, scaling, part)
                    columns += _numeric(name, read.values, scaled, common, part, always=evidence is not None)
        encoded = {encoding.name for encoding in columns}
        dropped, used = tuple(name for name in table.columns if name not in encoded), evidence and evidence.choose(encoded)
        notations, rows = notations_of(table), rows_read(table)
        return cls(columns=tuple(columns), dropped=dropped, evidence=used, notations=notations, rows=rows)

    def transform(self, table: Table) -> Design:
        """The design of all rows of ``table``; columns that the encoder does not know are left out.

        Another table than the fitted one may have numbers beyond its range. They are cut off, at ±10
        standard deviations, at the peak or at ±16, and no integer exceeds :data:`MOST`.

        Cost: less than 1 s for 60,000 rows of 392 pixels, including :meth:`fit` (one core of a small
        server), and no memory besides the matrix, 8·n·d bytes.

        Raises:
            DataError: a column is missing or of another kind (``E_COLUMN``).
        """
        table = weigh(table, self.evidence)
        layout = [place for encoding in self.columns for place in _layout(encoding)]
        integers = np.empty((len(table), len(layout)), dtype=np.int64)
        place = 0
        for encoding in self.columns:
            column = column_for(encoding, table)
            if isinstance(encoding, Categories):
                assert isinstance(column, CategoricalColumn)
                codes = encoding.match(column)
                for code in encoding.coded:
                    integers[:, place] = codes == code
                    place += 1
            else:
                assert isinstance(column, NumericColumn)
                integers[:, place] = (
                    np.isnan(column.values) if isinstance(encoding, MissingCells) else encoding.apply(column.values)
                )
                place += 1
        names, shown, steps = zip(*layout, strict=True) if layout else ((), (), ())
        return Design(integers, np.array(steps, dtype=np.float64), names, shown)


def _layout(encoding: Encoding) -> Iterator[tuple[str, str, float]]:
    """Name, name in reports, and step of each column of the design that one encoding makes."""
    name = encoding.name if encoding.part in (None, "days") else f"{encoding.name}.{encoding.part}"
    missing = f"{name} missing"
    if isinstance(encoding, LinearScale):
        yield name, name, 1 / encoding.resolution
    elif isinstance(encoding, TransformedNumbers):
        yield name, name, 1 / RESOLUTION
    elif isinstance(encoding, MissingCells):
        yield missing, missing, 1.0
    else:
        named = [(missing, missing), *((f"{name}={level}", f"{name}: a level") for level in encoding.levels)]
        yield from ((*named[code], 1.0) for code in encoding.coded)


def _scaling_of(column: NumericColumn, scaling: LinearScaling, part: Part | None) -> LinearScaling:
    """The owner's wish for the column, else the job's scaling."""
    if column.scaling:
        return column.scaling
    return "standard" if part and scaling in ("unit", "none") else scaling


def _common_unit(columns: Mapping[str, Column]) -> tuple[float, int]:
    """Largest absolute value of all numeric columns (1 if there is none), and the number of steps in it."""
    peak, whole = 0.0, True
    for column in columns.values():
        if isinstance(column, NumericColumn):
            present = column.values[~np.isnan(column.values)]
            peak = max(peak, float(np.abs(present).max(initial=0.0)))
            whole = whole and bool((present == np.rint(present)).all())
    peak = peak or 1.0
    return peak, int(peak) if whole and peak <= MOST else RESOLUTION


def _numeric(
    name: str,
    values: NDArray[np.float64],
    scaling: LinearScaling,
    common: tuple[float, int],
    part: Part | None,
    *,
    always: bool,
) -> Iterator[Numbers | MissingCells]:
    missing = np.isnan(values)
    centred = scaling not in ("unit", "none")
    scale = _scale(name, values[~missing], scaling, common)
    if scale is None and always:  # a constant: zeros
        scale = LinearScale(name=name, centre=transforms.moments(values)[0], unit=1.0, resolution=RESOLUTION, most=CENTRED)
    if scale is not None and (always or scale.apply(values).any()):
        yield scale.model_copy(update={"part": part})
    if missing.any() and not (centred and missing.all()):
        yield MissingCells(name=name, part=part)


def _scale(name: str, present: NDArray[np.float64], scaling: LinearScaling, common: tuple[float, int]) -> Numbers | None:
    if scaling == "auto":
        scaling = transforms.choose_scaling(present)
    if scaling == "standard":
        return _standard(name, present)
    if scaling == "unit":
        peak, resolution = common
        return LinearScale(name=name, centre=0.0, unit=peak, resolution=resolution, most=resolution, method="unit")
    if scaling == "none":
        return _identity(name, present)
    return TransformedNumbers(name=name, transform=transforms.fit(present, scaling))


def _standard(name: str, present: NDArray[np.float64]) -> LinearScale | None:
    """Scaling by mean and standard deviation; None if the numbers do not vary."""
    mean, sd = transforms.moments(present)
    return LinearScale(name=name, centre=mean, unit=sd, resolution=RESOLUTION, most=CENTRED) if sd else None


def _identity(name: str, present: NDArray[np.float64]) -> LinearScale:
    if np.abs(present).max(initial=0.0) > MOST_AS_IT_IS:
        raise DataError(
            f"column {name!r} holds numbers beyond ±{MOST_AS_IT_IS}, too large to be left as they are",
            code="E_OVERFLOW",
            hint="choose another train.scaling in the job, such as standard, or give the column in another unit",
        )
    return LinearScale(name=name, centre=0.0, unit=1.0, resolution=RESOLUTION, most=MOST, method="none")


def _levels(name: str, column: CategoricalColumn, part: Part | None) -> Iterator[Categories]:
    """None if every row has the same level, or no level."""
    codes, counts = np.unique(column.codes, return_counts=True)
    if part:  # the days mark what is missing
        codes, counts = codes[codes >= 0], counts[codes >= 0]
    if len(codes) < 2:
        return
    levels = tuple(sorted(column.levels[code] for code in codes if code >= 0))
    place = {level: code for code, level in enumerate(levels, start=1)}
    coded = [0 if code < 0 else place[column.levels[code]] for code in codes]
    del coded[int(counts.argmax())]
    yield Categories(name=name, levels=levels, coded=tuple(sorted(coded)), part=part)
