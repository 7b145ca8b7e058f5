"""A table's columns as the numbers that a model reads. Each party fits and applies its encoder alone.

numeric
    scaled by a transform of the fitted rows (:mod:`vfl_node.data.transforms`). A missing value becomes 0;
    if values are missing in the fitted rows, an indicator column marks them.
categorical
    levels that enough fitted rows have are numbered from 1 in sorted order (:mod:`vfl_node.data.levels`).
date
    days as a number, and month, weekday and hour as categories where they vary (:mod:`vfl_node.data.dates`).
list
    items are numbered as levels are; a row has as many codes as the longest fitted list (:mod:`vfl_node.data.lists`).
image
    columns that are the pixels of one: numbers that are scaled together, by one mean and one standard deviation for each
    channel. Each by itself, a pixel that hardly ever varies would become as large as the others.

The encoder is part of the party's half of the model: it contains means, quantiles and levels of the
party's own data and stays at the party.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen
from vfl_node.data import transforms
from vfl_node.data.dates import Part, date_column, part_of, parts_of, varies
from vfl_node.data.images import Image, missing_pixel
from vfl_node.data.levels import Levels
from vfl_node.data.lists import ListLevels
from vfl_node.data.stored import StoredEncoder, notations_of, rows_read
from vfl_node.data.tables import CategoricalColumn, Column, ListColumn, NumericColumn, Table, values_of
from vfl_node.errors import DataError
from vfl_node.job.names import Scaling, ScalingMethod

Number = TypeVar("Number", np.float32, np.int64)


@dataclass(frozen=True, eq=False)
class Pixels:
    """Where an image is among the numeric columns.

    Attributes:
        columns: int64[k], of each pixel, row by row, channel after channel.
        shape: channels, height and width, whose product is k.
    """

    columns: NDArray[np.int64]
    shape: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded columns of n rows; a party may have none at all (width 0).

    Attributes:
        numeric: float32[n, p], finite: scaled columns in the table's order, then indicators.
        categorical: int64[n, c], codes below the column's cardinality.
        cardinalities: number of codes of each categorical column, code 0 included.
        pixels: which of the numeric columns are an image; None: none are.
        bags: int32[n, length of all lists], side by side: codes of the items of each column of lists, 0 after the last one;
            None where there is no such column.
        lists: number of codes, code 0 included, and length of each column of lists.
    """

    numeric: NDArray[np.float32]
    categorical: NDArray[np.int64]
    cardinalities: tuple[int, ...]
    pixels: Pixels | None = None
    bags: NDArray[np.int32] | None = None
    lists: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.numeric)

    def __repr__(self) -> str:
        return f"Features({len(self)} rows, {self.numeric.shape[1]} numeric, cardinalities {self.cardinalities})"

    @property
    def width(self) -> int:
        """Number of columns, p + c, and those of lists."""
        return self.numeric.shape[1] + self.categorical.shape[1] + len(self.lists)

    def split_bags(self) -> list[NDArray[np.int32]]:
        """The codes of each column of lists, int32[n, length]: views."""
        if self.bags is None:
            return []
        ends = np.cumsum([length for _, length in self.lists])
        return np.split(self.bags, ends[:-1], axis=1)

    def take(self, rows: NDArray[np.int64]) -> Features:
        """The rows ``rows``, int64[k], in that order; a row may come several times."""
        bags = None if self.bags is None else self.bags[rows]
        return replace(self, numeric=self.numeric[rows], categorical=self.categorical[rows], bags=bags)

    def append(self, *others: Features) -> Features:
        """These rows, followed by those of ``others``, which have the same encoding."""
        parts = (self, *others)
        return replace(
            self,
            numeric=np.concatenate([part.numeric for part in parts]),
            categorical=np.concatenate([part.categorical for part in parts]),
            bags=None if self.bags is None else np.concatenate([part.bags for part in parts if part.bags is not None]),
        )


class Scale(Frozen):
    """How one numeric column is encoded, or the days of one with dates.

    Attributes:
        indicator: whether one more column marks missing values.
        part: ``days`` for a column of dates.
    """

    kind: Literal["numeric"] = "numeric"
    name: str
    indicator: bool
    transform: transforms.Transform
    part: Part | None = None

    @property
    def method(self) -> ScalingMethod:
        """How numbers are scaled."""
        return self.transform.method

    @classmethod
    def fit(cls, name: str, values: NDArray[np.float64], scaling: Scaling, part: Part | None = None) -> Scale:
        """The scale of the fitted float64[k]. Unscaled days are counted from the first fitted one."""
        transform = transforms.fit(values, scaling)
        if part and isinstance(transform, transforms.Unscaled) and not np.isnan(values).all():
            transform = transforms.Unscaled(start=float(np.floor(np.nanmin(values))))
        return cls(name=name, indicator=bool(np.isnan(values).any()), transform=transform, part=part)

    def apply(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scaled and bounded float64[n]; missing: 0."""
        return self.transform.apply(values)

    def undo(self, scaled: NDArray[np.float32], known: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values float64[n] that are encoded as ``scaled``; a cell of ``known`` if one is encoded so."""
        values = self.transform.undo(scaled.astype(np.float64))
        known = known[~np.isnan(known)]
        if len(known) == 0:
            return values
        encoded, first = np.unique(self.apply(known).astype(np.float32), return_index=True)
        place = np.minimum(np.searchsorted(encoded, scaled), len(encoded) - 1)
        return np.where(encoded[place] == scaled, known[first[place]], values)


Encoding = Scale | Levels | ListLevels


def _add_transforms(first: versions.Document) -> versions.Document:
    """Version 1 had ``mean`` and ``sd`` of a numeric column beside its name."""

    def later(column: Any) -> Any:
        if not isinstance(column, dict) or "sd" not in column:
            return column
        kept = dict(column)
        return {"transform": {"method": "standard", "mean": kept.pop("mean", None), "sd": kept.pop("sd")}, **kept}

    columns = first.get("columns")
    return {**first, "columns": [later(column) for column in columns]} if isinstance(columns, list) else first


class Encoder(StoredEncoder):
    """How each column of a table becomes model input.

    Attributes:
        image: which of the columns are one; their transforms are the same within a channel.
    """

    version: ClassVar[int] = 6
    steps: ClassVar[versions.Steps] = {1: _add_transforms, 2: dict, 3: dict, 4: dict, 5: dict}
    """The later ones had no images, lists, notations, and columns of rows."""

    columns: tuple[Annotated[Encoding, Field(discriminator="kind")], ...]
    image: Image | None = None

    @model_validator(mode="after")
    def _has_its_pixels(self) -> Encoder:
        numbers = {encoding.name for encoding in self.columns if isinstance(encoding, Scale) and encoding.part is None}
        if self.image and not numbers.issuperset(self.image.columns):
            raise ValueError("a number for each pixel")
        return self

    @classmethod
    def fit(cls, table: Table, rows: NDArray[np.int64], scaling: Scaling = "standard", least_rows: int = 0) -> Encoder:
        """Learn from ``rows``, int64[k], of ``table``.

        Args:
            table: its columns; a column's own ``scaling`` comes before the next argument.
            rows: the fitted ones.
            scaling: of numbers.
            least_rows: a level or an item that fewer fitted rows have is merged with other rare ones.
        """
        pixels = _fit_pixels(table, rows)
        columns = (
            encoding
            for name, column in table.columns.items()
            for encoding in ([pixels[name]] if name in pixels else _fit_column(name, column, rows, scaling, least_rows))
        )
        return cls(columns=tuple(columns), image=table.image, notations=notations_of(table), rows=rows_read(table))

    def transform(self, table: Table) -> Features:
        """Encode all rows of ``table``; columns that the encoder does not know are left out.

        Raises:
            DataError: a column is missing or of another kind (``E_COLUMN``), or a pixel has no value (``E_IMAGE``).
        """
        return self._encode(table.columns, len(table))

    def translate(self, features: Features, other: Encoder, table: Table) -> Features:
        """``features``, in the encoding of this encoder, as ``other`` encodes the same rows.

        A number that encodes a cell of ``table`` becomes the value that ``other`` has for this cell, to
        the last bit; if this encoder gives several cells the same number, the first of them is used. With rounding
        errors a copied cell could be told from the real ones. Other numbers are scaled and clipped
        again. A missing value stays missing, if this encoder has an indicator for it; a level that is unknown to
        ``other`` becomes 0.

        Args:
            features: n rows in this encoder's columns.
            other: its columns are among this encoder's.
            table: the table on which this encoder was fitted, or another one with its columns.

        Cost: a sort of the table's cells for each numeric column; 8 bytes a cell of memory.

        Raises:
            DataError: ``other`` reads a column that this encoder does not (``E_COLUMN``).
        """
        return other._encode(self._decode(features, table), len(features))

    def _encode(self, columns: Mapping[str, Column], rows: int) -> Features:
        scaled: list[NDArray[np.float64]] = []
        indicators: list[NDArray[np.float64]] = []
        categorical: list[NDArray[np.int64]] = []
        cardinalities: list[int] = []
        bags: list[NDArray[np.int32]] = []
        lists: list[tuple[int, int]] = []
        for encoding in self.columns:
            column = part_of(columns.get(encoding.name), encoding.part)
            if isinstance(encoding, Scale) and isinstance(column, NumericColumn):
                scaled.append(encoding.apply(column.values))
                if encoding.indicator:
                    indicators.append(np.isnan(column.values).astype(np.float64))
            elif isinstance(encoding, Levels) and isinstance(column, CategoricalColumn):
                categorical.append(encoding.apply(column))
                cardinalities.append(encoding.cardinality)
            elif isinstance(encoding, ListLevels) and isinstance(column, ListColumn):
                bags.append(encoding.apply(column))
                lists.append((encoding.cardinality, encoding.length))
            else:
                raise DataError(
                    f"the model reads a {kind_of(encoding)} column {encoding.name!r}, and this table has none",
                    code="E_COLUMN",
                    hint="give a table with the columns the model was trained on; declare their kinds in data.columns",
                )
        return Features(
            _side_by_side([*scaled, *indicators], rows, np.float32),
            _side_by_side(categorical, rows, np.int64),
            tuple(cardinalities),
            self._pixels(columns),
            np.concatenate(bags, axis=1) if bags else None,
            tuple(lists),
        )

    def _pixels(self, columns: Mapping[str, Column]) -> Pixels | None:
        """Where the image is among the encoded numbers of ``columns``, in which no pixel may be missing."""
        if self.image is None:
            return None
        for name in self.image.columns:
            missing = np.flatnonzero(np.isnan(values_of(columns[name])))
            if len(missing):
                raise missing_pixel(f"row {missing[0] + 1}", name, len(missing))
        numbers = [encoding.name for encoding in self.columns if isinstance(encoding, Scale)]
        place = {name: place for place, name in enumerate(numbers)}
        return Pixels(np.array([place[name] for name in self.image.columns]), self.image.shape)

    def _decode(self, features: Features, table: Table) -> dict[str, Column]:
        """The columns that ``features`` encodes; cells of ``table`` if they are encoded so."""
        scaled = iter(features.numeric.T)
        indicators = iter(features.numeric.T[sum(isinstance(encoding, Scale) for encoding in self.columns) :])
        codes, bags = iter(features.categorical.T), iter(features.split_bags())
        columns: dict[str, Column] = {}
        for encoding in self.columns:
            if isinstance(encoding, Levels):
                column = encoding.undo(next(codes))
                if encoding.part is None:  # else the days say what it is
                    columns[encoding.name] = column
                continue
            if isinstance(encoding, ListLevels):
                columns[encoding.name] = encoding.undo(next(bags))
                continue
            own = part_of(table.columns[encoding.name], encoding.part)
            values = encoding.undo(next(scaled), own.values if isinstance(own, NumericColumn) else np.empty(0))
            if encoding.indicator:
                values[next(indicators) == 1] = np.nan
            columns[encoding.name] = date_column(values) if encoding.part else NumericColumn(values)
        return columns


def kind_of(encoding: Encoding) -> Literal["numeric", "categorical", "date", "list"]:
    """The kind of column that is encoded."""
    return "date" if encoding.part else encoding.kind


def _fit_pixels(table: Table, rows: NDArray[np.int64]) -> dict[str, Scale]:
    """How each column of the image is encoded: one mean and one standard deviation for each channel."""
    fitted = {}
    for channel in table.image.channels if table.image else ():
        transform = transforms.Standard.fit(np.concatenate([values_of(table.columns[name])[rows] for name in channel]))
        fitted.update({name: Scale(name=name, indicator=False, transform=transform) for name in channel})
    return fitted


def _fit_column(name: str, column: Column, rows: NDArray[np.int64], scaling: Scaling, least_rows: int) -> Iterator[Encoding]:
    """How one column is encoded; of a date all parts but those categories that do not vary."""
    for part, read in parts_of(column):
        if isinstance(read, NumericColumn):
            yield Scale.fit(name, read.values[rows], read.scaling or scaling, part)
        elif isinstance(read, ListColumn):
            yield ListLevels.fit(name, read, rows, least_rows)
        elif part is None or varies(read.codes[rows]):
            yield Levels.fit(name, read, rows, least_rows, part)


def _side_by_side(columns: Sequence[NDArray[Any]], rows: int, dtype: type[Number]) -> NDArray[Number]:
    """Columns of n rows → contiguous [n, k]; k may be 0."""
    matrix = np.empty((rows, len(columns)), dtype=dtype)
    for index, column in enumerate(columns):
        matrix[:, index] = column
    return matrix
