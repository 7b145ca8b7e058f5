"""What blocks, keys, results and errors look like between a node and its workers: sealed by AES-256-GCM.

Only a :class:`Sealer` with the engine's key opens them. So object stores, spilled files, descriptions of tasks and logs of
a cluster show no identifier, no element and no exponent. Nothing is unpickled before its seal was checked.
"""

from __future__ import annotations

import importlib
import os
import pickle
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vfl_node.engines.contract import check_named

PACKAGE = "vfl_node."
"""Operations are of these modules only."""

KEY_BYTES = 32
_NONCE = 12


class Sealer:
    """Seals and opens under one key; any thread may use it.

    Args:
        key: 32 random bytes, of one engine only.
    """

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def seal(self, thing: Any, about: bytes) -> bytes:
        """``thing``, pickled and sealed. Raises what pickle raises.

        Args:
            thing: arrays in it are copied once.
            about: what it is and whose: it opens under the same words only.
        """
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
        parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
        sizes = struct.pack(f">I{len(parts)}Q", len(parts), *map(len, parts))
        nonce = os.urandom(_NONCE)
        return nonce + self._aead.encrypt(nonce, b"".join([sizes, *parts]), about)

    def open(self, sealed: bytes, about: bytes) -> Any:
        """What was sealed. Raises ValueError: it was not sealed under this key and these words."""
        view = memoryview(sealed)
        try:
            opened = self._aead.decrypt(view[:_NONCE], view[_NONCE:], about)
        except (InvalidTag, ValueError):
            raise ValueError("what came from the cluster was not sealed by this node and its workers") from None
        plain = memoryview(bytearray(opened))  # so that arrays can be written
        (count,) = struct.unpack_from(">I", plain)
        sizes = struct.unpack_from(f">{count}Q", plain, 4)
        at, parts = 4 + 8 * count, list[memoryview]()
        for size in sizes:
            parts.append(plain[at : at + size])
            at += size
        return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - the seal was checked


def name_of(operation: Callable[..., Any]) -> str:
    """``module:qualname``, by which a worker finds an operation. Raises ValueError: it has none in this package."""
    check_named(operation)
    name = f"{operation.__module__}:{operation.__qualname__}"
    if not name.startswith(PACKAGE):
        raise ValueError(f"{name} is not of this package, so that no worker of a cluster runs it")
    return name


@cache
def operation_of(name: str) -> Callable[..., Any]:
    """The operation of this name, in a worker. Raises ValueError, ImportError, AttributeError."""
    module, _, qualname = name.partition(":")
    found: Any = importlib.import_module(module) if module.startswith(PACKAGE) else None
    for part in qualname.split("."):
        found = getattr(found, part)
    if name_of(found) != name:
        raise ValueError(f"{name} is not an operation of this package")
    return found
