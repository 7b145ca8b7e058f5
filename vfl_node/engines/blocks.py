"""How much work is a block."""

from __future__ import annotations

from vfl_node.engines.contract import Engine


def block_size(count: int, engine: Engine, least: int, most: int) -> int:
    """How many of ``count`` items are a block: an equal part for every worker, from ``least`` to ``most``."""
    return min(most, max(least, -(-count // engine.workers)))
