"""Keys and words of the defences; light."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from vfl_node.privacy.defences.decoding import ColumnParams, DecoderParams
from vfl_node.settings.defences import DefenceParams, DefenceSpec, Direction


class DpParams(DefenceParams):
    """``{name: dp, max_grad_norm: 1, noise_multiplier: 4}``."""

    renamed: ClassVar[Mapping[str, str]] = {"clip": "max_grad_norm", "noise": "noise_multiplier"}

    max_grad_norm: float = Field(
        gt=0,
        allow_inf_nan=False,
        description="longest gradient of a row's own loss; a longer one is shortened to it",
    )
    noise_multiplier: float = Field(
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="standard deviation of the noise on each number of a row's gradient, as a multiple of max_grad_norm",
    )
    delta: float = Field(
        default=1e-5, gt=0, lt=1, description="δ of the (ε, δ) in the report: choose one far below 1 / number of rows"
    )

    @override
    def words(self, direction: Direction) -> str:
        return (
            f"the gradient of a row's loss is shortened to {self.max_grad_norm:g} at most, and normal noise of standard "
            f"deviation {self.max_grad_norm * self.noise_multiplier:g} is added to each of its numbers"
        )


DP = DefenceSpec(
    params=DpParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.dp:ClippedNoise",
)


class IsotropicParams(DefenceParams):
    """``{name: isotropic, noise: 1}``."""

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

    @override
    def words(self, direction: Direction) -> str:
        return f"normal noise is added to each row's gradient, {self.noise:g} times as long as the batch's longest gradient"


ISOTROPIC = DefenceSpec(
    params=IsotropicParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.noise:Isotropic",
)


class MarvellParams(DefenceParams):
    """``{name: marvell, power: 4}``."""

    power: float = Field(
        gt=0,
        le=1e6,
        allow_inf_nan=False,
        description="mean power of the noise, as a multiple of the squared distance between both classes' mean gradients",
    )

    @property
    def needs_two_classes(self) -> bool:
        """The noise differs by the class, of which there are two."""
        return True

    @override
    def words(self, direction: Direction) -> str:
        return (
            "noise of its own for each of both classes makes their gradients as alike as noise of this power can, which is "
            f"{self.power:g} times the squared distance of their means"
        )


MARVELL = DefenceSpec(
    params=MarvellParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.marvell:Marvell",
)


class MaxNormParams(DefenceParams):
    """``{name: maxnorm}``."""

    @override
    def words(self, direction: Direction) -> str:
        return "each row's gradient is multiplied by a random number, so that all are as long as the batch's longest on average"


MAXNORM = DefenceSpec(
    params=MaxNormParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.noise:MaxNorm",
)


class MixProParams(DefenceParams):
    """``{name: mixpro, goal: 0.866, share: 0.6}``."""

    goal: float = Field(
        default=0.866,
        gt=-1,
        lt=1,
        description="least cosine between a row's gradient and the batch's mean gradient (φ_goal; √3 / 2 in the paper)",
    )
    share: float = Field(
        default=0.6, gt=0, le=100, description="a of the Beta(a, a) from which a row's own part of a mixed pair is drawn"
    )

    @override
    def words(self, direction: Direction) -> str:
        return (
            "each row's gradient is mixed with that of another row of the batch, turned to a cosine of at least "
            f"{self.goal:.3g} with the batch's mean, and given the length of a longer one where it is short"
        )


MIXPRO = DefenceSpec(
    params=MixProParams,
    directions=frozenset({"gradients"}),
    implementation="vfl_node.privacy.defences.mixpro:MixPro",
)


class NaiveParams(DecoderParams):
    """``{name: naive, columns: [occupation], strength: 1}``."""

    strength: float = Field(gt=0, allow_inf_nan=False, description="weight of the privacy loss beside the task's (λ)")

    @override
    def words(self, direction: Direction) -> str:
        return (
            f"in each step of training, and not before, the bottom also learns to let a simulated decoder rebuild "
            f"{self.column_words} less (naive, strength {self.strength:g})"
        )


NAIVE = DefenceSpec(
    params=NaiveParams,
    directions=frozenset({"embeddings"}),
    implementation="vfl_node.privacy.defences.decoders:NaiveDefence",
)


class NoiseParams(DefenceParams):
    """``{name: noise, sigma: 0.1}``."""

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

    @override
    def words(self, direction: Direction) -> str:
        what = {"embeddings": "embedding", "gradients": "gradient of a row's loss", "projections": "projection"}[direction]
        return f"normal noise of standard deviation {self.sigma:g} is added to each number of every {what}"


NOISE = DefenceSpec(
    params=NoiseParams,
    directions=frozenset({"embeddings", "gradients", "projections"}),
    implementation="vfl_node.privacy.defences.noise:Noise",
)


class NoPeekParams(ColumnParams):
    """``{name: nopeek, columns: all, strength: 1}``."""

    strength: float = Field(gt=0, allow_inf_nan=False, description="weight of the distance correlation beside the task's loss")

    @override
    def words(self, direction: Direction) -> str:
        return (
            f"in each step of training the bottom also learns to let embeddings depend less on {self.column_words} (nopeek: "
            f"distance correlation, strength {self.strength:g})"
        )


NOPEEK = DefenceSpec(
    params=NoPeekParams,
    directions=frozenset({"embeddings"}),
    implementation="vfl_node.privacy.defences.decoders:NoPeek",
)


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

    @override
    def words(self, direction: Direction) -> str:
        how = "each batch" if self.every == 1 else f"one batch in {self.every}"
        return (
            f"the bottom is moved away from what a simulated decoder rebuilds {self.column_words} from ({self.name}), before "
            f"{how} and once more over all rows before embeddings of validation, evaluation and predictions"
        )


class BasicParams(SplittingParams):
    """``{name: basic, columns: [occupation]}``: nothing holds the bottom near to what the task needs."""


class ProximalParams(SplittingParams):
    """With a proximal term."""

    distance: Literal["parameters", "features"] = Field(
        default="parameters", description="how the way from the task's bottom is measured: by its weights, or by its embeddings"
    )


class FbsParams(ProximalParams):
    """``{name: fbs, columns: [occupation]}``: how much privacy and the way from the task's bottom weigh is learnt."""

    weights: Literal["auto"] = Field(default="auto", description="learnt; fbs-fixed has weights that its owner sets")


class FbsFixedParams(ProximalParams):
    """``{name: fbs-fixed, columns: [occupation], tau1: 1, tau2: 1}``."""

    tau1: float = Field(default=1, gt=0, allow_inf_nan=False, description="weight of the privacy loss")
    tau2: float = Field(default=1, gt=0, allow_inf_nan=False, description="weight of the way from the task's bottom")


def _spec(params: type[SplittingParams]) -> DefenceSpec:
    return DefenceSpec(
        params=params,
        directions=frozenset({"embeddings"}),
        implementation="vfl_node.privacy.defences.splitting:Splitting",
    )


BASIC, FBS, FBS_FIXED = _spec(BasicParams), _spec(FbsParams), _spec(FbsFixedParams)
