"""What a party stores of a training to predict with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, StringConstraints, ValidationError
from torch import Tensor

from vfl_node.configuration.versions import Steps, damage_error, parse
from vfl_node.data.features import Encoder, kind_of
from vfl_node.data.lists import ListLevels
from vfl_node.job import Serve
from vfl_node.models import Architecture, architecture_of, check_version, cut_width
from vfl_node.roles import NUMBER_TASKS
from vfl_node.settings.declared import Declared
from vfl_node.settings.node import DEFAULT_TABLE
from vfl_node.training.prediction.sides import ServiceTerms
from vfl_node.training.predictor import StoredModel
from vfl_node.training.split.config import Train
from vfl_node.training.split.tasks import SplitTask, stored_task
from vfl_node.training.targets import TargetScale

VERSION = 4
"""Version of the form of :attr:`SplitModel.state`. Version 1 does not state the version of the architecture, which was 1;
up to version 2 no epoch was chosen by validation; up to version 3 no synthetic rows were those of another training."""

STEPS: Steps = {
    1: lambda document: {**document, "model_version": 1},
    2: lambda document: document,
    3: lambda document: document,
}

_WHAT, _HINT = "what a training stored for predictions", "restore it from a backup, or train again"


@dataclass(frozen=True)
class SplitModel:
    """One party's part of a trained model.

    Attributes:
        train: the ``train`` section of the training job.
        serve: its ``serve`` section.
        weights: parameter → tensor, as :attr:`~vfl_node.training.trainer.Trained.weights`.
        encoder: JSON of the encoder of the party's columns.
        state: JSON, as :attr:`~vfl_node.training.trainer.Servable.state`; holds a secret.
        models: name → ``module:Class`` of an architecture, from this node's settings.
        passive_parties: how many sent embeddings in training.
        table: as :attr:`~vfl_node.training.predictor.StoredModel.table`.
    """

    train: Train
    serve: Serve
    weights: Mapping[str, Tensor] = field(repr=False)
    encoder: str = field(repr=False)
    state: str = field(repr=False)
    models: Mapping[str, str] = field(default_factory=dict)
    passive_parties: int = 1
    table: str = DEFAULT_TABLE

    @classmethod
    def load(cls, model: StoredModel) -> SplitModel:
        """The model that a node has stored."""
        job = model.job
        assert job.serve is not None
        passive = len(job.parties.passive)
        return cls(
            Train.section_of(job), job.serve, model.weights, model.encoder, model.state, model.models, passive, model.table
        )

    @cached_property
    def architecture(self) -> Architecture:
        """Builds the networks.

        Raises:
            StateError: the architecture has another version than the stored weights (``E_STATE_VERSION``).
            UsageError: this node no longer has the architecture (``E_EXTENSION``).
        """
        architecture, stored = architecture_of(self.train.model, self.models), self._stored.model_version
        check_version(self.train.model, architecture.version, stored)
        return architecture

    @property
    def draws(self) -> bytes:
        """32 secret bytes: the seed of all else that is drawn."""
        return bytes.fromhex(self._stored.draws)

    @property
    def synthetic(self) -> bytes:
        """32 secret bytes: the seed of the synthetic columns of rows that the party does not own."""
        return bytes.fromhex(self._stored.synthetic or self._stored.draws)

    @property
    def batches(self) -> bytes:
        """32 bytes that all parties know: the seed by which the shared rows are cut into batches."""
        return bytes.fromhex(self._stored.batches)

    @property
    def terms(self) -> ServiceTerms:
        """What all parties have in common."""
        return ServiceTerms(self.serve, self.batches, self.train.task, self.train.classes, cut_width(self.train))

    @property
    def epoch(self) -> int:
        """The epoch whose weights these are, if validation has chosen it; else 0. Rows are named by it (the same noise)."""
        return self._stored.epoch

    @property
    def scoring(self) -> tuple[str, SplitTask]:
        """At the active party: JSON of the calibration, and what its labels are. Raises StateError if missing."""
        stored = self._stored
        numbers = self.train.task in NUMBER_TASKS
        if stored.calibration is None or stored.positive_rate is None or numbers != (stored.target is not None):
            raise damage_error(_WHAT, _HINT)
        return stored.calibration, stored_task(self.train, stored.positive_rate, stored.target)

    @property
    def offset_columns(self) -> Mapping[str, str]:
        """``offset`` or ``exposure`` → the column behind it; empty without, and at a passive party."""
        return self._stored.offset

    @cached_property
    def _stored(self) -> _StoredModel:
        return _read(self.state)


_Seed = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _StoredModel(BaseModel, extra="forbid", frozen=True):
    """The content of ``state``, in its newest version."""

    model_version: int
    draws: _Seed
    synthetic: _Seed | None = None
    batches: _Seed
    calibration: str | None = None
    positive_rate: float | None = None
    epoch: int = 0
    target: TargetScale | None = None
    offset: Mapping[str, str] = {}


def _read(state: str) -> _StoredModel:
    """The content of ``state``. Raises StateError if it is none (``E_STATE_CORRUPT``)."""
    document = parse(state, VERSION, STEPS, what=_WHAT, hint=_HINT)
    try:
        return _StoredModel.model_validate(document)
    except ValidationError:
        raise damage_error(_WHAT, _HINT) from None


def row_numbers(state: str) -> Mapping[str, str]:
    """As :attr:`SplitModel.offset_columns`, of a stored ``state``. Raises StateError (``E_STATE_CORRUPT``)."""
    return _read(state).offset


def column_kinds(encoder: str) -> dict[str, Declared]:
    """Column → kind, for the columns that a model reads, and how they are written.

    In a short file, kinds that are inferred may differ from these.

    Args:
        encoder: JSON, as :attr:`SplitModel.encoder`.

    Raises:
        StateError: it is not an encoder (``E_STATE_CORRUPT``).
    """
    stored = Encoder.from_json(encoder)
    lists = {column.name: column.declared for column in stored.columns if isinstance(column, ListLevels)}
    return stored.declare({column.name: kind_of(column) for column in stored.columns}) | lists
