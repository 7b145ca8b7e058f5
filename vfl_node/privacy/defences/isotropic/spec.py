"""The keys and words of the defence ``isotropic``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.spec import DefenceParams, DefenceSpec, Direction


class IsotropicParams(DefenceParams):
    """``{name: isotropic, noise: 1}``."""

    name: Literal["isotropic"]
    noise: float = Field(
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        description="expected length of the noise on a row's gradient, as a multiple of the longest gradient of the batch; "
        "0: nothing is added",
    )

    @property
    def changes_nothing(self) -> bool:
        """Noise of length 0 is none."""
        return self.noise == 0

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return f"normal noise is added to each row's gradient, {self.noise:g} times as long as the batch's longest gradient"


ISOTROPIC = DefenceSpec(
    params=IsotropicParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.isotropic.defence:Isotropic",
)
