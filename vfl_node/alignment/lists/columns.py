"""Lists of elements on disk, which are appended chunk by chunk. After any kill they are whole up to the last finished chunk.

Beside the elements of a column (``NAME.rows``) lie its marks (``NAME.marks``): for every chunk its last row and its SHA-256.
Opening a column compares the two, and cuts both behind the last chunk that is whole. So neither a torn write nor a lost page
needs any other care.

Memory holds one chunk at a time. Files are private to the user (0600).
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfl_node.crypto.rows import Rows
from vfl_node.errors import StateError
from vfl_node.process import failpoints

_MARK_BYTES = 8 + 32


class Source(Protocol):
    """Elements in order, as often as they are asked for."""

    def __len__(self) -> int:
        """The number of elements."""

    def chunks(self, start: int = 0) -> Iterator[Rows]:
        """Those from ``start`` on, a chunk at a time."""


class Column:
    """One list of fixed-width elements in a file.

    Attributes:
        width: bytes an element.
        digest: running SHA-256 over all elements so far.
    """

    def __init__(self, path: Path, width: int, chunk_rows: int) -> None:
        """Open or begin the column at ``path`` (a name without suffix).

        Args:
            path: where; its folder exists.
            width: bytes an element.
            chunk_rows: elements that :meth:`chunks` gives at a time.
        """
        self.width = width
        self._path, self._chunk_rows = path.with_name(path.name + ".rows"), chunk_rows
        marks = path.with_name(path.name + ".marks")
        self._rows_fd, self._marks_fd = (os.open(name, os.O_RDWR | os.O_CREAT, 0o600) for name in (self._path, marks))
        self._count = 0
        self.digest = hashlib.sha256()
        self._recover()

    def __len__(self) -> int:
        return self._count

    def append(self, rows: Rows) -> None:
        """Add one chunk, uint8[k, width]; it is finished when this returns."""
        data = np.ascontiguousarray(rows).tobytes()
        failpoints.reach("align-store")
        self._count += len(rows)
        write_all(self._rows_fd, data)
        write_all(self._marks_fd, self._count.to_bytes(8, "big") + hashlib.sha256(data).digest())
        self.digest.update(data)

    def read(self, start: int, stop: int) -> Rows:
        """Elements ``start`` to ``stop``, a copy, uint8[stop − start, width]."""
        data = self._read_bytes(start, min(stop, self._count))
        return np.frombuffer(data, dtype=np.uint8).reshape(-1, self.width)

    def chunks(self, start: int = 0) -> Iterator[Rows]:
        """The elements from ``start`` on, a chunk at a time, as many as there are at each step."""
        while start < self._count:
            yield self.read(start, start + self._chunk_rows)
            start += self._chunk_rows

    @property
    def rows(self) -> Rows:
        """All elements, mapped into memory, read-only; do not keep a reference to them."""
        if not self._count:
            return np.empty((0, self.width), dtype=np.uint8)
        return np.memmap(self._path, dtype=np.uint8, mode="r", shape=(self._count, self.width))

    def clear(self) -> None:
        """Begin anew."""
        self._count, self.digest = 0, hashlib.sha256()
        self._cut(0)

    def sync(self) -> None:
        """Return when the column is durable: it stays the same after a loss of power."""
        os.fsync(self._rows_fd)
        os.fsync(self._marks_fd)

    def close(self) -> None:
        """Close the files. Idempotent."""
        for name in ("_rows_fd", "_marks_fd"):
            if (descriptor := getattr(self, name)) >= 0:
                os.close(descriptor)
                setattr(self, name, -1)

    def _read_bytes(self, start: int, stop: int) -> bytes:
        return os.pread(self._rows_fd, max(0, stop - start) * self.width, start * self.width)

    def _recover(self) -> None:
        """Count the chunks that are whole, and cut the files behind them."""
        whole, there = 0, os.fstat(self._rows_fd).st_size // self.width
        while len(mark := os.pread(self._marks_fd, _MARK_BYTES, whole * _MARK_BYTES)) == _MARK_BYTES:
            end = int.from_bytes(mark[:8], "big")
            if not self._count < end <= there:  # before as much memory is asked for
                break
            data = self._read_bytes(self._count, end)
            if hashlib.sha256(data).digest() != mark[8:]:
                break
            self.digest.update(data)
            self._count, whole = end, whole + 1
        self._cut(whole)

    def _cut(self, chunks: int) -> None:
        """Let the files end behind the elements that count, which are those of the first ``chunks`` chunks."""
        os.ftruncate(self._rows_fd, self._count * self.width)
        os.ftruncate(self._marks_fd, chunks * _MARK_BYTES)
        os.lseek(self._rows_fd, 0, os.SEEK_END)
        os.lseek(self._marks_fd, 0, os.SEEK_END)


class Chosen:
    """Elements picked from columns, in an order of their own.

    Args:
        columns: where they lie, one behind the other.
        places: int64[n]; each one's place in the columns together.
        chunk_rows: elements gathered at a time.
    """

    def __init__(self, columns: Sequence[Column], places: NDArray[np.int64], chunk_rows: int) -> None:
        self._columns, self._places, self._chunk_rows = columns, places, chunk_rows

    def __len__(self) -> int:
        return len(self._places)

    def chunks(self, start: int = 0) -> Iterator[Rows]:
        """The elements from ``start`` on, a chunk at a time."""
        for first in range(start, len(self._places), self._chunk_rows):
            yield self._gather(self._places[first : first + self._chunk_rows])

    def _gather(self, places: NDArray[np.int64]) -> Rows:
        gathered = np.empty((len(places), self._columns[0].width), dtype=np.uint8)
        for column in self._columns:
            inside = (places >= 0) & (places < len(column))
            gathered[inside] = column.rows[places[inside]]
            places = places - len(column)
        return gathered


class Given:
    """Elements that lie in memory.

    Args:
        rows: uint8[n, width].
        chunk_rows: elements a chunk.
    """

    def __init__(self, rows: Rows, chunk_rows: int) -> None:
        self._rows, self._chunk_rows = rows, chunk_rows

    def __len__(self) -> int:
        return len(self._rows)

    def chunks(self, start: int = 0) -> Iterator[Rows]:
        """The elements from ``start`` on, a chunk at a time."""
        for first in range(start, len(self._rows), self._chunk_rows):
            yield self._rows[first : first + self._chunk_rows]


class Columns:
    """The columns of one alignment at one party, in a private folder.

    Attributes:
        folder: where they lie.
        width: bytes an element.

    Args:
        folder: created if it is absent (0700).
        width: bytes an element.
        chunk_rows: elements a chunk.
    """

    def __init__(self, folder: Path, *, width: int, chunk_rows: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self.width, self._chunk_rows = folder, width, chunk_rows
        self._open: dict[str, Column] = {}

    def column(self, name: str) -> Column:
        """The column called ``name``, with what earlier attempts finished of it."""
        if name not in self._open:
            self._open[name] = Column(self._path(name), self.width, self._chunk_rows)
        return self._open[name]

    def held_counts(self, names: Iterable[str]) -> dict[str, int]:
        """How many elements of each column are finished; a column that does not exist stays so, and takes no open file."""
        there = {path.name for path in self.folder.iterdir()}
        return {name: len(self.column(name)) if f"{self._path(name).name}.marks" in there else 0 for name in names}

    def release(self, name: str) -> None:
        """Close the files of a column that this attempt no longer needs."""
        if name in self._open:
            self._open.pop(name).close()

    def free_bytes(self) -> int:
        """What the disk has room for, columns that are there already included."""
        there = sum(file.stat().st_size for file in self.folder.iterdir())
        return shutil.disk_usage(self.folder).free + there

    def need_room(self, elements: int, *, beside: int = 0) -> None:
        """Check that the disk has room for so many elements, columns that are there already included.

        Args:
            elements: in columns.
            beside: bytes of other files.

        Raises:
            StateError: it has not (``E_DISK_FULL``).
        """
        needed, free = elements * self.width + beside, self.free_bytes()
        if needed > free:
            raise StateError(
                f"the alignment needs up to {needed / 2**30:.3g} GiB in {self.folder}; {free / 2**30:.3g} GiB are free",
                code="E_DISK_FULL",
                hint="free space or set state_dir to a larger disk, then go on: vfl-node resume JOB",
                for_peer="its disk is too small",
            )

    def _path(self, name: str) -> Path:
        return self.folder / name.replace(" ", "-")

    def close(self) -> None:
        """Close all files. Idempotent."""
        for column in self._open.values():
            column.close()
        self._open.clear()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data`` to a file."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
