"""Several points of Curve25519 or cells of a matrix at a time (``native/``), in constant time, without Python's lock."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from vfl_node.crypto.kernels.cells import check_bits, check_cells
from vfl_node.crypto.kernels.contract import Cells, Words
from vfl_node.crypto.kernels.libraries import Libraries
from vfl_node.crypto.rows import Rows
from vfl_node.crypto.texts import Offsets, check_offsets

_FAULTS = {0: None, 1: "is not canonical", 2: "is not on the curve"}


class Compiled(Libraries):
    """What all compiled kernels have: ladders, checks, digests and products of matrices. The libraries do the rest.

    Args:
        native: the compiled module.
    """

    def __init__(self, native: ModuleType) -> None:
        self._lib, self._ffi = native.lib, native.ffi
        self._ladders, self._check = (getattr(native.lib, f"vfl_{what}_{self.name}") for what in ("x25519", "check"))
        self._sha256 = getattr(native.lib, f"vfl_sha256_{self.name}")
        self._cells, self._bits = (getattr(native.lib, f"vfl_multiply_{what}_{self.name}") for what in ("cells", "bits"))

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

    @override
    def multiply_cells(self, cells: Cells, numbers: Words) -> Words:
        """Without Python's lock."""
        check_cells(cells, numbers)
        total = np.zeros((len(numbers), cells.shape[1]), np.uint64)
        first = self._ffi.from_buffer("uint16_t[]", np.ascontiguousarray(cells))
        second = self._words(np.ascontiguousarray(numbers))
        self._cells(self._words(total), first, *cells.shape, second, len(numbers))
        return total

    @override
    def multiply_bits(self, rows: Words, chosen: Words) -> NDArray[np.uint8]:
        """Without Python's lock."""
        check_bits(rows, chosen)
        made = np.empty((len(chosen), len(rows)), np.uint8)
        first, second = (self._words(np.ascontiguousarray(each)) for each in (rows, chosen))
        self._bits(self._bytes(made), first, len(rows), rows.shape[1], second, len(chosen))
        return made

    def _points(self, rows: Rows) -> object:
        """``rows``, if C may read them."""
        if rows.dtype != np.uint8 or rows.shape[1:] != (32,):
            raise ValueError(f"points of {rows.dtype} and shape {rows.shape}")
        return self._bytes(np.ascontiguousarray(rows))

    def _words(self, numbers: Words) -> object:
        return self._ffi.from_buffer("uint64_t[]", numbers)

    def _bytes(self, rows: Rows) -> object:
        return self._ffi.from_buffer("uint8_t[]", rows)


class Avx2(Compiled):
    """As :class:`~vfl_node.crypto.kernels.contract.Kernel`: four points at a time. About 14 µs a ladder, 1.2 µs a check."""

    name = "avx2"
