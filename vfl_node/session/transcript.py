"""What training exchanges, row by row, on the disk of a trial: for outside judges of attacks and defences.

A service of an organisation has none: only ``vfl-node run --transcript`` asks for it (:mod:`vfl_node.execution.trial`). A
passive party notes what it sends and gets. Which of the active party's records lie beside it a passive party does not know: the
active party notes that itself, and who has the folders of both joins them.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vfl_node.process.files import writing_whole

What = Literal["embeddings", "gradients", "projections"]
Rows = NDArray[np.int64]

_HEAD_BYTES = 8
_BLOCK = 1 << 14  # rows in memory at a time


class Transcript:
    """What one party of a trial leaves.

    Args:
        folder: where it lies; made if it is not there.
        places: int64[n], the row of the party's file of each record that takes part; None: they are the same.

    Attributes:
        embeddings: that a passive party has sent, beside the gradients that it got for them.
        projections: that it has sent, beside those of the active party.
    """

    def __init__(self, folder: Path, places: Rows | None = None) -> None:
        self._places, self._rows = places, folder / "rows.npy"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.embeddings, self.projections = (Steps(folder / name, places) for name in ("embeddings", "projections"))

    def keep_rows(self, rows: Rows) -> None:
        """Note this party's records at the shared positions: int64[m], negative where it has none."""
        with writing_whole(self._rows) as file:
            np.save(file, file_rows(rows, self._places))

    @property
    def rows(self) -> Rows:
        """What :meth:`keep_rows` noted, as rows of the party's file, −1 for none. Raises OSError: nothing was."""
        noted: Rows = np.load(self._rows)
        return noted


class Steps:
    """Lines of several steps, in one file: one for each row of a step.

    The file is 8 bytes, the width d (little-endian), and for each line: repeat, step, shared position, row of this party's file
    and number among what was sent in the step (int64 each), then what was sent and what was got (float32[d] each). So memory is
    bounded, and what an attempt wrote after its last checkpoint is cut off in one place.

    Args:
        path: of the file.
        places: as for :class:`Transcript`.

    Attributes:
        extent: how many steps there are, over all repeats, and how many lines.
    """

    def __init__(self, path: Path, places: Rows | None = None) -> None:
        self._path, self._places = path, places
        self.extent = (0, 0)

    def add(
        self, repeat: int, positions: Rows, rows: Rows, numbers: Rows, sent: NDArray[np.float32], got: NDArray[np.float32]
    ) -> None:
        """Append one step, the next one.

        Args:
            repeat: in which it is, from 0.
            positions: int64[B], the shared position of each line.
            rows: int64[B], this party's records; negative where it has none.
            numbers: int64[B], which of all that was sent in the step each line is of.
            sent: float32[B, d], as it was sent.
            got: float32[B, d], as it was received for that.
        """
        steps, lines = self.extent
        records = np.empty(len(rows), dtype=_record(sent.shape[1]))
        records["repeat"], records["step"], records["positions"] = repeat, steps, positions
        records["rows"], records["number"] = file_rows(rows, self._places), numbers
        records["sent"], records["got"] = sent, got
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            if file.tell() == 0:
                file.write(sent.shape[1].to_bytes(_HEAD_BYTES, "little"))
            file.write(records.data)
        self.extent = steps + 1, lines + len(rows)

    def cut(self, steps: int, lines: int) -> None:
        """Keep the first ``steps``, which have so many ``lines``: the others are written again."""
        if lines == 0:
            self._path.unlink(missing_ok=True)
        else:
            os.truncate(self._path, _HEAD_BYTES + lines * self._dtype().itemsize)
        self.extent = steps, lines

    def keep(self) -> None:
        """Make durable what was added: a checkpoint relies on it."""
        if self.extent == (0, 0):
            return
        opened = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    def write(self, out: Path, what: What, column: Literal["sent", "got"], active: Rows) -> None:
        """Write ``out``, an npz file (0600).

        Args:
            out: the file, of ``repeat``, ``step``, ``positions``, ``rows``, ``active_rows`` and ``number``, int64[N], and
                ``what``, float32[N, d].
            what: the name of the last.
            column: what that is.
            active: int64[m], the active party's :attr:`Transcript.rows`.

        Raises:
            OSError: it cannot be written, or nothing was recorded.
        """
        records = np.memmap(self._path, self._dtype(), "r", offset=_HEAD_BYTES)
        columns: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
            "repeat": lambda lines: lines["repeat"],
            "step": lambda lines: lines["step"],
            "positions": lambda lines: lines["positions"],
            "rows": lambda lines: lines["rows"],
            "active_rows": lambda lines: active[lines["positions"]],
            "number": lambda lines: lines["number"],
            what: lambda lines: lines[column],
        }
        with writing_whole(out) as file, zipfile.ZipFile(file, "w") as archive:
            for name, column_of in columns.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    like = column_of(records[:1])
                    head = {"descr": like.dtype.str, "fortran_order": False, "shape": (len(records), *like.shape[1:])}
                    np.lib.format.write_array_header_1_0(entry, head)
                    for start in range(0, len(records), _BLOCK):
                        entry.write(column_of(records[start : start + _BLOCK]).tobytes())

    def _dtype(self) -> np.dtype[Any]:
        with self._path.open("rb") as file:
            return _record(int.from_bytes(file.read(_HEAD_BYTES), "little"))


def file_rows(rows: Rows, places: Rows | None) -> Rows:
    """Rows of the party's file, int64[B]; −1 for a negative one. ``places`` as for :class:`Transcript`."""
    return np.where(rows < 0, -1, rows if places is None else places[np.maximum(rows, 0)])


def _record(width: int) -> np.dtype[Any]:
    numbers = [(name, "<i8") for name in ("repeat", "step", "positions", "rows", "number")]
    return np.dtype([*numbers, ("sent", "<f4", (width,)), ("got", "<f4", (width,))])
