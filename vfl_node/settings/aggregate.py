"""How an owner says that several rows of a table become one record (``data.aggregate``)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.settings.declared import Declared, DeclaredColumn, DeclaredList, Kind, kind_of, scaling_of
from vfl_node.settings.declared import Words as Values

ITEMS_BETWEEN = "\x1f"
"""What stands between the items of a list that is made of rows: Unicode's separator of units, which no usual cell has."""

COUNT_OF = "{}_count_{}"
"""The name of a column that counts the rows with one value, of the column's name and the value."""

_TAKEN_OF: Mapping[Kind, tuple[str, ...]] = {
    "numeric": ("sum", "mean", "median", "std"),
    "date": ("days_since_first", "days_since_last"),
    "categorical": ("most", "values", "top", "list"),
}
_KINDS: Mapping[str, Kind] = {each: kind for kind, taken in _TAKEN_OF.items() for each in taken}
"""What is taken of a column → the only kind of which it can be."""

_SAME_UNIT = ("sum", "mean", "median", "min", "max", "first", "last")
"""What is a number as those of the column are, so that its scaling suits."""

_ANY = ("min", "max", "first", "last")
"""What has the kind of the column."""


class Taken(Frozen):
    """What is taken of the rows of one record in one column; cells without a value never count."""

    count: bool = Field(default=False, description="how many rows have a value")
    distinct: bool = Field(default=False, description="how many different values there are")
    first: bool = Field(default=False, description="the value of the first row by order; of several first ones the smallest")
    last: bool = Field(default=False, description="the value of the last row by order; of several last ones the largest")
    min: bool = Field(default=False, description="the smallest number, or the earliest date")
    max: bool = Field(default=False, description="the largest number, or the latest date")
    sum: bool = Field(default=False, description="the sum of the numbers; missing if no row has one")
    mean: bool = Field(default=False, description="their mean")
    median: bool = Field(default=False, description="their median")
    std: bool = Field(default=False, description="their standard deviation, with n - 1; missing for fewer than two numbers")
    days_since_first: bool = Field(default=False, description="days from the earliest date to as_of")
    days_since_last: bool = Field(default=False, description="days from the latest date to as_of")
    most: bool = Field(
        default=False, description="the value that the most rows have; of several ones the first in sorted order"
    )
    values: Values = Field(default=(), description="values, each of which becomes a column: how many rows have it")
    top: int | None = Field(default=None, ge=1, le=1000, description="likewise of the values that the most records have")
    list: int | None = Field(default=None, ge=1, le=4096, description="a list of the last values by order, at most so many")

    @model_validator(mode="after")
    def _one_kind(self) -> Taken:
        if not self.named:
            raise ValueError("say what is taken of the column, such as [sum, mean], or leave the column out")
        one_each = {_KINDS[each]: each for each in self.named if each in _KINDS}
        if len(one_each) > 1:
            one, other = list(one_each.values())[:2]
            raise ValueError(f"{one} is for {_PLURAL[_KINDS[one]]}, and {other} for {_PLURAL[_KINDS[other]]}: leave one out")
        return self

    @property
    def named(self) -> tuple[str, ...]:
        """All that is taken, by their keys."""
        return tuple(key for key, value in self if value)

    @property
    def kind(self) -> Kind | None:
        """The kind that the column must have for it; None: it may have another one."""
        return next((_KINDS[each] for each in self.named if each in _KINDS), None)


_PLURAL = {"numeric": "numbers", "date": "dates", "categorical": "categories"}


def _to_keys(taken: object) -> object:
    """``sum`` and ``[sum, mean]`` as keys."""
    names = [taken] if isinstance(taken, str) else taken
    return dict.fromkeys(names, True) if isinstance(names, list | tuple) and all(isinstance(n, str) for n in names) else taken


def _no_number(day: object) -> object:
    if isinstance(day, int | float):
        raise ValueError("write the day as 2026-10-01")
    return day


class Aggregate(Frozen):
    """Rows with the same ``data.id`` become one record."""

    columns: dict[str, Annotated[Taken, BeforeValidator(_to_keys)]] = Field(
        default={},
        description="column → what is taken of it: {amount: [sum, mean], shop: {top: 20, distinct: true}}; others are not read",
    )
    order: str | None = Field(
        default=None, min_length=1, description="column of dates or numbers that says which rows are earlier and later"
    )
    as_of: Annotated[date, BeforeValidator(_no_number)] | None = Field(
        default=None, description="rows of later days than this one, by order, are not read"
    )
    label: Literal["same", "last", "max"] = Field(
        default="same", description="active node: the label of a record; same: all its rows must have the same one"
    )
    rows: str | None = Field(default=None, min_length=1, description="name of a column that says how many rows a record has")

    @model_validator(mode="after")
    def _complete(self) -> Aggregate:
        ordered = [
            f"{name}: {each}"
            for name, taken in self.columns.items()
            for each in ("first", "last", "list")
            if each in taken.named
        ]
        ordered += ["label: last"] if self.label == "last" else []
        ordered += ["as_of"] if self.as_of else []
        if ordered and self.order is None:
            raise ValueError(f"{ordered[0]} needs order, the column that says which rows are later")
        since = [name for name, taken in self.columns.items() if taken.kind == "date"]
        if since and self.as_of is None:
            raise ValueError(f"columns.{since[0]}: days are counted up to as_of, which is missing")
        of_order = self.columns.get(self.order or "")
        if self.as_of and of_order and of_order.kind not in (None, "date"):
            raise ValueError(f"as_of is a day, and columns.{self.order} takes no dates of the column order")
        names = [*self.made, *([self.rows] if self.rows else [])]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise ValueError(f"two columns of the records would be called {twice!r}: leave one out")
        heads = self._heads
        for name in [*names, *heads.values()]:
            if column := next((each for each, head in heads.items() if name != head and name.startswith(head)), None):
                raise ValueError(
                    f"a column of the records would be called {name!r}, and names of columns that count values of {column!r} "
                    f"begin with {heads[column]!r}: give one of them another name, or leave it out"
                )
        return self

    @property
    def made(self) -> dict[str, tuple[str, str]]:
        """Column of the records → the column that it is made of, and what is taken; without those of ``values`` and ``top``."""
        return {
            f"{name}_{each}": (name, each)
            for name, taken in self.columns.items()
            for each in taken.named
            if each not in ("values", "top")
        }

    def makes(self, name: str) -> bool:
        """Whether a column of the records may be called so."""
        return name in self.made or name == self.rows or name.startswith(tuple(self._heads.values()))

    @property
    def _heads(self) -> dict[str, str]:
        """Column of which values are counted → how the names of the columns begin that count one."""
        return {name: COUNT_OF.format(name, "") for name, taken in self.columns.items() if taken.values or taken.top}

    def read_as(self, name: str, declared: Mapping[str, Declared]) -> Declared | None:
        """How a column of the rows is read; None: as its values suggest. Raises ValueError: not so that all can be taken."""
        taken, said = self.columns.get(name), declared.get(name)
        kind = kind_of(said)
        if taken is None or kind is None:
            return said or (taken.kind if taken else None)
        wrong = next((each for each in taken.named if _KINDS.get(each, kind) != kind), None)
        if wrong is None and kind == "categorical":
            wrong = next((each for each in ("min", "max") if each in taken.named), None)
        if kind in ("list", "ignore") or wrong:
            raise ValueError(f"columns.{name}: {wrong or taken.named[0]} is not for a column that data.columns declares {kind}")
        return said

    def declare(self, declared: Mapping[str, Declared], *, but: tuple[str | None, ...]) -> dict[str, Declared]:
        """What is declared of the columns of the records.

        Args:
            declared: what the settings declare of columns of the rows and of the records.
            but: columns that are no features, of which nothing follows from the columns that they are made of.
        """
        follows: dict[str, Declared] = {} if self.rows is None else {self.rows: "numeric"}
        for name, (column, each) in self.made.items():
            read = self.read_as(column, declared)
            kind: Kind | None = kind_of(read) if each in _ANY else "categorical" if each == "most" else "numeric"
            scaling = scaling_of(read) if each in _SAME_UNIT else None
            if each == "list":
                follows[name] = DeclaredList(separator=ITEMS_BETWEEN, longest=self.columns[column].list or 1)
            elif scaling and (kind == "numeric" or kind == "date"):
                follows[name] = DeclaredColumn(kind=kind, scaling=scaling)
            elif kind is not None:
                follows[name] = kind
        said = {name: column for name, column in declared.items() if self.makes(name)}
        return {name: column for name, column in follows.items() if name not in but} | said

    def fit_to(self, kinds: Mapping[str, Declared]) -> Aggregate:
        """The same for other rows, of which the columns of records are made that a model reads: it knows the values of ``top``.

        Args:
            kinds: column that the model reads → what is declared of it.
        """
        columns = dict(self.columns)
        for name, head in self._heads.items():
            values = tuple(each.removeprefix(head) for each in kinds if each.startswith(head))
            columns[name] = columns[name].model_copy(update={"top": None, "values": values})
        return self.model_copy(update={"columns": columns})

    def kinds_of_rows(self, kinds: Mapping[str, Declared]) -> dict[str, Kind]:
        """Column of rows → its kind, where that of a column of records says it."""
        fitted = {
            column: kind_of(kinds.get(name)) for name, (column, each) in self.made.items() if each in _ANY and name in kinds
        }
        return {column: kind for column, kind in fitted.items() if kind}
