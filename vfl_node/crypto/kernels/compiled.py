"""Several points of Curve25519 at a time by the code in ``native/``, in constant time, without Python's lock."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from typing_extensions import override

from vfl_node.crypto.kernels.libraries import Libraries
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.texts import Offsets, check_offsets

_FAULTS = {0: None, 1: "is not canonical", 2: "is not on the curve"}


class Compiled(Libraries):
    """What all compiled kernels have: ladders, checks and digests. The libraries do the rest.

    Args:
        native: the compiled module.
    """

    def __init__(self, native: ModuleType) -> None:
        self._lib, self._ffi = native.lib, native.ffi
        self._ladders, self._check = (getattr(native.lib, f"vfl_{what}_{self.name}") for what in ("x25519", "check"))
        self._sha256 = getattr(native.lib, f"vfl_sha256_{self.name}")

    @override
    def ladders(self, rows: Rows, key: bytes) -> Rows:
        if len(key) != 32:
            raise ValueError(f"a key of {len(key)} bytes")
        results = np.empty((len(rows), 32), dtype=np.uint8)
        self._ladders(self._bytes(results), key, self._points(rows), len(rows))
        return results

    @override
    def digests(self, text: bytes, offsets: Offsets) -> Rows:
        where = self._ffi.from_buffer("int64_t[]", check_offsets(text, offsets))
        results = np.empty((len(offsets) - 1, 32), dtype=np.uint8)
        self._sha256(self._bytes(results), text, where, len(results))
        return results

    @override
    def fault(self, rows: Rows) -> str | None:
        return _FAULTS[self._check(self._points(rows), len(rows))]

    def _points(self, rows: Rows) -> object:
        """``rows``, if C may read them."""
        if rows.dtype != np.uint8 or rows.shape[1:] != (32,):
            raise ValueError(f"points of {rows.dtype} and shape {rows.shape}")
        return self._bytes(np.ascontiguousarray(rows))

    def _bytes(self, rows: Rows) -> object:
        return self._ffi.from_buffer("uint8_t[]", rows)


class Avx2(Compiled):
    """As :class:`~vfl_node.crypto.kernels.contract.Kernel`: four points at a time. About 14 µs a ladder, 1.2 µs a check."""

    name = "avx2"
