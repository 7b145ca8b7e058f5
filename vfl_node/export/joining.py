"""All halves of a model in one place: for one owner of all tables. No party is asked, and nothing is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.tables import Table
from vfl_node.data.text_columns import TextColumns
from vfl_node.errors import UsageError
from vfl_node.export.reading import Given, open_given, read_cells
from vfl_node.halves.half import About, Floats
from vfl_node.prediction.records import Records
from vfl_node.settings.node import Data

NO_SOURCES: Mapping[str, Data] = {}


class JoinableHalf(Protocol):
    """A half: one that was loaded from a file, or one of this node's."""

    @property
    def about(self) -> About:
        """Whose it is, what it reads and what it gives."""

    def part(self, table: Table) -> NDArray[Any]:
        """What it gives to the half that predicts."""

    def predicted(self, table: Table, parts: Sequence[NDArray[Any]]) -> Floats:
        """What the model says."""


@dataclass(frozen=True)
class Scored:
    """What a model says of records.

    Attributes:
        csv: a line for each record of the table of the party that predicts, in its order: ids and probabilities, or numbers.
            Of a record that another table lacks they are empty.
        values: float64[n] or [n, K], NaN likewise.
        scored: how many records all tables have.
    """

    csv: bytes
    values: Floats
    scored: int


def score_jointly(
    halves: Sequence[JoinableHalf],
    given: Mapping[str, Given],
    *,
    ids: tuple[str, ...] = ("id",),
    sources: Mapping[str, Data] = NO_SOURCES,
) -> Scored:
    """Predict the records that all tables have.

    Args:
        halves: of all parties of one model, in any order.
        given: party, or role where one party has it, → its table.
        ids: the columns that identify a record, in every table.
        sources: party → what its settings say of its table, where several rows may be one record.

    Raises:
        UsageError: a half or a table is missing, or the halves are of different models (``E_EXPORT``).
        DataError: a table cannot be read.
    """
    last, others = _arrange(halves)
    tables = {half.about.party: _read(half, given, ids, sources.get(half.about.party)) for half in (last, *others)}
    unknown = [name for name in given if name not in {n for half in halves for n in (half.about.party, half.about.role)}]
    if unknown:
        raise UsageError(f"no half is of {unknown[0]!r}", hint=f"the halves are of {', '.join(tables)}")
    table, text = tables[last.about.party]
    places = {half.about.party: _places(tables[half.about.party][0]) for half in others}
    shared = [row for row, id_ in enumerate(table.ids) if all(id_ in place for place in places.values())]
    rows = np.array(shared, dtype=np.int64)
    parts = []
    for half in others:
        place = places[half.about.party]
        found = np.array([place[table.ids[row]] for row in shared], dtype=np.int64)
        parts.append(half.part(tables[half.about.party][0].take(found)) if shared else np.empty((0, last.about.width)))
    said = last.predicted(table.take(rows), parts) if shared else np.empty(0)
    values = np.full((len(table), *said.shape[1:]), np.nan)
    values[rows] = said
    about = last.about
    return Scored(Records(table, text, ids, about.classes, about.threshold, about.task).csv(values), values, len(shared))


def _arrange(halves: Sequence[JoinableHalf]) -> tuple[JoinableHalf, list[JoinableHalf]]:
    """The half that predicts, and the others in the order that it needs."""
    predicting = [half for half in halves if half.about.predicts]
    if len(predicting) != 1:
        raise UsageError(
            f"{len(predicting)} of the halves predict, and it must be one",
            code="E_EXPORT",
            hint="give one half of each party: that of the party with the labels predicts",
        )
    (last,), given = predicting, {half.about.party: half for half in halves if not half.about.predicts}
    if lacking := [name for name in last.about.others if name not in given]:
        raise UsageError(f"the half of {lacking[0]} is missing", code="E_EXPORT", hint="give one half of each party")
    others = [given[name] for name in last.about.others]
    for half in (*others, *given.values()):
        if half.about.job != last.about.job or half.about.manifest_digest != last.about.manifest_digest or half not in others:
            raise UsageError(
                f"the half of {half.about.party} is of job {half.about.job}, that of {last.about.party} of {last.about.job}",
                code="E_EXPORT",
                hint="give the halves of one training",
            )
    return last, others


def _read(
    half: JoinableHalf, given: Mapping[str, Given], ids: tuple[str, ...], source: Data | None
) -> tuple[Table, TextColumns]:
    about = half.about
    for name in (about.party, about.role):
        if given.get(name) is not None:
            opened = open_given(given[name], about.party)
            return read_cells(opened, about.reads, ids=ids, id_form=about.id_form, source=source, rows=about.rows)
    raise UsageError(f"the table of {about.party} is missing", hint=f"say {about.role}=FILE")


def _places(table: Table) -> dict[bytes, int]:
    return {id_: row for row, id_ in enumerate(table.ids)}
