"""Named tensors in a safetensors file: models and checkpoints. Nothing is ever pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, contiguous_format

from vfl_node.errors import StateError
from vfl_node.files import write_whole


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """Write ``tensors`` to ``path`` (mode 0600), whole or not at all.

    Args:
        path: file to create or replace.
        tensors: on any device; copied to the CPU.
        metadata: text kept in the file's header.

    Returns:
        The bytes of the file.
    """
    # one entry, since safetensors writes several in no fixed order, and equal models must have equal bytes
    about = {"about": json.dumps(metadata, sort_keys=True)} if metadata else None
    # safetensors refuses tensors that share memory or are not contiguous
    copies = {name: tensor.detach().cpu().clone(memory_format=contiguous_format) for name, tensor in tensors.items()}
    data = serialise(copies, about)
    write_whole(path, data)
    return data


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors (on the CPU) and the metadata of the file at ``path``.

    Raises:
        StateError: the file is missing or damaged (``E_STATE_CORRUPT``).
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, json.loads((file.metadata() or {}).get("about", "{}"))
    except (OSError, SafetensorError, ValueError):
        raise StateError(f"{path} is missing or is not a whole safetensors file", code="E_STATE_CORRUPT") from None
