"""Which rows of a model a node has told its peer about, kept beside the model."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from vfl_node.errors import PolicyError, StateError
from vfl_node.process.files import read_checked, write_checked
from vfl_node.training.serving import Names

_COUNTING = threading.Lock()


class FileShown:
    """The rows of one model (:class:`vfl_node.training.serving.ShownRows`), for all services and directions over it.

    Rows held out in training, or validated on, met the same weights: the peer was told about them before anybody asked, so
    that they are attacked with the others, and are free.

    A checked file (:mod:`vfl_node.process.files`): the number of rows held out, these, and those told since, ascending, 8 bytes
    each.
    """

    def __init__(self, path: Path, most: int) -> None:
        """That in ``path``, of which there may be ``most`` rows (``limits.rows_per_model``)."""
        self._path, self.most = path, most

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
        return np.union1d(*self._read())

    def _read(self) -> tuple[Names, Names]:
        """Rows held out, and others told since."""
        hint = "restore it from a backup, or train again: what the peer was told about would count anew"
        try:
            rows = read_checked(self._path, hint=hint)
        except FileNotFoundError:
            raise StateError(f"{self._path} is gone", code="E_STATE_LOST", hint=hint) from None
        count, *_ = numbers = np.frombuffer(rows, dtype="<i8").astype(np.int64)
        return numbers[1 : count + 1], numbers[count + 1 :]

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
        """As :meth:`vfl_node.training.serving.ShownRows.check`."""
        self._with(rows)

    def add(self, rows: Names) -> None:
        """As :meth:`vfl_node.training.serving.ShownRows.add`."""
        with _COUNTING:  # two services over one model may run at once
            _write(self._path, *self._with(rows))

    def _with(self, rows: Names) -> tuple[Names, Names]:
        held_out, later = self._read()
        every = np.setdiff1d(np.union1d(later, rows), held_out)
        if len(every) > max(self.most, len(later)):  # rows told about earlier stay free if the limit was lowered
            raise self._too_many(len(later), f"this request would make it {len(every)}")
        return held_out, every

    def _too_many(self, told: int, asked: str) -> PolicyError:
        return PolicyError(
            f"the peer was told about {told} rows of this model beside those held out; {asked}, and this node allows "
            f"{self.most} (limits.rows_per_model)",
            code="E_BUDGET",
            hint="ask for records that were asked for before, or for fewer; or raise limits.rows_per_model where the other "
            "party may have all of them under one set of weights (docs/guides/give-predictions.md)",
            for_peer="its owner's settings do not allow more rows of this model",
        )


def _write(path: Path, held_out: Names, later: Names) -> None:
    write_checked(path, np.concatenate([[len(held_out)], held_out, later]).astype("<i8").tobytes())
