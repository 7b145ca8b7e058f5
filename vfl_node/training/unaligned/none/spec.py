"""``none``: the joint model learns from the aligned rows alone."""

from __future__ import annotations

from typing import ClassVar

from vfl_node.training.unaligned.methods import Unaligned


class NoUnaligned(Unaligned):
    """Nothing is filled in: FedAds' Vanilla."""

    fills: ClassVar[bool] = False
