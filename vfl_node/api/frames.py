"""Tables that a user has in memory, or in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vfl_node.data.readers.parts import is_table
from vfl_node.errors import UsageError
from vfl_node.job import Job

_KINDS = "a data frame of pandas or polars, an Arrow table, or the path of a file"


@runtime_checkable
class Frame(Protocol):
    """A table in memory with the Arrow interface: of pandas 2.2 or newer, polars, PyArrow, DuckDB and others.

    It has the columns that a CSV of this party would have. The row labels of pandas take part if they have a name.
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's C stream (https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html)."""


Given = Frame | str | os.PathLike[str]
"""A party's table."""


def tables_of(
    job: Job, active: Given | None, passive: Given | Mapping[str, Given] | None
) -> tuple[dict[str, Path], dict[str, Frame]]:
    """Party → its file, and party → its table in memory; a party of which nothing is given is in neither.

    Raises:
        UsageError: something given is no table, there is no such file (``E_FILE``), or it is not clear whose table it is.
    """
    given: dict[str, Any] = {job.parties.active: active}
    if isinstance(passive, Mapping):
        if unknown := sorted(set(passive) - set(job.parties.passive)):
            raise UsageError(
                f"passive names {unknown[0]!r}, which is no passive party of this job",
                hint=f"its passive parties: {', '.join(job.parties.passive)}; or give one table: {_KINDS}",
            )
        given |= passive
    elif passive is not None:
        if len(job.parties.passive) > 1:
            raise UsageError("the job has several passive parties", hint="passive={NAME: its table, …}")
        given |= dict.fromkeys(job.parties.passive, passive)
    files, frames = {}, {}
    for party, table in given.items():
        if isinstance(table, str | os.PathLike):
            files[party] = Path(table)
            if not is_table(files[party]):
                raise UsageError(f"no file {table} (the table of {party})", code="E_FILE")
        elif isinstance(table, Frame):
            frames[party] = table
        elif table is not None:
            raise UsageError(f"the table of {party} is of type {type(table).__name__}", hint=f"give {_KINDS}")
    return files, frames


def write(frame: Frame, folder: Path, party: str) -> Path:
    """Write a party's table as an Arrow file in ``folder``, which only this user may read; returns its path.

    Raises:
        DataError: as :class:`vfl_node.data.readers.arrow.ArrowReader`.
    """
    import pyarrow as pa

    from vfl_node.data.readers.arrow import ArrowReader

    path = folder / f"{party}.arrow"
    batches = (batch.columns for batch in ArrowReader(frame, source=f"{party}: the table in memory").batches())
    first = next(batches)
    with path.open("xb") as file, pa.ipc.new_file(file, first.schema) as sink:
        for batch in chain([first], batches):
            sink.write_batch(batch)
    return path
