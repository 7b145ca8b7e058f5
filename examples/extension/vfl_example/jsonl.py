"""The reader ``jsonl``: one JSON object a line, each with the same keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vfl_node.data.readers.contract import RowBatch
from vfl_node.errors import DataError

BATCH_ROWS = 4096


class JsonLines:
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

    def batches(self) -> Iterator[RowBatch]:
        """As the contract says: cells are text; errors name the place and never a cell."""
        rows: list[list[str]] = []
        places: list[int] = []
        line, text = 1, self._first
        while text:
            values = self._object(text, line)
            if tuple(values) != self.names:
                raise DataError(f"{self.source}:{line}: other keys than in the first line", code="E_JSON")
            rows.append(["" if value is None else str(value).strip().replace("\0", "") for value in values.values()])
            places.append(line)
            if len(rows) == BATCH_ROWS:
                yield RowBatch(list(zip(*rows, strict=True)), places)
                rows, places = [], []
            line, text = line + 1, self._file.readline()
        if rows:
            yield RowBatch(list(zip(*rows, strict=True)), places)

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
