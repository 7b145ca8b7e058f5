"""The actor: one core of a machine of this party. It holds keys in memory only, and few of them."""

from __future__ import annotations

import os
import traceback
from typing import Any

from nacl.public import PrivateKey, SealedBox

from vfl_node.engines.child import survive_pickling
from vfl_node.engines.ray.sealing import Sealer, operation_of

NO_WORKER = "no worker started"
"""What a block is told that waits too long for the first worker."""

MOST_KEYS = 8
"""Keys of jobs that an actor holds; of more the oldest goes."""


class Worker:
    """What the driver calls, one call after the other. All but handles and numbers is sealed."""

    def __init__(self) -> None:
        self._private = PrivateKey.generate()
        self._keys: dict[bytes, Any] = {}
        self._sealer: Sealer | None = None

    def hello(self, build: str) -> tuple[bytes, str, int]:
        """Public key (X25519), description of the build by the function of this name, and process id."""
        try:
            described = str(operation_of(build)())
        except Exception as error:  # noqa: BLE001 - another build, which has no such function
            described = f"one that cannot be told ({type(error).__name__})"
        return bytes(self._private.public_key), described, os.getpid()

    def admit(self, sealed: bytes) -> None:
        """Take the engine's key, which a node has sealed to this actor."""
        self._sealer = Sealer(SealedBox(self._private).decrypt(sealed))

    def provision(self, handle: bytes, sealed: bytes) -> None:
        """Take the key of a job, also where it is here."""
        self._keys.pop(handle, None)
        if len(self._keys) >= MOST_KEYS:
            del self._keys[next(iter(self._keys))]
        self._keys[handle] = self._opener.open(sealed, b"key" + handle)

    def forget(self, handle: bytes) -> None:
        """Drop the key of a job."""
        self._keys.pop(handle, None)

    def do(self, handle: bytes, number: bytes, sealed: bytes) -> bytes | None:
        """The sealed (result, exception, traceback) of a block; None: the key is not here."""
        if handle not in self._keys:
            return None
        try:
            name, block = self._opener.open(sealed, b"block" + handle + number)
            result = operation_of(name)(self._keys[handle], block)
            return self._opener.seal((result, None, ""), b"result" + handle + number)
        except Exception as error:  # noqa: BLE001 - the node raises it
            failure = (None, survive_pickling(error), traceback.format_exc())
            return self._opener.seal(failure, b"result" + handle + number)

    @property
    def _opener(self) -> Sealer:
        if self._sealer is None:
            raise ValueError("this worker was not admitted by a node")
        return self._sealer
