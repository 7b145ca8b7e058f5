"""Weights of evidence in place of a party's columns: what a scorecard reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, ValidationError, model_validator

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen
from vfl_node.data.bins import Bins, column_of, describe_column
from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.data.transforms import Finite
from vfl_node.settings.declared import Kind

_WHAT, _HINT = "the weights of evidence", "run a job with statistics again, and use its alignment"


class WeighedColumn(Frozen):
    """A column and the weight of evidence of each of its bins, the last one that of missing values."""

    bins: Bins
    weights: tuple[Finite, ...]

    @model_validator(mode="after")
    def _fits(self) -> WeighedColumn:
        if len(self.weights) != self.bins.count:
            raise ValueError("a weight for each bin")
        return self

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.bins.name


class EvidenceColumns(Frozen):
    """What a party replaces its columns by. It contains cuts and levels of its own data, and stays with it.

    Attributes:
        job: the id of the job that counted the bins.
        columns: those that have weights; a table is without all others then.
    """

    job: str
    columns: tuple[WeighedColumn, ...]

    @property
    def kinds(self) -> dict[str, Kind]:
        """Column → kind, of those that are read."""
        return {each.name: each.bins.holds for each in self.columns}

    def choose(self, names: Collection[str]) -> EvidenceColumns:
        """The same of some columns alone."""
        return self.model_copy(update={"columns": tuple(each for each in self.columns if each.name in names)})

    def transform(self, table: Table) -> Table:
        """The same records, with a column of weights in place of each one that has some. No weight is missing.

        Raises:
            DataError: a column is missing or of another kind (``E_COLUMN``).
        """
        columns = {
            each.name: NumericColumn(np.array(each.weights)[each.bins.bins_of(column_of(each.bins, table))])
            for each in self.columns
        }
        return replace(table, columns=columns, image=None)

    def encoded(self, table: Table) -> tuple[EncodedColumn, ...]:
        """What is made of each column of a table."""
        read = {each.name: each.bins for each in self.columns}
        return tuple(describe_column(name, column, read.get(name)) for name, column in table.columns.items())


def weigh(table: Table, evidence: EvidenceColumns | None) -> Table:
    """The table as a model reads it, by weights of evidence if there are some. Raises DataError (``E_COLUMN``)."""
    return evidence.transform(table) if evidence else table


class KeptEvidence(Frozen):
    """Weights of evidence as they are kept for jobs that use the alignment again.

    Attributes:
        columns: the weights.
        held_out: part of the shared rows that was not counted; 0: all were.
        split: SHA-256 of the seed by which these rows were held out, hexadecimal.
        noised: whether what was counted had noise (``statistics.epsilon``). Without it one record moves the weight of each
            other one in its bin, and no ε of a training covers that.
    """

    version: ClassVar[int] = 2
    steps: ClassVar[versions.Steps] = {1: lambda document: document | {"noised": False}}  # which did not say

    columns: EvidenceColumns
    held_out: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
    split: str
    noised: bool

    @classmethod
    def from_counted(cls, columns: EvidenceColumns, held_out: float, split: bytes, *, noised: bool) -> KeptEvidence:
        """Those of a job whose seed of held-out rows is ``split``."""
        return cls(columns=columns, held_out=held_out, split=_digest(split), noised=noised)

    def spares(self, test_fraction: float, split: bytes | None) -> bool:
        """Whether no label of the rows was counted that a job holds out by the seed ``split``; None: by one of its own.

        By one seed a smaller fraction holds out some of the rows of a larger one.
        """
        return test_fraction == 0 or (split is not None and _digest(split) == self.split and test_fraction <= self.held_out)

    def to_json(self) -> str:
        """Plain JSON, exact to the last bit."""
        return json.dumps({"version": self.version, **self.model_dump(mode="json")}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> KeptEvidence:
        """What :meth:`to_json` wrote.

        Raises:
            StateError: it is none (``E_STATE_CORRUPT``), or of a version that is not known (``E_STATE_VERSION``).
        """
        document = versions.parse(text, cls.version, cls.steps, what=_WHAT, hint=_HINT)
        try:
            return cls.model_validate_json(json.dumps(document))
        except ValidationError:
            raise versions.damage_error(_WHAT, _HINT) from None


def _digest(split: bytes) -> str:
    return hashlib.sha256(b"vfl-node split" + split).hexdigest()
