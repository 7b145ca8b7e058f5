"""The keys and words of the defences ``basic``, ``fbs`` and ``fbs-fixed``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vfl_node.privacy.defences.decoding import DecoderParams
from vfl_node.privacy.defences.spec import DefenceSpec, Direction


class SplittingParams(DecoderParams):
    """What all three have."""

    rounds: int = Field(default=10, ge=1, le=1000, description="rounds of Minimax (N2)")
    warm_up: int = Field(
        default=100,
        ge=0,
        le=10_000,
        description="rounds of Minimax before the first batch of a training, besides its own, as a decoder that has learnt "
        "nothing finds every embedding private; and at least so many, over all batches, where weights stay",
    )
    model_steps: int = Field(default=1, ge=1, le=1000, description="steps of the bottom in each round (m2)")
    model_rate: float = Field(default=3e-3, gt=0, le=1, description="learning rate of the bottom in Minimax (Adam)")
    every: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Minimax runs before one batch in so many; in between the bottom is pulled to its result; that of basic is "
        "not, so what the task has changed since leaves unprotected",
    )

    def words(self, direction: Direction) -> str:
        """As :meth:`DefenceParams.words`."""
        how = "each batch" if self.every == 1 else f"one batch in {self.every}"
        return (
            f"the bottom is moved away from what a simulated decoder rebuilds {self.of_what} from ({self.name}), before "
            f"{how} and once more over all rows before embeddings of validation, evaluation and predictions"
        )


class BasicParams(SplittingParams):
    """``{name: basic, columns: [occupation]}``: nothing holds the bottom near to what the task needs."""

    name: Literal["basic"]


class ProximalParams(SplittingParams):
    """With a proximal term."""

    distance: Literal["parameters", "features"] = Field(
        default="parameters", description="how the way from the task's bottom is measured: by its weights, or by its embeddings"
    )


class FbsParams(ProximalParams):
    """``{name: fbs, columns: [occupation]}``: how much privacy and the way from the task's bottom weigh is learnt."""

    name: Literal["fbs"]
    weights: Literal["auto"] = Field(default="auto", description="learnt; fbs-fixed has weights that its owner sets")


class FbsFixedParams(ProximalParams):
    """``{name: fbs-fixed, columns: [occupation], tau1: 1, tau2: 1}``."""

    name: Literal["fbs-fixed"]
    tau1: float = Field(default=1, gt=0, allow_inf_nan=False, description="weight of the privacy loss")
    tau2: float = Field(default=1, gt=0, allow_inf_nan=False, description="weight of the way from the task's bottom")


def _spec(params: type[SplittingParams]) -> DefenceSpec:
    return DefenceSpec(
        params=params,
        directions=frozenset({"embeddings"}),
        implementation="vfl_node.privacy.defences.splitting.defence:Splitting",
    )


BASIC, FBS, FBS_FIXED = _spec(BasicParams), _spec(FbsParams), _spec(FbsFixedParams)
