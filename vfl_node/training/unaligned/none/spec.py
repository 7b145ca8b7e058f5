"""``none``: the joint model learns from the aligned rows alone."""

from __future__ import annotations

from vfl_node.training.unaligned.methods import Unaligned


class NoUnaligned(Unaligned):
    """FedAds' Vanilla."""
