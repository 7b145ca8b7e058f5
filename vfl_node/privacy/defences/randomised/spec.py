"""The keys and words of the defence ``randomised-labels``."""

from __future__ import annotations

import math

from pydantic import Field, model_validator
from typing_extensions import Self, override

from vfl_node.settings.defences import DefenceParams, DefenceSpec, Direction

MOST_EPSILON = 20.0
"""An ε above this hides nothing: one label of a billion would be another one."""


class RandomisedParams(DefenceParams):
    """``{name: randomised-labels, epsilon: 1}``; of a regression also ``target_range: [0, 100]``."""

    epsilon: float = Field(
        gt=0,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        description="ε of each label, whatever is trained with it and however often; another ε is another answer, which adds",
    )
    target_range: tuple[float, float] | None = Field(
        default=None,
        description="of a regression: two numbers, [low, high], to which targets are clipped before their noise. Say what "
        "is publicly known of such targets, not what the table shows",
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.target_range and not -math.inf < self.target_range[0] < self.target_range[1] < math.inf:
            raise ValueError("target_range has two numbers, [low, high], the second one larger")
        return self

    @property
    @override
    def allows_row_weights(self) -> bool:
        return False

    @override
    def words(self, direction: Direction) -> str:
        return (
            "each label is replaced by a randomised one, drawn once for its record and kept in every job: whatever is trained "
            f"with it, and however often, tells of a label no more than ε = {self.epsilon:g} allows"
        )


RANDOMISED = DefenceSpec(
    params=RandomisedParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.defence:Defence",  # no tensor is changed: the half is given other labels
)
