"""What a party stores for predictions: how to predict, which rows a peer was told about, what a service has exchanged."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import StringConstraints, TypeAdapter, ValidationError

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen
from vfl_node.errors import PolicyError, StateError
from vfl_node.process.files import add_head, read_checked, write_checked
from vfl_node.settings.refusals import tell_why
from vfl_node.training.prediction.names import find_known, join, missing
from vfl_node.training.predictor import Names, ServiceCount

VERSION = 2
"""Version of the form of its JSON; version 1 has no names of classes."""

STEPS: versions.Steps = {1: lambda document: {**document, "classes": []}}

_WHAT, _HINT = "what a training stored for predictions", "restore it from a backup, or train again"

_COUNTING = threading.Lock()

_COUNT = TypeAdapter(ServiceCount)

_TALLY_BYTES = 1024


class StoredPredictor(Frozen):
    """What predictions need.

    Attributes:
        input: digest of the records that took part, hexadecimal.
        encoder: JSON of the encoder that belongs to the model.
        serving: JSON, as :attr:`vfl_node.training.trainer.Servable.state`; holds a secret.
        classes: their names, as :attr:`vfl_node.data.tables.Table.classes`; empty at a party without labels.
        held_out: shared positions that were held out; None but in a trial.
        validated: shared positions set apart for validation; likewise.
        trial: of the job's sweep, from 0, whose model this is; None: the job has none.
    """

    input: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    encoder: str
    serving: str
    classes: tuple[str, ...] = ()
    held_out: tuple[int, ...] | None = None
    validated: tuple[int, ...] | None = None
    trial: int | None = None

    def to_json(self) -> str:
        """As JSON, with the version of its form."""
        return json.dumps({"version": VERSION, **self.model_dump(mode="json")}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> StoredPredictor:
        """What :meth:`to_json` wrote, of this version or an earlier one.

        Raises:
            StateError: it is something else (``E_STATE_CORRUPT``), or of a version that is not known (``E_STATE_VERSION``).
        """
        document = versions.parse(text, VERSION, STEPS, what=_WHAT, hint=_HINT)
        try:
            return cls.model_validate(document)
        except ValidationError:
            raise versions.damage_error(_WHAT, _HINT) from None


class FileShown:
    """The rows of one model (:class:`vfl_node.training.predictor.ShownRows`), for all services and directions over it.

    Rows held out in training, or validated on, met the same weights: the peer was told about them before anybody asked, so
    that they are attacked with the others, and are free.

    A checked file (:mod:`vfl_node.process.files`): the number of rows held out, these, and those told since, ascending, 8 bytes
    each.
    """

    def __init__(self, path: Path, most: int) -> None:
        """That in ``path``, of which there may be ``most`` rows (``budgets.predicted_rows``)."""
        self._path, self.most = path, most
        self._kept: tuple[tuple[int, ...], Names, Names] | None = None

    @classmethod
    def begin(cls, path: Path, held_out: Names) -> None:
        """Write ``path``, with the rows ``held_out`` alone: from then on its absence is an error."""
        _write(path, np.unique(held_out), np.empty(0, dtype=np.int64))

    def rows(self) -> Names:
        """All of them, held out or told since.

        Raises:
            StateError: the file is gone (``E_STATE_LOST``) or damaged (``E_STATE_CORRUPT``); it is not begun anew, since
                all that was told would be forgotten.
        """
        return join(*self._read())

    def _read(self) -> tuple[Names, Names]:
        """Rows held out, and others told since. The file is read again only where it has changed."""
        hint = "restore it from a backup, or train again: what the peer was told about would count anew"
        try:
            status = self._path.stat()
            state = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            if self._kept and self._kept[0] == state:
                return self._kept[1:]
            rows = read_checked(self._path, hint=hint)
        except FileNotFoundError:
            raise StateError(f"{self._path} is gone", code="E_STATE_LOST", hint=hint) from None
        numbers = np.frombuffer(rows, dtype="<i8").astype(np.int64)
        count = int(numbers[0])
        self._kept = state, numbers[1 : count + 1], numbers[count + 1 :]
        return self._kept[1:]

    @property
    def told(self) -> int:
        """How many rows the peer was told about beside those held out."""
        return len(self._read()[1])

    def check_room(self) -> None:
        """Refuse new records before their alignment where no further row may be told about. Raises PolicyError (``E_BUDGET``).

        Some of them may have been told about before and be free; which these are is not known before the alignment.
        """
        told = self.told
        if told >= self.most:
            raise self._too_many(told, "new records would add to them")

    def check(self, rows: Names) -> None:
        """As :meth:`vfl_node.training.predictor.ShownRows.check`."""
        self._merge(rows)

    def add(self, rows: Names) -> None:
        """As :meth:`vfl_node.training.predictor.ShownRows.add`."""
        with _COUNTING:  # two services over one model may run at once
            held_out, told, new = self._merge(rows)
            if len(new):
                _write(self._path, held_out, join(told, new))

    def _merge(self, rows: Names) -> tuple[Names, Names, Names]:
        """Rows held out, those told since, and those of ``rows`` that are neither."""
        held_out, told = self._read()
        new = missing(rows, held_out)
        new = new[~find_known(new, told)]
        if len(told) + len(new) > max(self.most, len(told)):  # rows told about earlier stay free if the limit was lowered
            raise self._too_many(len(told), f"this request would make it {len(told) + len(new)}")
        return held_out, told, new

    def _too_many(self, told: int, asked: str) -> PolicyError:
        return PolicyError(
            f"the peer was told about {told} rows of this model beside those held out; {asked}, and this node allows "
            f"{self.most} (budgets.predicted_rows)",
            code="E_BUDGET",
            hint="ask for records asked for before, or for fewer; or raise budgets.predicted_rows in the policy where "
            "the other party may have all of them under one set of weights (docs/guides/give-predictions.md)",
            for_peer=tell_why("budget"),
        )


def _write(path: Path, held_out: Names, later: Names) -> None:
    write_checked(path, np.concatenate([[len(held_out)], held_out, later]).astype("<i8").tobytes())


class FileTally:
    """What a service has exchanged, in the folder of its job (:class:`vfl_node.training.predictor.ServiceTally`).

    It outlives the process; a power failure may take back what was counted within its last seconds.
    """

    def __init__(self, folder: Path) -> None:
        """That of the job that is stored in ``folder``."""
        self._path = folder / "served"

    def read(self) -> ServiceCount | None:
        """What was written last; None: nothing yet. Raises StateError (``E_STATE_CORRUPT``)."""
        try:
            return _COUNT.validate_json(read_checked(self._path, hint="cancel the service; the next request begins another"))
        except FileNotFoundError:
            return None

    def write(self, count: ServiceCount) -> None:
        """Store ``count``; takes 20 µs after the first time."""
        text = _COUNT.dump_json(count).ljust(_TALLY_BYTES)
        try:
            opened = os.open(self._path, os.O_WRONLY)
        except FileNotFoundError:
            write_checked(self._path, text)
            return
        try:
            os.pwrite(opened, add_head(text), 0)  # always as long, so nothing of an earlier one is left
        finally:
            os.close(opened)
