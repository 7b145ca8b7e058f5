"""Strings and numbers that occur nowhere else, and a search for them in every form in which they could be told."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

LEAST_BYTES = 8
"""Of a form: shorter ones would be found in random bytes."""


def forms_of_text(text: str) -> dict[str, bytes]:
    """How an id or a label could be told: as it is, encoded, or as a plain hash, which whoever guesses it recognises."""
    raw, digest = text.encode(), hashlib.sha256(text.encode()).digest()
    encoded = {f"base64 at {at}": base64.b64encode(bytes(at) + raw)[at + 1 + (at > 0) : -4] for at in range(3)}
    return {
        "as it is": raw,
        "UTF-16": text.encode("utf-16-le"),
        "hex": raw.hex().encode(),
        "HEX": raw.hex().upper().encode(),
        "SHA-256": digest[:16],
        "SHA-256 in hex": digest.hex()[:32].encode(),
        **encoded,
    }


def forms_of_number(text: str) -> dict[str, bytes]:
    """How a cell with a number could be told."""
    value = float(text)
    binary = {"float64": struct.pack("<d", value), "big-endian float64": struct.pack(">d", value)}
    return {"as it is": text.encode(), "in hex": struct.pack("<d", value).hex().encode(), **binary}


class Search:
    """Looks for canaries.

    Args:
        texts: ids and labels.
        numbers: cells.
    """

    def __init__(self, texts: Iterable[str], numbers: Iterable[str]) -> None:
        self._wanted: dict[int, list[tuple[bytes, str]]] = {}
        named = [(text, forms_of_text(text)) for text in texts] + [(text, forms_of_number(text)) for text in numbers]
        for text, forms in named:
            for form, pattern in forms.items():
                assert len(pattern) >= LEAST_BYTES, (text, form)
                (head,) = struct.unpack_from("<Q", pattern)
                self._wanted.setdefault(head, []).append((pattern, f"{text} ({form})"))
        self._heads = np.array(sorted(self._wanted), dtype=np.uint64)

    def found(self, data: bytes) -> list[str]:
        """The canaries in ``data``, and in which form each."""
        if len(data) < LEAST_BYTES:
            return []
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), LEAST_BYTES)
        seen = []
        for start in range(0, len(windows), 1 << 20):
            heads = np.ascontiguousarray(windows[start : start + (1 << 20)]).view("<u8").ravel()
            for place in (np.flatnonzero(np.isin(heads, self._heads)) + start).tolist():
                (head,) = struct.unpack_from("<Q", data, place)
                seen += [name for pattern, name in self._wanted[head] if data.startswith(pattern, place)]
        return sorted(set(seen))

    def found_in(self, places: Mapping[str, bytes]) -> dict[str, list[str]]:
        """Place → canaries in it, of the places that have any."""
        return {name: seen for name, data in places.items() if (seen := self.found(data))}


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``, and its name, which could tell something too."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: name.encode() + b"\0" + path.read_bytes() for name, path in files.items()}
