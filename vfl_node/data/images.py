"""Columns of a table that are the pixels of one image a record."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase

from pydantic import model_validator

from vfl_node.configuration.models import Frozen
from vfl_node.errors import DataError
from vfl_node.settings.declared import Declared, DeclaredImage, Shape, kind_of, scaling_of


class Image(Frozen):
    """Which columns are an image.

    Attributes:
        columns: the pixels, row by row, channel after channel.
        shape: of the image.
    """

    columns: tuple[str, ...]
    shape: Shape

    @model_validator(mode="after")
    def _complete(self) -> Image:
        if len(self.columns) != math.prod(self.shape):
            raise ValueError("a column for each pixel")
        return self

    def __str__(self) -> str:
        """Its size in words."""
        channels, height, width = self.shape
        return f"{height} × {width}" + (f" of {channels} channels" if channels > 1 else "")

    @property
    def channels(self) -> Sequence[tuple[str, ...]]:
        """The columns of each channel."""
        pixels = len(self.columns) // self.shape[0]
        return [self.columns[start : start + pixels] for start in range(0, len(self.columns), pixels)]


def image_of(
    declared: DeclaredImage,
    names: Sequence[str],
    columns: Mapping[str, Declared],
    set_apart: Collection[str],
    *,
    header: str,
) -> Image:
    """The image of a table.

    Args:
        declared: what its owner says of it.
        names: of the table's columns; those that ``declared`` lists are among them.
        columns: what else is declared of columns. A pattern takes none that is ignored.
        set_apart: columns of identifiers and labels. A pattern takes none of them.
        header: the place of the names, for errors.

    Raises:
        DataError: a listed column is no number that can be a pixel (``E_COLUMN``), or there are more or fewer of them than the
            shape has pixels (``E_IMAGE``).
    """
    if isinstance(declared.columns, str):
        pattern = declared.columns.replace("[", "[[]")  # else a set of characters: only * and ? mean something
        usable = [name for name in names if name not in set_apart and columns.get(name) != "ignore"]
        pixels = tuple(name for name in usable if fnmatchcase(name, pattern))
    else:
        pixels = declared.columns
    for name in pixels:
        said = kind_of(columns.get(name, "numeric"))
        if name in set_apart:
            wrong, hint = "identifies records or labels them", "leave it out of data.image"
        elif scaling_of(columns.get(name)):
            wrong, hint = "has a scaling of its own", "remove it from data.columns: the pixels of an image are scaled together"
        elif said != "numeric":
            wrong, hint = f"is declared {said}", "remove it from data.columns, or from data.image"
        else:
            continue
        raise DataError(f"{header}:{name}: {wrong} and cannot be a pixel", code="E_COLUMN", hint=hint)
    if len(pixels) != math.prod(declared.dimensions):
        raise DataError(
            f"{header}: data.image has {len(pixels)} columns, and its shape, {' × '.join(map(str, declared.shape))}, needs "
            f"{math.prod(declared.dimensions)}",
            code="E_IMAGE",
            hint="correct data.image: "
            + ("shape is [height, width] or [channels, height, width]" if pixels else "its columns fit no name in the table"),
        )
    return Image(columns=pixels, shape=declared.dimensions)


CORRECT_PIXEL = "give every pixel a number, such as that of the background"
"""What to do about a cell that is no pixel."""


def missing_pixel(where: str, name: str, count: int) -> DataError:
    """That ``count`` rows have no value in the column ``name`` of an image, the first of them at ``where``."""
    return DataError(
        f"{where}: column {name!r} is a pixel of an image and has no value ({count} such {'cell' if count == 1 else 'cells'})",
        code="E_IMAGE",
        hint=CORRECT_PIXEL,
    )
