"""A party's table as its private settings describe it: where it is, and what its columns are."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.settings.aggregate import Aggregate
from vfl_node.settings.declared import DateFormat, Declared, DeclaredImage, Notation, Thousands, Words, kind_of
from vfl_node.settings.source import DataSource

RowNumber = Literal["weight", "offset", "exposure"]
"""A number of each row that training reads beside columns and labels."""

ROW_NUMBERS: tuple[RowNumber, ...] = get_args(RowNumber)


def _one_or_two(columns: object) -> object:
    if isinstance(columns, list) and len(columns) != 2:
        raise ValueError("name one column, or the two of a place: [LATITUDE, LONGITUDE]")
    return columns


KeyColumns = Annotated[str | tuple[str, str], BeforeValidator(_one_or_two)]
"""What is behind a key of a job."""


class Data(DataSource):
    """This party's table."""

    id: str | Annotated[tuple[str, ...], Field(min_length=2, max_length=16)] = Field(
        default="id", description="column that identifies a record; a list if several columns identify it together"
    )
    label: LabelAsWritten | None = Field(default=None, description="column of labels, where a job needs them (default 'label')")
    columns: dict[str, Declared] = Field(
        default={}, description="kind per column, or kind and scaling; undeclared ones are detected"
    )
    missing: Words = Field(
        default=(),
        description="more words that stand for a missing value, in any case, in columns of every kind: [unknown, -9]; inf for "
        "infinite numbers",
    )
    thousands: Thousands | None = Field(
        default=None, description="what separates thousands in numbers, such as ','; '': nothing; None: as each column suggests"
    )
    date_format: DateFormat | None = Field(
        default=None, description="how dates are written, such as d/m/Y; None: as each column suggests"
    )
    image: DeclaredImage | None = Field(
        default=None, description="columns that are the pixels of one image a record: {columns: 'pixel_*', shape: [28, 28]}"
    )
    order: str | None = Field(
        default=None,
        min_length=1,
        description="active node: column of numbers or dates that orders the records, for jobs that hold out the last ones "
        "(evaluate.hold_out). It is no feature unless columns declares it, too",
    )
    group: str | None = Field(
        default=None,
        min_length=1,
        description="active node: column that says which records belong together, such as those of one user. It is no feature",
    )
    weight: str | None = Field(
        default=None,
        min_length=1,
        description="active node: column of numbers from 0, how many times a row counts in the loss of split training and of "
        "this party's own models. It is no feature",
    )
    offset: str | None = Field(
        default=None,
        min_length=1,
        description="active node: column of numbers that split training adds to the score of a row before the link; of a "
        "regression in the target's unit. It is no feature, and predictions read it, too",
    )
    exposure: str | None = Field(
        default=None,
        min_length=1,
        description="active node: column of numbers above 0, such as the time that a row was observed; its logarithm is the "
        "offset of a job with train.task: poisson",
    )
    keys: dict[str, KeyColumns] = Field(
        default={},
        description="columns behind the keys of a job (align.keys) that are not called as the key is: {lat: LATITUDE}; a place "
        "has two, {home: [LATITUDE, LONGITUDE]}. They are no features, in any job",
    )
    aggregate: Aggregate | None = Field(
        default=None,
        description="the table has several rows a record: what is taken of them, {columns: {amount: [sum, mean], shop: most}}",
    )
    check: bool = Field(default=True, description="whether the node looks at the first rows of the table when it starts")

    @field_validator("id")
    @classmethod
    def _distinct(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not isinstance(value, str) and len(set(value)) != len(value):
            raise ValueError("a column may identify a record once only")
        return value

    @model_validator(mode="after")
    def _check_apart(self) -> Data:
        taken = dict.fromkeys((self.id,) if isinstance(self.id, str) else self.id, "data.id") | {
            self.labels.column: "data.label"
        }
        for key, column in self.of_records_alone.items():
            if column in taken:
                raise ValueError(
                    f"{key} names column {column!r}, which is already that of {taken[column]}: name another column"
                )
            taken[column] = key
        for column in self.key_columns:
            if taken.get(column) in self.of_records_alone or column == (self.label and self.label.column):
                raise ValueError(
                    f"data.keys names column {column!r}, which is already that of {taken[column]}: name another column"
                )
        return self

    @model_validator(mode="after")
    def _check_offset(self) -> Data:
        if self.offset and self.exposure:
            raise ValueError("exposure is an offset, its logarithm: name one of the two columns, offset or exposure")
        return self

    @model_validator(mode="after")
    def _check_aggregate(self) -> Data:
        if self.aggregate is None:
            return self
        if self.image:
            raise ValueError("image: one row has one image, so a table with aggregate has none: leave one of the two out")
        single = {*((self.id,) if isinstance(self.id, str) else self.id), *((self.label.column,) if self.label else ())}
        if self.aggregate.as_of and kind_of(self.columns.get(self.aggregate.order or "")) == "numeric":
            raise ValueError("aggregate.as_of is a day, and data.columns says that the column aggregate.order is numeric")
        for name in (*self.aggregate.columns, *self.aggregate.made, self.aggregate.rows, self.aggregate.order):
            if name in single:
                raise ValueError(f"aggregate names column {name!r}, which is that of data.id or data.label: name another one")
        for name in self.aggregate.columns:
            self.aggregate.read_as(name, self.columns)
        return self

    @property
    def of_records(self) -> Data:
        """What holds of the table that has one row a record; this, where the rows are the records."""
        if self.aggregate is None:
            return self
        columns = self.aggregate.declare(self.columns, but=(self.order, self.group, *self.key_columns))
        return self.model_copy(update={"aggregate": None, "columns": columns, "missing": ()})

    @property
    def notation(self) -> Notation:
        """How cells are written, as far as it is said of all columns."""
        return Notation(missing=self.missing, thousands=self.thousands, date_format=self.date_format)

    @property
    def of_records_alone(self) -> dict[str, str]:
        """Setting → the column that it names, of columns that say something of whole records of an active party."""
        return {f"data.{key}": column for key in ("order", "group", *ROW_NUMBERS) if (column := getattr(self, key))}

    @property
    def row_numbers(self) -> dict[str, RowNumber]:
        """Column → the number of each row that it has beside columns and labels."""
        return {column: key for key in ROW_NUMBERS if (column := getattr(self, key))}

    @property
    def key_columns(self) -> tuple[str, ...]:
        """All columns that ``keys`` names."""
        return tuple(
            column for columns in self.keys.values() for column in ((columns,) if isinstance(columns, str) else columns)
        )

    @property
    def labels(self) -> LabelSource:
        """The column of labels, where labels are read."""
        return self.label or LabelSource(column="label")


def _to_text(value: object) -> object:
    """YAML reads ``yes``, ``true`` and ``1`` without quotes as what they mean; a table has them as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, int | float) else value


class LabelSource(Frozen):
    """The column of labels; of two classes also the positive one."""

    column: str = Field(min_length=1, description="its name")
    positive: Annotated[str, BeforeValidator(_to_text), Field(min_length=1)] | None = Field(
        default=None, description="two classes: the one whose probability is predicted, as the table writes it; None: the last"
    )


def _name_columns(value: object) -> object:
    return {"column": value} if isinstance(value, str) else value


LabelAsWritten = Annotated[LabelSource, BeforeValidator(_name_columns)]
"""A column name alone, or keys and values."""
