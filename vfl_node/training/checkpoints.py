"""Where a party keeps what it needs to go on after a restart.

At the same epochs the parties store their own half under the same name. A trainer sees to it
that none is more than one checkpoint ahead of another (a party that only sends waits for an
answer first), so keeping two is enough for them to have one in common; the node agrees on its
name before training resumes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vfl_node.errors import StateError
from vfl_node.models import storage
from vfl_node.process import failpoints
from vfl_node.process.files import read_checked

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """One party's state at the end of an epoch.

    Attributes:
        tensors: weights and optimiser states.
        meta: JSON values: place, losses and results so far.
    """

    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]


class Checkpoints(Protocol):
    """Keeps the newest checkpoints of one job. Names sort by step."""

    def save(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Keep a checkpoint; when this returns it survives a crash."""

    def load(self, name: str) -> Checkpoint:
        """The checkpoint ``name``.

        Raises:
            StateError: it is not there or is damaged (``E_STATE_CORRUPT``).
        """

    def clear(self) -> None:
        """Remove all of them: the job begins anew."""

    def names(self) -> tuple[str, ...]:
        """The checkpoints that can be loaded, oldest first; a damaged one is not among them.

        Cost: every checkpoint is read once.
        """


def load_of(checkpoints: Checkpoints, name: str, schedule: str) -> Checkpoint:
    """The checkpoint ``name``, whose ``meta`` has the fingerprint of its schedule under ``schedule``.

    Raises:
        StateError: as :meth:`Checkpoints.load`, or it belongs to a schedule with another seed or size (``E_REPLAY``).
    """
    checkpoint = checkpoints.load(name)
    if checkpoint.meta["schedule"] != schedule:
        raise StateError(
            f"checkpoint {name} belongs to another schedule of batches than the one tossed now",
            code="E_REPLAY",
            hint="a job may be resumed only with the same secrets at both parties; submit a new job",
        )
    return checkpoint


class MemoryCheckpoints:
    """Checkpoints that live as long as the object."""

    def __init__(self, most: int = KEPT) -> None:
        self._kept = most
        self._checkpoints: dict[str, Checkpoint] = {}

    def save(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """As :meth:`Checkpoints.save`."""
        copies = {key: tensor.detach().cpu().clone() for key, tensor in tensors.items()}
        self._checkpoints[name] = Checkpoint(copies, json.loads(json.dumps(meta)))
        for old in self.names()[: -self._kept]:
            del self._checkpoints[old]

    def load(self, name: str) -> Checkpoint:
        """As :meth:`Checkpoints.load`."""
        if name not in self._checkpoints:
            raise _missing(name)
        return self._checkpoints[name]

    def clear(self) -> None:
        """As :meth:`Checkpoints.clear`."""
        self._checkpoints.clear()

    def names(self) -> tuple[str, ...]:
        """As :meth:`Checkpoints.names`."""
        return tuple(sorted(self._checkpoints))


class FileCheckpoints:
    """Checkpoints as checked files (:mod:`vfl_node.process.files`) ``NAME.checkpoint`` in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, name: str, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """As :meth:`Checkpoints.save`."""
        failpoints.reach("checkpoint")
        storage.keep(self._path(name), tensors, {"meta": json.dumps(meta, sort_keys=True)})
        failpoints.reach("checkpointed")
        for old in self._stored()[:-KEPT]:
            self._path(old).unlink(missing_ok=True)

    def load(self, name: str) -> Checkpoint:
        """As :meth:`Checkpoints.load`."""
        if name not in self._stored():
            raise _missing(name)
        tensors, metadata = storage.recall(self._path(name), hint="submit the job again; it starts anew")
        return Checkpoint(tensors, json.loads(metadata["meta"]))

    def clear(self) -> None:
        """As :meth:`Checkpoints.clear`."""
        for name in self._stored():
            self._path(name).unlink(missing_ok=True)

    def names(self) -> tuple[str, ...]:
        """As :meth:`Checkpoints.names`."""
        return tuple(name for name in self._stored() if self._is_whole(name))

    def _stored(self) -> list[str]:
        """Names of all checkpoints, damaged or not, oldest first."""
        return sorted(path.stem for path in self._folder.glob("*.checkpoint"))

    def _is_whole(self, name: str) -> bool:
        """Whether the file holds what was written there."""
        try:
            read_checked(self._path(name))
        except StateError:
            return False
        return True

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.checkpoint"


def _missing(name: str) -> StateError:
    return StateError(f"there is no checkpoint {name}", code="E_STATE_CORRUPT", hint="submit the job again; it starts anew")
