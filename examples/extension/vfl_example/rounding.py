"""The defence ``rounding``."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import override

from vfl_example.rounding_spec import RoundingParams
from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender


class Rounding(Defence):
    """Rounds what is sent. The party's own update uses the exact tensor."""

    def __init__(self, params: RoundingParams, sender: Sender, randomness: Randomness) -> None:
        self._step = params.step

    @override
    def protect(self, tensor: Tensor, leaving: Leaving) -> Tensor:
        return (tensor / self._step).round() * self._step
