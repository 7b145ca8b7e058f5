"""The keys and words of the defence ``dp``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.spec import DefenceParams, DefenceSpec, Direction


class DpParams(DefenceParams):
    """``{name: dp, clip: 1, noise: 4}``."""

    name: Literal["dp"]
    clip: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="longest gradient of a row's own loss; a longer one is shortened to it",
    )
    noise: float = Field(
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="standard deviation of the noise on each number of a row's gradient, as a multiple of clip",
    )
    delta: float = Field(
        default=1e-5, gt=0, lt=1, description="δ of the (ε, δ) in the report: choose one far below 1 / number of rows"
    )

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return (
            f"the gradient of a row's loss is shortened to {self.clip:g} at most, and normal noise of standard deviation "
            f"{self.clip * self.noise:g} is added to each of its numbers"
        )


DP = DefenceSpec(
    params=DpParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.dp.defence:ClippedNoise",
)
