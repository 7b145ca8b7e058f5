"""The names of an input's columns, which every format must give."""

from __future__ import annotations

from collections.abc import Iterable

from vfl_node.errors import DataError

ONE_CELL = (
    "the first line has one cell: it must name the columns, without titles or remarks above it; if something else than a "
    "comma, a semicolon, a tab or a bar separates cells, say data.delimiter"
)
"""The hint for a CSV whose header was not split."""


def column_names(header: Iterable[str], where: str) -> tuple[str, ...]:
    """The names without white space at their ends.

    Args:
        header: as the input has them.
        where: the input and the line, for errors. They number columns instead of naming them, because the first line of a
            file may be a record.

    Raises:
        DataError: a column has no name, or two have the same (``E_CSV``).
    """
    names = tuple(map(str.strip, header))
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if not name:
            raise DataError(
                f"{where}: column {number} has no name",
                code="E_CSV",
                hint="name every column in the first line, without titles above it, or remove the column; row numbers have no "
                "name: to_csv(index=False) in pandas, row.names=FALSE in R; nor has what follows a delimiter at the end",
            )
        if name in seen:
            raise DataError(
                f"{where}: columns {seen[name]} and {number} have the same name",
                code="E_CSV",
                hint="give every column a name of its own, in a CSV by the first line",
            )
        seen[name] = number
    return names
