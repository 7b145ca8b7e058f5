"""The keys and words of the defence ``marvell``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.spec import DefenceParams, DefenceSpec, Direction


class MarvellParams(DefenceParams):
    """``{name: marvell, power: 4}``."""

    name: Literal["marvell"]
    power: float = Field(
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="mean power of the noise, as a multiple of the squared distance between both classes' mean gradients",
    )

    @property
    def of_two_classes(self) -> bool:
        """The noise differs by the class, of which there are two."""
        return True

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        return (
            "noise of its own for each of both classes makes their gradients as alike as noise of this power can, which is "
            f"{self.power:g} times the squared distance of their means"
        )


MARVELL = DefenceSpec(
    params=MarvellParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.marvell.defence:Marvell",
)
