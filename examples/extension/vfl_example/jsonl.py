"""The reader ``jsonl``: each line is a JSON object, and all have the same keys."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from vfl_node.data.readers.contract import Reader, RowBatch
from vfl_node.errors import DataError

BATCH_ROWS = 4096


class JsonLines(Reader):
    """A :class:`~vfl_node.data.readers.contract.Reader`: ``data: {path: …, format: jsonl}`` in a node's settings."""

    def __init__(self, path: Path, *, party: str) -> None:
        self.source = f"{party}: {path}"
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise DataError(f"{self.source}: cannot be read ({error.strerror})", code="E_FILE") from None
        self._first = self._file.readline()
        if not self._first:
            raise DataError(f"{self.source}: the file is empty", code="E_EMPTY")
        self.names = tuple(self._object(self._first, 1))

    def batches(self, columns: Collection[str] | None = None) -> Iterator[RowBatch]:
        """As the contract says. Errors name the line, and never contain a cell."""
        rows: list[dict[str, str | None]] = []
        lines: list[int] = []
        line, text = 1, self._first
        while text:
            values = self._object(text, line)
            if tuple(values) != self.names:
                raise DataError(f"{self.source}:{line}: other keys than in the first line", code="E_JSON")
            rows.append({name: _text(value) for name, value in values.items()})
            lines.append(line)
            if len(rows) == BATCH_ROWS:
                yield RowBatch(pa.RecordBatch.from_pylist(rows), lines)
                rows, lines = [], []
            line, text = line + 1, self._file.readline()
        if rows:
            yield RowBatch(pa.RecordBatch.from_pylist(rows), lines)

    def close(self) -> None:
        """As the contract says."""
        self._file.close()

    def _object(self, text: bytes, line: int) -> dict[str, Any]:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested without end
            values = None
        if not isinstance(values, dict) or not values:
            raise DataError(f"{self.source}:{line}: not a JSON object", code="E_JSON")
        return values


def _text(value: Any) -> str | None:
    """The text of a cell; None if it has no value."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.strip().replace("\0", "")
