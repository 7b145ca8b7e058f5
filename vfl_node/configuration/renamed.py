"""Keys and values that had another name in an earlier version: both are read, and the first one is what digests are made of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, SerializationInfo, SerializerFunctionWrapHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

LASTING_NAMES = "lasting names"
"""Context of pydantic in which keys and values are written by the first name that they had, so that digests and what was stored
stay as they are when a name that people read gets clearer; and in which earlier names are read without a warning."""


@dataclass(frozen=True, eq=False)  # by identity, so that it can be hashed: unions of annotated types are
class Renamed:
    """Annotates a key some of whose values had another name in an earlier version, which is read with a FutureWarning.

    Attributes:
        names: earlier value → value.
    """

    names: Mapping[str, str]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Values get their names of today before the key's own validation."""
        schema = core_schema.with_info_before_validator_function(self._read, handler(source))
        schema["serialization"] = core_schema.plain_serializer_function_ser_schema(self._write, info_arg=True)
        return schema

    def _read(self, value: Any, info: ValidationInfo) -> Any:
        if not (isinstance(value, str) and value in self.names):
            return value
        _warn_renamed(value, self.names[value], info)
        return self.names[value]

    def _write(self, value: Any, info: SerializationInfo) -> Any:
        earlier = {new: old for old, new in self.names.items()}
        return earlier.get(value, value) if info.context == LASTING_NAMES else value


def read_keys(renamed: Mapping[str, str]) -> Callable[[Any, ValidationInfo], Any]:
    """What gives the keys of a section their names of today, before it is read.

    Args:
        renamed: as :attr:`vfl_node.configuration.models.Frozen.renamed`.
    """

    def read(given: Any, info: ValidationInfo) -> Any:
        if not isinstance(given, Mapping):
            return given
        given = dict(given)
        for old, new in renamed.items():
            if old in given:
                if new in given:
                    raise ValueError(f"{old} is the earlier name of {new}: leave {old} out")
                _warn_renamed(old, new, info)
                given[new] = given.pop(old)
        return given

    return read


def write_keys(renamed: Mapping[str, str]) -> Callable[[Any, SerializerFunctionWrapHandler, SerializationInfo], Any]:
    """What gives the keys of a section their first names again, where :data:`LASTING_NAMES` asks for them.

    Args:
        renamed: as :attr:`vfl_node.configuration.models.Frozen.renamed`.
    """

    def write(model: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        earlier = {new: old for old, new in renamed.items()} if info.context == LASTING_NAMES else {}
        return {earlier.get(key, key): value for key, value in handler(model).items()}

    return write


def _warn_renamed(old: str, new: str, info: ValidationInfo) -> None:
    if info.context != LASTING_NAMES:
        warnings.warn(f"{old!r} is called {new!r} now; the earlier name is read for some time", FutureWarning, stacklevel=2)
