"""The keys and words of the defence ``mixpro``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.spec import DefenceParams, DefenceSpec, Direction


class MixProParams(DefenceParams):
    """``{name: mixpro, goal: 0.866, share: 0.6}``."""

    name: Literal["mixpro"]
    goal: float = Field(
        default=0.866,
        gt=-1,
        lt=1,
        description="least cosine between a row's gradient and the batch's mean gradient (φ_goal; √3 / 2 in the paper)",
    )
    share: float = Field(
        default=0.6, gt=0, le=100, description="a of the Beta(a, a) from which a row's own part of a mixed pair is drawn"
    )

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return (
            "each row's gradient is mixed with that of another row of the batch, turned to a cosine of at least "
            f"{self.goal:.3g} with the batch's mean, and given the length of a longer one where it is short"
        )


MIXPRO = DefenceSpec(
    params=MixProParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.mixpro.defence:MixPro",
)
