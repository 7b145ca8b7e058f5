"""A node that, as a coordinator, deals one wrong number for each step to the party whose place a file names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import forked_node
import numpy as np

from vfl_node.crypto.shares.machine import Dealer


class Spoils:
    """A sink that changes the first of all numbers."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    async def put(self, corrections: np.ndarray) -> None:
        corrections = corrections.copy()
        corrections[0] += np.uint64(1)
        await self._sink.put(corrections)


def run(victim: Path, environment: Mapping[str, str], arguments: list[str], log: Path) -> None:
    deal = Dealer._deal

    async def tampers(self: Any, number: int, operation: Any) -> Any:
        true = self._sink
        if type(self) is Dealer and "block" in self._section and str(self._own) == victim.read_text():
            self._sink = Spoils(true)
        try:
            return await deal(self, number, operation)
        finally:
            self._sink = true

    Dealer._deal = tampers  # type: ignore[method-assign]
    forked_node.run(os.environ | dict(environment), arguments, log)
