"""What an owner declares of columns in the node's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.job.names import Scaling

Shape = tuple[int, int, int]
"""Channels, height and width."""

Size = Annotated[int, Field(ge=1, le=4096)]
"""Height or width of an image, or how many channels it has."""

Kind = Literal["numeric", "categorical", "date", "list", "ignore"]

DecimalSign = Literal[".", ","]

Encoding = Literal["utf-8", "gbk", "gb18030", "latin-1", "cp1252", "utf-16"]
"""How the text of a file is written in bytes."""

ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)

Thousands = Literal["", ",", ".", " ", "'"]
"""What separates thousands; nothing does if it is empty."""

ISO = "Y-m-d"
"""The format of dates of ISO 8601."""

_FORMAT = re.compile(r"([dmbYy])([/.\- ]|, )?([dmbYy])([/.\- ]|, )?([dmbYy])")


def _words(words: Any) -> Any:
    """One word as several; YAML makes numbers, dates and nulls of some."""
    words = words if isinstance(words, list | tuple) else [words]
    if any(isinstance(word, bool) for word in words):
        raise ValueError("put yes, no, on, off, true and false in quotes: YAML makes truth values of them")
    return tuple("null" if word is None else str(word) if isinstance(word, int | float | date) else word for word in words)


def _is_format(written: str) -> str:
    parts = _FORMAT.fullmatch(written)
    letters = "".join(sorted(parts[1] + parts[3] + parts[5])).replace("b", "m").lower() if parts else ""
    if "".join(sorted(letters)) != "dmy":
        raise ValueError("a format has d, m (or b, a month's name) and Y (or y, two digits), such as d/m/Y, d.m.Y or d-b-Y")
    return written


Words = Annotated[tuple[Annotated[str, Field(max_length=100)], ...], BeforeValidator(_words), Field(max_length=100)]
"""What stands for a missing value."""

DateFormat = Annotated[
    str,
    BeforeValidator(lambda written: written.replace("%", "") if isinstance(written, str) else written),
    AfterValidator(_is_format),
]
"""The order of day, month and year, and what stands between them."""


class Notation(Frozen):
    """How cells of text write numbers and dates; None: as the values of the whole column suggest."""

    missing: Words = Field(
        default=(), description="more words that stand for a missing value, in any case; in a column of numbers by their value"
    )
    decimal: DecimalSign | None = Field(default=None, description="how its numbers write decimals, '.' or ','")
    thousands: Thousands | None = Field(default=None, description="what separates thousands; '': nothing does")
    unit: str | None = Field(default=None, max_length=32, description="sign or unit beside its numbers; '': there is none")
    date_format: DateFormat | None = Field(default=None, description="how its dates are written, such as d/m/Y")

    def fill_from(self, table: Notation) -> Notation:
        """The same, where it says nothing as ``table`` says it of all columns; missing words are those of both."""
        said = {key: value for key, value in self if key != "missing" and value is not None}
        if self.decimal and self.decimal == table.thousands:
            said.setdefault("thousands", None)
        return table.model_copy(update={**said, "missing": tuple(dict.fromkeys((*table.missing, *self.missing)))})


UNSAID = Notation()


class DeclaredColumn(Notation):
    """A column of which its kind alone does not say it all."""

    kind: Literal["numeric", "date", "categorical"]
    scaling: Scaling | None = Field(
        default=None, description="how its numbers are scaled, whatever the job's train.scaling says"
    )

    @model_validator(mode="after")
    def _check_kind(self) -> DeclaredColumn:
        own: dict[str, tuple[str, ...]] = {
            "numeric": ("scaling", "decimal", "thousands", "unit"),
            "date": ("scaling", "date_format"),
            "categorical": (),
        }
        for key in ("scaling", "decimal", "thousands", "unit", "date_format"):
            if getattr(self, key) is not None and key not in own[self.kind]:
                raise ValueError(f"{key} is not for a {self.kind} column")
        if self.decimal is not None and self.decimal == self.thousands:
            raise ValueError("decimals and thousands cannot have the same sign")
        return self

    @property
    def notation(self) -> Notation:
        """How its cells are written."""
        return Notation(**{key: getattr(self, key) for key in Notation.model_fields})


class DeclaredList(Frozen):
    """A column of lists of items, such as ``17|4|22``."""

    kind: Literal["list"] = "list"
    separator: str = Field(default="|", min_length=1, max_length=8, description="what stands between two items of a cell")
    longest: int = Field(default=50, ge=1, le=4096, description="most items of a cell that are read")
    keep: Literal["first", "last"] = Field(
        default="last", description="which items of a longer cell are read: the last ones are the newest of a history"
    )


class DeclaredImage(Frozen):
    """What an owner declares of the columns that are an image."""

    columns: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="their names in a list; or a pattern in which * stands for any text and ? for any character, which takes "
        "the columns in the table's order"
    )
    shape: Annotated[tuple[Size, ...], Field(min_length=2, max_length=3)] = Field(
        description="[height, width], or [channels, height, width]. Columns go row by row, channel after channel"
    )

    @model_validator(mode="after")
    def _distinct(self) -> DeclaredImage:
        if not isinstance(self.columns, str) and len(set(self.columns)) != len(self.columns):
            raise ValueError("columns: a column may be one pixel only")
        return self

    @property
    def dimensions(self) -> Shape:
        """Channels, height and width."""
        channels, height, width = self.shape if len(self.shape) == 3 else (1, *self.shape)
        return channels, height, width

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that stand in a list; none of a pattern."""
        return () if isinstance(self.columns, str) else self.columns


def _short(declared: Any) -> Any:
    """``{kind: numeric}`` is ``numeric``."""
    return declared["kind"] if isinstance(declared, Mapping) and set(declared) == {"kind"} else declared


Declared = Annotated[Kind | DeclaredColumn | DeclaredList, BeforeValidator(_short)]


def kind_of(declared: Declared | None) -> Kind | None:
    """The kind that is declared, if any."""
    return declared if declared is None or isinstance(declared, str) else declared.kind


def list_of(declared: Declared | None) -> DeclaredList | None:
    """What is declared of a column of lists; None: it is another one."""
    if isinstance(declared, DeclaredList):
        return declared
    return DeclaredList() if declared == "list" else None


def scaling_of(declared: Declared | None) -> Scaling | None:
    """The scaling that is wished for, if any."""
    return declared.scaling if isinstance(declared, DeclaredColumn) else None


def notation_of(declared: Declared | None, table: Notation = UNSAID) -> Notation:
    """How the cells of a column are written, of which this is declared; else as ``table`` says of all columns."""
    return declared.notation.fill_from(table) if isinstance(declared, DeclaredColumn) else table


def declare_fitted(declared: Declared) -> Declared:
    """A column that a model was fitted on: what nothing is said of was plain then, and another table decides nothing anew."""
    kind = kind_of(declared)
    said = declared.notation if isinstance(declared, DeclaredColumn) else UNSAID
    if kind == "numeric":
        return DeclaredColumn(kind=kind, **{"thousands": "", "unit": "", **_declared_fields(said)})
    if kind == "date":
        return DeclaredColumn(kind=kind, **{"date_format": ISO, **_declared_fields(said)})
    return declared


def declare_notation(kind: Kind, notation: Notation | None) -> Declared:
    """What is declared of a column of this kind that is written so; None: plainly."""
    if notation is None or not (said := _declared_fields(notation)) or kind not in ("numeric", "date", "categorical"):
        return kind
    return DeclaredColumn(kind=kind, **said)


def _declared_fields(notation: Notation) -> dict[str, Any]:
    return {key: value for key, value in notation if value not in (None, ())}


def kinds_of(columns: Mapping[str, Declared]) -> dict[str, Kind]:
    """Column → its declared kind."""
    return {name: column if isinstance(column, str) else column.kind for name, column in columns.items()}
