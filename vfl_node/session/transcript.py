"""What split training exchanges, row by row, on the disk of a trial: for outside judges of attacks and defences.

A service of an organisation has none: only ``vfl-node run --transcript`` asks for it (:mod:`vfl_node.execution.trial`). The
file is 8 bytes, the width d (little-endian), and a record for each row: step and row of the file (int64 each), the embedding
and the gradient (float32[d] each). So memory is bounded, and what an attempt wrote after its last checkpoint is cut off in one
place.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vfl_node.files import writing_whole

What = Literal["embeddings", "gradients"]

_HEAD_BYTES = 8
_BLOCK = 1 << 14  # rows in memory at a time


class Transcript:
    """The rows that one passive party has sent, and the gradients that it got for them.

    Args:
        path: of the file.
        places: int64[n], the row of the party's file of each record that takes part; None: they are the same.
    """

    def __init__(self, path: Path, places: NDArray[np.int64] | None = None) -> None:
        self._path, self._places = path, places

    def add(self, step: int, rows: NDArray[np.int64], embeddings: NDArray[np.float32], gradients: NDArray[np.float32]) -> None:
        """Append one step.

        Args:
            step: its number, from 0.
            rows: int64[B], this party's records; negative where it has none.
            embeddings: float32[B, d], as they were sent.
            gradients: float32[B, d], as they were received.
        """
        records = np.empty(len(rows), dtype=_record(embeddings.shape[1]))
        in_file = rows if self._places is None else self._places[np.maximum(rows, 0)]
        records["step"], records["rows"] = step, np.where(rows < 0, -1, in_file)
        records["embeddings"], records["gradients"] = embeddings, gradients
        with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            if file.tell() == 0:
                file.write(embeddings.shape[1].to_bytes(_HEAD_BYTES, "little"))
            file.write(records.data)

    def cut(self, rows: int) -> None:
        """Keep the first ``rows`` rows only: the others are written again."""
        if rows == 0:
            self._path.unlink(missing_ok=True)
        else:
            os.truncate(self._path, _HEAD_BYTES + rows * self._dtype().itemsize)

    def keep(self) -> None:
        """Make durable what was added: a checkpoint relies on it."""
        opened = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)

    def write(self, out: Path, what: What) -> None:
        """Write ``out``, an npz file (0600) of ``step`` and ``rows``, int64[N], and ``what``, float32[N, d].

        Raises:
            OSError: it cannot be written.
        """
        records = np.memmap(self._path, self._dtype(), "r", offset=_HEAD_BYTES)
        with writing_whole(out) as file, zipfile.ZipFile(file, "w") as archive:
            for name in ("step", "rows", what):
                column = records[name]
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    head = {"descr": column.dtype.str, "fortran_order": False, "shape": column.shape}
                    np.lib.format.write_array_header_1_0(entry, head)
                    for start in range(0, len(column), _BLOCK):
                        entry.write(column[start : start + _BLOCK].tobytes())

    def _dtype(self) -> np.dtype[Any]:
        with self._path.open("rb") as file:
            return _record(int.from_bytes(file.read(_HEAD_BYTES), "little"))


def _record(width: int) -> np.dtype[Any]:
    return np.dtype([("step", "<i8"), ("rows", "<i8"), ("embeddings", "<f4", (width,)), ("gradients", "<f4", (width,))])
