"""The methods by the names that a job uses in ``train.unaligned``, and what each says about itself before anything runs.

:mod:`vfl_node.training.unaligned.specs` has a class for each method, with its words and its own keys; it imports no torch.
What it names in the files beside it is loaded on first use. A package adds a method by an entry point of the group
``vfl_node.unaligned``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field
from typing_extensions import override

from vfl_node.configuration.models import Frozen, name_in
from vfl_node.configuration.registry import Registry, subclass_of
from vfl_node.errors import DataError
from vfl_node.job.costs import ROWS_AT_ONCE, Network, Passes
from vfl_node.job.training import TrainingJob


class ActiveTable(Protocol):
    """What a method asks of the active party's table (:class:`vfl_node.data.tables.Table`)."""

    @property
    def columns(self) -> Mapping[str, object]:
        """Its feature columns by their names."""

    @property
    def groups(self) -> object | None:
        """Which rows belong together; None where the table does not say."""


class Unaligned(Frozen):
    """A ``train.unaligned`` section as a job has chosen it. The fields of a subclass are its own keys, each with a default.

    Attributes:
        fills: whether rows outside of the alignment get embeddings in place of those that they lack.
        needs_groups: whether it needs the groups of rows (``data.group`` of the active party's settings).
        allowed_by_default: whether a careful policy allows it that does not name it in ``unaligned``: it sends nothing but
            embeddings and gradients.
        estimates: whether each batch gets embeddings anew; else they are made up once.
        epochs_before: epochs in which both halves are trained without labels, before all others.
        exchanges: what the parties send each other in each batch of these.
        implementation: ``module:attribute``, called with the chosen method; gives a
            :class:`~vfl_node.training.unaligned.contract.Filler`, or makes a
            :class:`~vfl_node.training.unaligned.pretraining.Pretraining` or an estimator. Empty where it does nothing.
    """

    fills: ClassVar[bool] = False
    estimates: ClassVar[bool] = False
    needs_groups: ClassVar[bool] = False
    allowed_by_default: ClassVar[bool] = True
    exchanges: ClassVar[Literal["nothing", "embeddings and gradients", "projections"]] = "nothing"
    implementation: ClassVar[str] = ""

    method: Annotated[str, Field(description="how rows outside of the alignment are learnt from; none: they are not used")] = (
        "none"
    )

    @property
    def used(self) -> bool:
        """Whether rows outside of the alignment are learnt from at all."""
        return bool(self.implementation)

    @property
    def epochs_before(self) -> int:
        """Epochs without labels before all others."""
        return 0

    def exchanged_width(self, embedding: int) -> int:
        """Values a row that a party sends in a batch of pretraining, where an embedding has ``embedding``."""
        return embedding if self.exchanges == "embeddings and gradients" else 0

    def pretraining(self, epochs: int) -> int:
        """After how many of all ``epochs`` the rows are filled in."""
        return epochs

    @property
    def begins_anew(self) -> bool:
        """Whether the active party's half begins anew once the rows are filled in."""
        return False

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """What it computes in a repeat, the federated batches aside."""
        return ()

    def kept_bytes(self, rows: int, own: int, received: int) -> int:
        """Memory at the active party for ``rows`` records, beside their columns; ``own`` and ``received``: d' and d."""
        return 0

    def epochs_text(self, epochs: int) -> str:
        """In which of all ``epochs`` rows outside are learnt from, after a number of them."""
        return ""

    def check(self, job: TrainingJob, epochs: int) -> None:
        """Refuse a job of so many ``epochs`` in which the active party must not know the rows outside, or cannot use them.

        Raises:
            ValueError: it cannot; the text is for the owner.
        """
        if not self.used:
            return
        method = f"train.unaligned: {self.method}"
        protocol, spec = job.align.protocol, job.align.spec
        if not spec.shows_shared_records_to("active"):
            raise ValueError(
                f"{method} learns from the active party's rows outside of the alignment, and {protocol} does not tell this "
                "party which of its rows are shared: those without a partner are trained on as any other. Set align.protocol: "
                "psi or apsi, or leave train.unaligned out"
            )
        if self.epochs_before and not spec.shows_shared_records_to("passive"):
            raise ValueError(
                f"{method} trains both parties' bottoms on shared rows before the training with labels, and {protocol} keeps "
                "from the passive party which of its rows these are. Choose a method for the active party alone (jpl, "
                "diffusion, fedcvt, heuristic), or set align.protocol: psi"
            )
        if len(job.parties.passive) > 1:
            raise ValueError(
                f"{method} is for one passive party, and there are {len(job.parties.passive)}: leave train.unaligned out"
            )

    def check_table(self, table: ActiveTable) -> None:
        """Refuse a table of the active party from which it cannot learn.

        Raises:
            DataError: it has no feature column (``E_NO_FEATURES``), or no groups that the method needs (``E_CONFIG``).
        """
        if self.used and not table.columns:
            raise DataError(
                "the active party's table has no feature column, and rows outside of the alignment teach nothing without",
                code="E_NO_FEATURES",
                hint="add columns, or set train.unaligned: {method: none}",
                for_peer="the active party has no columns for train.unaligned; set its method to none",
            )
        if self.needs_groups and table.groups is None:
            raise DataError(
                f"train.unaligned: {self.method} takes embeddings of the same group, and the table has no groups",
                code="E_CONFIG",
                hint="set data.group in this node's settings to the column of groups, such as users, or choose another method",
                for_peer="the active party's table has no groups for train.unaligned; choose another method",
            )

    def words(self) -> str:
        """What is done with the rows, for the report: words without a verb and a full stop."""
        return ""

    def outcome_text(self, rows: int, local: int, federated: int) -> str:
        """A sentence of the report without a full stop: ``rows`` outside, ``local`` and ``federated`` batches."""
        return ""


class AlternatingMethod(Unaligned):
    """A method that gives rows outside embeddings, with which a branch of the active party's network learns from them."""

    fills: ClassVar[bool] = True

    pretrain: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="share of the epochs that is trained on aligned rows alone, before others are learnt from; one epoch at "
        "least, and one is left",
    )

    @override
    def pretraining(self, epochs: int) -> int:
        return min(max(1, math.ceil(self.pretrain * epochs)), epochs - 1)

    def local_rows(self, sizes: Sizes) -> int:
        """Rows of all local batches."""
        return sizes.outside * (sizes.epochs - self.pretraining(sizes.epochs))

    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        """As the base: local batches go through a branch like the active party's half."""
        return (Passes("active", sizes.branch, self.local_rows(sizes), sizes.batch),)

    @override
    def epochs_text(self, epochs: int) -> str:
        return f"in the last {epochs - self.pretraining(epochs):,} of {epochs:,} epochs"

    def check(self, job: TrainingJob, epochs: int) -> None:
        """As the base; validation could stop training before the rows are filled in."""
        super().check(job, epochs)
        method = f"train.unaligned: {self.method}"
        if job.evaluate.validation_fraction:
            raise ValueError(
                f"{method} divides the epochs into those before the rows outside of the alignment are filled in and those "
                "after, and evaluate.validation_fraction may stop training before that: leave one out"
            )
        if epochs == 1:
            raise ValueError(f"{method} needs train.epochs of 2 or more: one before the rows are filled in, and one after")

    @override
    def outcome_text(self, rows: int, local: int, federated: int) -> str:
        return (
            f"{rows:,} rows of the active party alone got an embedding each: {self.words()}; they were learnt from in "
            f"{local:,} batches beside {federated:,} federated ones"
        )


class FillingMethod(AlternatingMethod):
    """A method that makes up embeddings, once."""

    anew: bool = Field(
        default=True,
        description="whether the active party's half begins anew with the rows filled in; false: it goes on from what it has "
        "learnt of the aligned rows. The passive party's half goes on in any case",
    )

    @property
    @override
    def begins_anew(self) -> bool:
        return self.anew

    def filling(self, sizes: Sizes) -> tuple[Passes, ...]:
        """What the method computes to make the embeddings up; the own bottom's passes over aligned rows are counted."""
        return ()

    @override
    def work(self, sizes: Sizes) -> tuple[Passes, ...]:
        aligned = Passes("active", Network(bottom=True), sizes.aligned, ROWS_AT_ONCE, learns=False)
        return (*super().work(sizes), aligned, *self.filling(sizes))

    def kept_bytes(self, rows: int, own: int, received: int) -> int:
        """As the base: filled-in embeddings of 2 bytes a value, and of 4 while they are made up; and a target."""
        return rows * (6 * received + 4)


class PretrainingMethod(Unaligned):
    """A method that trains both bottoms without labels, before the training with them."""

    pretrain_epochs: int = Field(
        default=5, ge=1, le=10_000, description="epochs in which both bottoms are trained without labels, before all others"
    )

    @property
    @override
    def epochs_before(self) -> int:
        return self.pretrain_epochs

    @override
    def epochs_text(self, epochs: int) -> str:
        return f"in {self.pretrain_epochs:,} epochs before the {epochs:,} with labels"

    @override
    def outcome_text(self, rows: int, local: int, federated: int) -> str:
        return (
            f"before the training, {self.words()} in {self.pretrain_epochs} epochs; the active party learnt from {rows:,} rows "
            "that it alone has, too"
        )


METHODS: Registry[type[Unaligned]] = Registry(
    "vfl_node.unaligned",
    {
        "none": "vfl_node.training.unaligned.specs:NoUnaligned",
        "heuristic": "vfl_node.training.unaligned.specs:Heuristic",
        "jpl": "vfl_node.training.unaligned.specs:JointPrivilegedLearning",
        "diffusion": "vfl_node.training.unaligned.specs:Diffusion",
        "fedcvt": "vfl_node.training.unaligned.specs:FedCvt",
        "ssl": "vfl_node.training.unaligned.specs:SelfSupervised",
        "mpd": "vfl_node.training.unaligned.specs:MatchedPairs",
        "fedhssl": "vfl_node.training.unaligned.specs:FedHssl",
    },
    check=subclass_of(Unaligned),
)
"""``train.unaligned.method`` → its section."""


class _MethodNamed(Frozen, extra="ignore"):
    """The key of a section that says which method's keys stand beside it."""

    method: Annotated[str, name_in(METHODS)] = "none"


def unaligned_of(section: Any) -> type[Unaligned]:
    """What reads a ``train.unaligned`` section: the class of the method that it names."""
    return METHODS[_MethodNamed.model_validate(section, from_attributes=True).method]


@dataclass(frozen=True)
class Sizes:
    """A training of one repeat.

    Attributes:
        outside: rows of the active party that are learnt from without a partner.
        aligned: shared rows that are trained on.
        passive: rows of the passive party that may be learnt from, aligned ones included.
        epochs: with labels.
        batch: rows of a batch.
        own: d', width of what the active party's bottom gives.
        received: d, width of the passive party's embedding.
        top: widths of the hidden layers above them.
        outputs: logits a row.
    """

    outside: int
    aligned: int
    passive: int
    epochs: int
    batch: int
    own: int
    received: int
    top: tuple[int, ...]
    outputs: int

    @property
    def above(self) -> tuple[int, ...]:
        """The joint model's layers above both embeddings, what they read first."""
        return (self.own + self.received, *self.top, self.outputs)

    @property
    def branch(self) -> Network:
        """The active party's half."""
        return Network(bottom=True, dense=self.above)
