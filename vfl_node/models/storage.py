"""Named tensors as safetensors: models in plain files, what a node keeps for itself in checked ones. Never a pickle.

Light: torch is loaded only where there are tensors. Arrays of numpy give the same bytes without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as of_arrays

from vfl_node.configuration import versions
from vfl_node.errors import StateError
from vfl_node.process.files import read_checked, write_checked, write_whole

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


VERSION = 1
"""Version of the form of a plain file; a file that says none is of version 1."""


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Write ``tensors`` to ``path`` (mode 0600), whole or not at all, so that any tool can read them.

    Args:
        path: file to create or replace.
        tensors: on any device; copied to the CPU.
        metadata: text kept in the file's header.

    Returns:
        The bytes of the file.
    """
    data = _serialise(tensors, {"version": str(VERSION), **(metadata or {})})
    write_whole(path, data)
    return data


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors (on the CPU) and the metadata of the file that :func:`save` wrote; its owner keeps a checksum elsewhere.

    Raises:
        StateError: the file is missing or damaged (``E_STATE_CORRUPT``), or a later version wrote it (``E_STATE_VERSION``).
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise _damage_error(f"{path} is missing") from None
    tensors, metadata = _parse_tensors(data, path)
    version = metadata.get("version", "1")
    document = {**metadata, "version": int(version) if version.isdecimal() else version}
    hint = "use the version of vfl-node that wrote it, or train again"
    return tensors, versions.current(document, VERSION, {}, what=str(path), hint=hint)


def keep(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write ``tensors`` to ``path`` as a checked file (:mod:`vfl_node.process.files`); args as :func:`save`."""
    write_checked(path, _serialise(tensors, metadata))


def recall(path: Path, *, hint: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What :func:`keep` kept. Raises as :func:`vfl_node.process.files.read_checked`."""
    return _parse_tensors(read_checked(path, hint=hint), path)


def keep_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """As :func:`keep`, of arrays."""
    copies = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    write_checked(path, of_arrays.save(copies, _header(metadata)))


def recall_arrays(path: Path, *, hint: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """As :func:`recall`, of arrays."""
    return _parse(read_checked(path, hint=hint), path, of_arrays.load)


def _serialise(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    from safetensors.torch import save as serialise
    from torch import contiguous_format

    # safetensors refuses tensors that share memory or are not contiguous
    copies = {name: tensor.detach().cpu().clone(memory_format=contiguous_format) for name, tensor in tensors.items()}
    return serialise(copies, _header(metadata))


def _header(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    """One entry, since safetensors writes several in no fixed order, and equal models must have equal bytes."""
    return {"about": json.dumps(metadata, sort_keys=True)} if metadata else None


def _parse_tensors(data: bytes, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors.torch import load as parse

    return _parse(data, path, parse)


def _parse(data: bytes, path: Path, parse: Callable[[bytes], dict[str, T]]) -> tuple[dict[str, T], dict[str, str]]:
    try:
        parts = parse(data)
        head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return parts, json.loads(head.get("__metadata__", {}).get("about", "{}"))
    except (SafetensorError, ValueError, AttributeError):
        raise _damage_error(f"{path} is not a whole safetensors file") from None


def _damage_error(what: str) -> StateError:
    return StateError(what, code="E_STATE_CORRUPT", for_peer="what it stored is damaged")


def add_prefix(prefix: str, values: Mapping[str, T]) -> dict[str, T]:
    """``values`` with ``prefix.`` before each name."""
    return {f"{prefix}.{name}": value for name, value in values.items()}


def take_part(prefix: str, values: Mapping[str, T]) -> dict[str, T]:
    """The ``values`` whose name begins with ``prefix.``, without it."""
    return {name[len(prefix) + 1 :]: value for name, value in values.items() if name.startswith(prefix + ".")}


def join_parts(parts: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """The values of several ``parts``, each under its part's name; those of an only part under their own names."""
    if len(parts) == 1:
        (only,) = parts.values()
        return dict(only)
    return {name: value for part, values in parts.items() for name, value in add_prefix(part, values).items()}


def split_parts(values: Mapping[str, T], parts: Collection[str]) -> dict[str, Mapping[str, T]]:
    """Part → its values, of what :func:`join_parts` gave of these ``parts``."""
    return {part: take_part(part, values) if len(parts) > 1 else values for part in parts}
