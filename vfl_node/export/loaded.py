"""A half from its ONNX file: numpy and onnxruntime compute it, and torch is not loaded."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from vfl_node.data.dates import DAY_S
from vfl_node.data.tables import CategoricalColumn, Column, DateColumn, NumericColumn, Table
from vfl_node.errors import UsageError
from vfl_node.export.reading import Given, open_given, read_cells
from vfl_node.halves.graph import ABOUT, check_installed, export_error
from vfl_node.halves.half import About, Floats

CARD = "card.json"


@dataclass(frozen=True)
class FileForm:
    """What stands in a file's metadata.

    Attributes:
        about: the half.
        received: names of the inputs for what other parties give, in the order of ``about.others``.
        result: name of the output.
        encoded: part of what the encoder makes → name of the output.
        version: of this form.
    """

    about: About
    received: tuple[str, ...]
    result: str
    encoded: Mapping[str, str]
    version: Literal[1] = 1


FORM = TypeAdapter(FileForm)


class LoadedHalf:
    """One party's half; :func:`load` makes it.

    Attributes:
        about: whose half it is, what it reads and what it gives.
    """

    def __init__(self, model: bytes, source: str) -> None:
        """Take a file's bytes; ``source`` names it in errors. Raises UsageError (``E_EXPORT``)."""
        check_installed("onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        refused: tuple[type[BaseException], ...] = (KeyError, ValidationError, *failures())
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            self._form = FORM.validate_json(self._session.get_modelmeta().custom_metadata_map[ABOUT])
        except refused:
            raise export_error(
                f"{source} is no half that this vfl-node has exported", "give the .onnx file of an export; or export it again"
            ) from None
        self.about = self._form.about

    def __repr__(self) -> str:
        return f"LoadedHalf({self.about.party}: {len(self.about.reads)} columns in, {self.about.gives} out)"

    def encode(self, frame: Given) -> dict[str, NDArray[Any]]:
        """What the encoder makes of the cells of n rows.

        Of a network ``numeric`` float32[n, p] and ``codes`` int64[n, c]; of another model ``columns`` float64[n, d]. A kind of
        which there are none is left out.

        Args:
            frame: a frame of pandas or polars, an Arrow table or the path of a file, with the columns of ``about.reads``.

        Raises:
            DataError: a column is missing, or a cell cannot be read.
        """
        return self.encoded(self._read(frame))

    def embed(self, frame: Given) -> NDArray[Any]:
        """What this party gives to the half that predicts: float32[n, d], or partial scores float64[n, d].

        Args:
            frame: as for :meth:`encode`.

        Raises:
            DataError: likewise.
            UsageError: this is the half that predicts.
        """
        return self.part(self._read(frame))

    def score(self, frame: Given, parts: Mapping[str, NDArray[Any]]) -> Floats:
        """What the model says of n records, float64[n] or of K > 2 classes [n, K]: probabilities, or numbers.

        Args:
            frame: of this party, as for :meth:`encode`; None where it has no columns.
            parts: each other party → what its half gives of the same records in the same order.

        Raises:
            DataError: likewise.
            UsageError: this is no half that predicts, or something of another party is missing or of another shape.
        """
        lacking = [name for name in self.about.others if name not in parts]
        if lacking:
            raise UsageError(f"what the half of {lacking[0]} gives is missing", hint=f"parts={{{lacking[0]!r}: its embedding}}")
        if frame is None and self.about.reads:
            raise UsageError(f"the table of {self.about.party} is missing", hint="give its frame: the half reads columns of it")
        return self.predicted(None if frame is None else self._read(frame), [parts[name] for name in self.about.others])

    def encoded(self, table: Table) -> dict[str, NDArray[Any]]:
        """As :meth:`encode`, of a table that is read already."""
        encoded, names = self._form.encoded, list(self._form.encoded.values())
        return dict(zip(encoded, self._run(names, self._cells(table)), strict=True)) if names else {}

    def part(self, table: Table) -> NDArray[Any]:
        """As :meth:`embed`, of a table that is read already."""
        if self.about.predicts:
            raise UsageError(f"the half of {self.about.party} predicts: it gives no embedding", hint="use score()")
        (result,) = self._run([self._form.result], self._cells(table))
        return result

    def predicted(self, table: Table | None, parts: Sequence[NDArray[Any]]) -> Floats:
        """As :meth:`score`, of a table that is read already, with ``parts`` in the order of ``about.others``."""
        if not self.about.predicts:
            raise UsageError(
                f"the half of {self.about.party} does not predict", hint="use embed(), and score() of the other half"
            )
        feed = {} if table is None else self._cells(table)
        for party, name, part in zip(self.about.others, self._form.received, parts, strict=True):
            try:
                numbers = np.asarray(part, dtype=self._part_type)
            except (ValueError, TypeError):
                raise UsageError(f"what {party} gives are no numbers", hint="give what embed() of its half gives") from None
            rows = (len(numbers) if numbers.ndim else 0) if table is None else len(table)
            if numbers.shape != (rows, self.about.width):
                due = f"[{rows}, {self.about.width}]"
                raise UsageError(f"what {party} gives is {list(numbers.shape)}, and {due} is due", hint="give the same records")
            feed[name] = numbers
        (result,) = self._run([self._form.result], feed)
        return np.asarray(result)

    def _read(self, frame: Given) -> Table:
        return read_cells(open_given(frame, self.about.party), self.about.reads)[0]

    def _cells(self, table: Table) -> dict[str, NDArray[Any]]:
        return {name: _cells(table.columns[name]) for name in self.about.reads}

    def _run(self, outputs: list[str], feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        rows = len(next(iter(feed.values())))
        unused = {name: np.zeros((rows, self.about.width), self._part_type) for name in self._form.received if name not in feed}
        found: list[NDArray[Any]] = self._session.run(outputs, {**feed, **unused})
        return found

    @property
    def _part_type(self) -> type[Any]:
        types = {each.name: each.type for each in self._session.get_inputs()}
        return np.float32 if types[self._form.received[0]] == "tensor(float)" else np.float64


def load(path: str | os.PathLike[str]) -> LoadedHalf:
    """The half in an ONNX file that ``vfl-node export`` or ``Result.export`` has written.

    Where ``card.json`` lies beside it, the file must be the one that the card names.

    Raises:
        UsageError: onnxruntime is not installed (``E_EXTENSION``), there is no such file (``E_FILE``), or it is no such half,
            or not the one of its card (``E_EXPORT``).
    """
    file = Path(path)
    try:
        model = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", code="E_FILE") from None
    check_card(file.parent / CARD, file.name, model)
    return LoadedHalf(model, str(file))


def check_card(card: Path, name: str, content: bytes) -> None:
    """Refuse a file that is not the one of its card. Raises UsageError (``E_EXPORT``)."""
    try:
        files = json.loads(card.read_text(encoding="utf-8"))["files"]
        due = files.get(name, {}).get("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return  # no card beside it
    if due is not None and due != hashlib.sha256(content).hexdigest():
        raise export_error(f"{name} is not the file of which {card} speaks", "export it again, or copy it again")


def _cells(column: Column) -> NDArray[Any]:
    """A column as a graph reads it."""
    if isinstance(column, NumericColumn):
        return column.values[:, None]
    if isinstance(column, DateColumn):
        return column.seconds[:, None] / DAY_S
    assert isinstance(column, CategoricalColumn)  # lists are in no file
    return np.array([*column.levels, ""], dtype=object)[column.codes]


def failures() -> list[type[Exception]]:
    """What onnxruntime raises of bytes that are no model."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return [value for value in vars(state).values() if isinstance(value, type) and issubclass(value, Exception)]
