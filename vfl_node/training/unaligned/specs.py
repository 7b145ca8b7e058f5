"""Keys, words and costs of the methods for rows outside of the alignment; light."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from vfl_node.job.costs import ROWS_AT_ONCE, Network, Passes
from vfl_node.job.training import TrainingJob
from vfl_node.job.unaligned import AlternatingMethod, FillingMethod, PretrainingMethod, Sizes, Unaligned
from vfl_node.models import cut_width

TIME_WIDTH = 8
"""Sines and cosines that tell the network t."""

BATCH = 256
"""Rows of an update of its network."""

BLOCK = 4096
"""Rows of the table that are drawn together."""


class Diffusion(FillingMethod):
    """FedAds' Diffu-AT: a conditional diffusion model of the passive party's embeddings (section 4.1, eq. 6-8)."""

    implementation: ClassVar[str] = "vfl_node.training.unaligned.diffusion:DiffusionFiller"

    steps: int = Field(default=1000, ge=2, le=10_000, description="T: steps from an embedding to noise")
    sampler: Literal["ddim", "ddpm"] = Field(
        default="ddim", description="how noise becomes an embedding: ddim by some of the steps, ddpm by all of them"
    )
    sampler_steps: int = Field(
        default=50, ge=2, le=10_000, description="ddim: about how many of the steps; all, if there are fewer"
    )
    hidden: int = Field(default=128, ge=1, le=65536, description="width of its two hidden layers")
    updates: int = Field(default=2000, ge=1, le=10_000_000, description="training steps of the denoising network")
    learning_rate: float = Field(default=1e-3, gt=0, le=1, allow_inf_nan=False, description="its first one; it falls to 0")

    @model_validator(mode="after")
    def _sampler_has_its_steps(self) -> Diffusion:
        if self.sampler != "ddim" and self.sampler_steps != type(self).model_fields["sampler_steps"].default:
            raise ValueError("sampler_steps is for sampler: ddim; ddpm takes all steps. Leave it out")
        return self

    @property
    def places(self) -> list[int]:
        """The steps from noise to an embedding, last one first: those of ddim lie the closer, the less noise is left.

        Some of ``sampler_steps`` may fall on the same step, and count once.
        """
        count, last = self.sampler_steps, self.steps - 1
        if self.sampler != "ddim" or count >= self.steps:
            return list(range(last, -1, -1))
        return sorted({round(last * (place / (count - 1)) ** 2) for place in range(count)} | {last}, reverse=True)

    @property
    def taken(self) -> int:
        """How many :attr:`places` there are."""
        return len(self.places)

    def filling(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: blocks of the table are drawn whole, the aligned rows in them included."""
        condition = sizes.own + sizes.outputs
        network = Network(
            bottom=False, dense=(sizes.received + condition + TIME_WIDTH, self.hidden, self.hidden, sizes.received)
        )
        return (
            Passes("active", network, BATCH * self.updates, BATCH),
            Passes("active", network, self.taken * (sizes.outside + sizes.aligned), BLOCK, learns=False),
            Passes("active", Network(bottom=True), sizes.outside, ROWS_AT_ONCE, learns=False),
        )

    @override
    def words(self) -> str:
        return (
            "one drawn by a diffusion model of the aligned rows' embeddings, given label and own embedding "
            f"({self.taken} steps)"
        )


def _weight(default: float, purpose: str) -> Any:
    return Field(default=default, ge=0, le=1000, allow_inf_nan=False, description=f"weight of the loss that {purpose}")


class FedCvt(AlternatingMethod):
    """FedAds' FedCVT: embeddings by attention over aligned rows (Kang et al. 2022)."""

    estimates: ClassVar[bool] = True
    implementation: ClassVar[str] = "vfl_node.training.unaligned.fedcvt:Estimator"

    pretrain: float = Field(default=0.1, gt=0, lt=1, description="as for the others; one epoch at least, and one is left")
    candidates: int = Field(default=512, ge=2, le=65536, description="aligned rows, drawn anew, that an estimate weighs")
    temperature: float = Field(
        default=0.5, gt=0, le=10, description="the smaller, the more an estimate is that of the most similar candidate"
    )
    common: float = _weight(0.1, "brings the common parts of both parties' representations of a row together")
    orthogonal: float = _weight(0.01, "keeps the unique and the common part of a representation apart")
    estimate: float = _weight(1.0, "brings estimates for aligned rows to what the passive party sent")

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: each local batch sends candidates through the own bottom, and all batches weigh them by attention."""
        local = self.local_rows(sizes)
        attention = Network(bottom=False, dense=(sizes.own, sizes.received, self.candidates, sizes.received))
        drawn = -(-local // sizes.batch) * self.candidates
        return (
            *super().work(sizes),
            Passes("active", Network(bottom=True), drawn, self.candidates, learns=False),
            Passes("active", attention, local + sizes.aligned * sizes.epochs, sizes.batch),
        )

    def check(self, job: TrainingJob, epochs: int) -> None:
        """As the base; an embedding must have two halves."""
        super().check(job, epochs)
        train: Any = job.train
        if cut_width(train) % 2:
            raise ValueError(
                f"train.unaligned: {self.method} reads an embedding as two halves, and its width, the last of train.bottom, is "
                "odd: choose an even one"
            )

    @override
    def words(self) -> str:
        return "an estimate from aligned rows that are alike, anew in each batch"


class Heuristic(FillingMethod):
    """FedAds' Heuristic: what the same user's aligned rows have."""

    needs_groups: ClassVar[bool] = True
    implementation: ClassVar[str] = "vfl_node.training.unaligned.heuristic:mean_of_group"

    @override
    def words(self) -> str:
        return "the mean embedding of the aligned rows of its group, or of all where the group has none"


BATCH = 256
"""Rows of an update of its network."""


class JointPrivilegedLearning(FillingMethod):
    """A network from the own columns to the passive party's embedding (Li et al., joint privileged learning)."""

    implementation: ClassVar[str] = "vfl_node.training.unaligned.jpl:JointPrivilegedFiller"

    hidden: int = Field(default=64, ge=1, le=65536, description="width of the hidden layer above a bottom like the own one")
    updates: int = Field(default=1000, ge=1, le=10_000_000, description="training steps of the network")
    learning_rate: float = Field(default=1e-3, gt=0, le=1, allow_inf_nan=False, description="of its Adam")

    def filling(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: its network and the joint model above it learn; then each row outside passes."""
        network = Network(bottom=True, dense=(sizes.own, self.hidden, sizes.received))
        updates = BATCH * self.updates
        return (
            Passes("active", network, updates, BATCH),
            Passes("active", Network(bottom=False, dense=sizes.above), updates, BATCH),
            Passes("active", network, sizes.outside, ROWS_AT_ONCE, learns=False),
        )

    @override
    def words(self) -> str:
        return "one that a network makes of its columns, trained on the aligned rows' embeddings and labels"


class MatchedPairs(PretrainingMethod):
    """FedAds' VFL-MPD: which embeddings of the two parties are of the same row (Li et al. 2022, VFed-SSD)."""

    exchanges: ClassVar[Literal["nothing", "embeddings and gradients", "projections"]] = "embeddings and gradients"
    implementation: ClassVar[str] = "vfl_node.training.unaligned.mpd:MatchedPairsPretraining"

    hidden: int = Field(default=64, ge=1, le=65536, description="width of the hidden layer of the head that judges a pair")

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: for an aligned row one outside, and three pairs that are judged."""
        rows = self.pretrain_epochs * sizes.aligned
        head = Network(bottom=False, dense=(sizes.own + sizes.received, self.hidden, 1))
        return (
            Passes("active", Network(bottom=True), 2 * rows, sizes.batch),
            Passes("active", head, 3 * rows, sizes.batch),
            Passes("passive", Network(bottom=True), rows, sizes.batch),
        )

    @override
    def words(self) -> str:
        return "both bottoms learnt to tell matched pairs of embeddings from unmatched ones"


class NoUnaligned(Unaligned):
    """FedAds' Vanilla."""


BOTTLENECK = 4
"""How much narrower the hidden layer of a predictor is."""


class SiameseMethod(PretrainingMethod):
    """A method in which a party's bottom learns that two disturbed copies of a row are the same row (SimSiam)."""

    projection: int = Field(default=64, ge=4, le=8192, description="width of what is compared, made by a head above the bottom")
    replaced: float = Field(
        default=0.3, gt=0, lt=1, description="share of a row's cells that stand in a copy as another row of the table has them"
    )

    @property
    def own_copies(self) -> int:
        """How often an own row goes through the network in an epoch."""
        return 2

    def head(self, width: int) -> Network:
        """A bottom that gives ``width``, with the heads above it."""
        return Network(
            bottom=True, dense=(width, self.projection, self.projection, self.projection // BOTTLENECK, self.projection)
        )

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: copies of each own row, at both parties."""
        times = self.pretrain_epochs * self.own_copies
        return (
            Passes("active", self.head(sizes.own), times * (sizes.outside + sizes.aligned), sizes.batch),
            Passes("passive", self.head(sizes.received), times * sizes.passive, sizes.batch),
        )


class SelfSupervised(SiameseMethod):
    """FedAds' SS-VFL: each party alone (Castiglia et al. 2022, SS-VFL-C)."""

    implementation: ClassVar[str] = "vfl_node.training.unaligned.self_supervised:SelfSupervisedPretraining"

    @override
    def words(self) -> str:
        return "each party's bottom learnt by itself what the disturbed copies of a row have in common"


class FedHssl(SiameseMethod):
    """FedAds' FedHSSL: self-supervision between the parties, and at each of them (He et al. 2022)."""

    allowed_by_default: ClassVar[bool] = False
    exchanges: ClassVar[Literal["nothing", "embeddings and gradients", "projections"]] = "projections"
    implementation: ClassVar[str] = "vfl_node.training.unaligned.self_supervised:FedHsslPretraining"

    match: float = Field(
        default=0.5,
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="weight of the loss that holds a disturbed copy to what the bottom learnt between the parties",
    )

    @override
    def exchanged_width(self, embedding: int) -> int:
        return self.projection

    @property
    def own_copies(self) -> int:
        """As the base; one more is held to what was learnt between the parties, by a network that does not learn."""
        return 3 if self.match else 2

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base, and each aligned row once at each party, between them."""
        aligned = self.pretrain_epochs * sizes.aligned
        parties = (
            Passes("active", self.head(sizes.own), aligned, sizes.batch),
            Passes("passive", self.head(sizes.received), aligned, sizes.batch),
        )
        return (*super().work(sizes), *parties)

    @override
    def words(self) -> str:
        return "both bottoms learnt to foretell each other's projections of aligned rows, and their own of disturbed copies"
