"""Encoders as JSON, which later versions of this program read, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ValidationError

from vfl_node.configuration import versions
from vfl_node.configuration.models import Frozen
from vfl_node.data.tables import ListColumn, Table
from vfl_node.settings.declared import Declared, Kind, Notation, declare_notation

Stored = TypeVar("Stored", bound="StoredEncoder")

_WHAT, _HINT = "the stored encoder", "restore it from a backup, use the version of vfl-node that stored it, or train again"


class StoredEncoder(Frozen):
    """How a table's columns become numbers: means and levels of the party's own data, which stay with it.

    Attributes:
        version: of the form of its JSON.
        steps: what brings earlier forms up to it (:mod:`vfl_node.configuration.versions`).
        notations: column → how its cells were written, which tables of other records are read by; of plain ones nothing.
        rows: likewise column of the rows that became records → its kind, and how it was written.
    """

    version: ClassVar[int] = 1
    steps: ClassVar[versions.Steps] = {}

    notations: Mapping[str, Notation] = {}
    rows: Mapping[str, Declared] = {}

    def declare(self, kinds: Mapping[str, Kind]) -> dict[str, Declared]:
        """What is declared of columns of these kinds in a table of other records."""
        return {name: declare_notation(kind, self.notations.get(name)) for name, kind in kinds.items()}

    def to_json(self) -> str:
        """Plain JSON, exact to the last bit."""
        return json.dumps({"version": self.version, **self.model_dump(mode="json")}, ensure_ascii=False)

    @classmethod
    def from_json(cls: type[Stored], text: str) -> Stored:
        """What :meth:`to_json` wrote, of this version or an earlier one.

        Raises:
            StateError: it is not an encoder (``E_STATE_CORRUPT``), or of a version that is not known (``E_STATE_VERSION``).
        """
        document = versions.parse(text, cls.version, cls.steps, what=_WHAT, hint=_HINT)
        try:
            return cls.model_validate_json(json.dumps(document))
        except ValidationError:
            raise versions.damage_error(_WHAT, _HINT) from None


class _Rows(BaseModel):
    rows: Mapping[str, Declared] = {}


def rows_of(encoder: str) -> Mapping[str, Declared]:
    """Column of the rows that became records → how it was read, from the JSON of an encoder; empty of one of another form."""
    try:
        return _Rows.model_validate_json(encoder).rows
    except ValidationError:
        return {}


def rows_read(table: Table) -> Mapping[str, Declared]:
    """Column of the rows that became the records of ``table`` → how it was read; empty where each row is a record."""
    return table.merged.columns if table.merged else {}


def notations_of(table: Table) -> dict[str, Notation]:
    """Column → how its cells are written, where that is not plain."""
    columns = ((name, column) for name, column in table.columns.items() if not isinstance(column, ListColumn))
    return {name: column.notation for name, column in columns if column.notation}
