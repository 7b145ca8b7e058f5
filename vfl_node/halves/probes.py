"""Rows that try every branch of an encoder: knots, bounds, levels, missing and unseen cells, huge and tiny numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from vfl_node.data import transforms
from vfl_node.data.bins import Cuts, Sorts
from vfl_node.data.dates import DAY_S, date_column
from vfl_node.data.design import LinearScale, TransformedNumbers
from vfl_node.data.features import Scale
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.levels import Levels
from vfl_node.data.lists import ListLevels
from vfl_node.data.quantile_levels import QuantileLevels
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.halves.graph import export_error

EXTREME = (np.nan, 0.0, -0.0, 1e300, -1e300, 1e-300, -1e-300, 1.0, -1.0)

MOST_LEVELS = 500
"""Levels of one column that are tried."""

_DAYS = (0, -1, -0.5, 0.75, 19_782, 18_321.25, 11_016, -719_162, 2_932_896, *np.arange(19_723, 20_454, 27.29))
"""Around 1970, leap days, the first and the last date that there is, and two years in every month, weekday and hour."""

LEAST = 50
"""So many rows there are at least."""

UNSEEN = "未見 unseen"


def make_probes(encodings: Iterable[object]) -> Table:
    """Rows for encodings of columns, of any encoder. Raises UsageError of lists (``E_EXPORT``)."""
    numbers: dict[str, list[float]] = {}
    levels: dict[str, list[str]] = {}
    dates: set[str] = set()
    for encoding in encodings:
        if isinstance(encoding, ListLevels):
            raise export_error(f"column {encoding.name!r} holds lists, which are not exported", "train without it")
        name, part = str(getattr(encoding, "name")), getattr(encoding, "part")  # noqa: B009 - of every kind of encoding
        dated = bool(part) or (isinstance(encoding, Cuts) and encoding.holds == "date")
        if isinstance(encoding, Sorts) or (isinstance(encoding, Levels) and part is None):
            levels[name] = [*encoding.levels[:MOST_LEVELS], UNSEEN]
            continue
        numbers.setdefault(name, list(_DAYS if dated else EXTREME)).extend(_marks(encoding))
        dates |= {name} if dated else set()
    count = max([LEAST, *map(len, numbers.values()), *(len(each) + 1 for each in levels.values())])
    columns: dict[str, Column] = {}
    for shift, (name, values) in enumerate(numbers.items()):
        spread = np.roll(np.resize(np.array([*values, np.nan]), count), shift)
        columns[name] = date_column(np.clip(spread, -719_162, 2_932_896)) if name in dates else NumericColumn(spread)
    for shift, (name, known) in enumerate(levels.items()):
        ordered = tuple(sorted(known))
        codes = np.roll(np.resize(np.arange(-1, len(ordered)), count), shift)
        columns[name] = CategoricalColumn(codes, ordered)
    return Table(Identifiers.from_items(b"text:%d" % row for row in range(count)), columns)


def _marks(encoding: object) -> NDArray[np.float64]:
    """Numbers where what an encoding gives bends."""
    if isinstance(encoding, LinearScale):
        return encoding.centre + encoding.unit * np.linspace(-12, 12, 41)
    if isinstance(encoding, QuantileLevels):
        return np.array(encoding.edges)
    if isinstance(encoding, Cuts):
        cuts = np.array(encoding.cuts) / (DAY_S if encoding.holds == "date" else 1)
        return np.concatenate([cuts, np.nextafter(cuts, np.inf), cuts - 1, cuts + 1])
    transform = encoding.transform if isinstance(encoding, Scale | TransformedNumbers) else None
    if isinstance(transform, transforms.Quantile):
        knots = np.array(transform.knots)
        return np.concatenate([knots, (knots[1:] + knots[:-1]) / 2, knots[:1] - 1, knots[-1:] + 1])
    if isinstance(transform, transforms.SignedLog):
        return transform.unit * np.array([-1e6, -10, -1, -0.1, -1e-9, 1e-9, 0.1, 0.5, 1, 2, 10, 1e6])
    if isinstance(transform, transforms.Standard):
        return transform.mean + transform.sd * np.linspace(-12, 12, 41)
    if isinstance(transform, transforms.Unscaled):
        return transform.start + np.array([-2e7, -3.5, -1, 0, 0.5, 1, 7, 2e7])
    return np.empty(0)
