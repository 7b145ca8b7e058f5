"""The keys and words of the defence ``noise``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.spec import DefenceParams, DefenceSpec, Direction


class NoiseParams(DefenceParams):
    """``{name: noise, sigma: 0.1}``."""

    name: Literal["noise"]
    sigma: float = Field(
        ge=0,
        allow_inf_nan=False,
        description="standard deviation of what is added to each number of an embedding or projection, or of the gradient of a "
        "row's own loss: a batch's gradients are divided by its number of rows, and the noise on them too; 0: nothing is added",
    )

    @property
    def changes_nothing(self) -> bool:
        """Noise of standard deviation 0 is none."""
        return self.sigma == 0

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        what = {"embeddings": "embedding", "gradients": "gradient of a row's loss", "projections": "projection"}[direction]
        return f"normal noise of standard deviation {self.sigma:g} is added to each number of every {what}"


NOISE = DefenceSpec(
    params=NoiseParams,
    directions=frozenset({"embeddings", "gradients", "projections"}),
    implementation="vfl_node.privacy.defences.noise.defence:Noise",
)
