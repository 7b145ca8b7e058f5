"""What a linear model makes of a party's own columns that its owner should know.

Sentences are for the owner's own terminal, log and report. They name columns, and have no cell of them. Nothing that is sent
depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vfl_node.data import transforms
from vfl_node.data.design import MOST_AS_IT_IS, Categories, Encoding, LinearEncoder
from vfl_node.data.encoded import ColumnEncoding, EncodedColumn, encoded_columns
from vfl_node.data.evidence import EvidenceColumns
from vfl_node.data.tables import DateColumn, NumericColumn, Table
from vfl_node.job.names import LinearScaling
from vfl_node.session.session import Session

MOST_NAMED = 5

SQUEEZED = (
    "{columns}: a few values are so far from all others that these look alike to the model, because {which} scaled by the "
    "standard deviation. Say scaling: auto (train.scaling of the job, or data.columns: {{NAME: {{scaling: auto}}}}), and leave "
    "cells empty whose numbers stand for a missing value."
)
RESCALED = (
    "{columns}: a few values are so far from all others that these would look alike to the model, so {which} scaled by ranks "
    "or logarithms instead of the standard deviation. Leave cells empty whose numbers stand for a missing value."
)


def find_squeezed(table: Table, scaling: LinearScaling) -> tuple[str, ...]:
    """Columns to be standardised in which a few values make all others look alike, by the job's ``scaling``, or their own."""
    found = []
    for name, column in table.columns.items():
        if isinstance(column, NumericColumn | DateColumn) and (column.scaling or scaling) == "standard":
            values = column.values if isinstance(column, NumericColumn) else column.seconds
            if transforms.is_squeezed(values[~np.isnan(values)]):
                found.append(name)
    return tuple(found)


def make_robust(table: Table, scaling: LinearScaling) -> Table:
    """The table with columns that a few values neither spoil nor keep from a training.

    Those of :func:`find_squeezed` are scaled as ``auto`` chooses, but for their owner's own wish. With ``none`` large numbers
    are cut off: were they refused, a partner's job would ask in that way whether there are any.
    """
    columns = dict(table.columns)
    for name, column in table.columns.items():
        if isinstance(column, NumericColumn) and (column.scaling or scaling) == "none":
            columns[name] = replace(column, values=column.values.clip(-MOST_AS_IT_IS, MOST_AS_IT_IS))
    for name in find_squeezed(table, scaling):
        column = columns[name]
        assert isinstance(column, NumericColumn | DateColumn)
        columns[name] = replace(column, scaling=column.scaling or "auto")
    return replace(table, columns=columns)


def find_evidence(session: Session) -> EvidenceColumns | None:
    """The weights of evidence that replace this party's columns; None: its job reads these as they are."""
    kept = session.attempt.evidence
    return kept.columns if kept and session.job.train and session.job.train.reads_evidence else None


def select_used(encoder: LinearEncoder, used: NDArray[np.bool_]) -> tuple[Encoding, ...]:
    """The encoder's columns of which any part enters a model that reads the columns ``used``, bool[d], of the design."""
    widths = [len(column.coded) if isinstance(column, Categories) else 1 for column in encoder.columns]
    parts = np.split(used, np.cumsum(widths)[:-1]) if widths else []
    return tuple(column for column, part in zip(encoder.columns, parts, strict=True) if part.any())


def describe_used(encoder: LinearEncoder, used: NDArray[np.bool_], table: Table) -> tuple[EncodedColumn, ...]:
    """What is made of each column of a ``table`` in a model that reads the columns ``used`` of the design."""
    read = select_used(encoder, used)
    if encoder.evidence:
        return encoder.evidence.choose([each.name for each in read]).encoded(table)
    return encoded_columns(table, read)


def scaling_warnings(names: Sequence[str], encodings: Iterable[ColumnEncoding]) -> tuple[str, ...]:
    """What :func:`find_squeezed` columns give rise to: how an encoder scales them, and what to do."""
    standard = {encoding.name for encoding in encodings if encoding.method == "standard"}
    alike, others = [name for name in names if name in standard], [name for name in names if name not in standard]
    return tuple(
        text.format(columns=name_columns(columns), which="it is" if len(columns) == 1 else "they are")
        for text, columns in ((SQUEEZED, alike), (RESCALED, others))
        if columns
    )


def drop_warnings(shown: Iterable[str], why: str) -> tuple[str, ...]:
    """What is said of columns that do not enter the model; of none nothing.

    Args:
        shown: their names, without levels; several may be the same.
        why: a clause.
    """
    names = list(dict.fromkeys(shown))
    return (f"{name_columns(names)} left out: {why}.",) if names else ()


def name_columns(columns: Sequence[str]) -> str:
    """``Column 'a'``, or the first of several and how many more there are."""
    first, more = ", ".join(map(repr, columns[:MOST_NAMED])), len(columns) - MOST_NAMED
    return f"Column{'s' if len(columns) > 1 else ''} {first}{f' and {more} more' if more > 0 else ''}"
