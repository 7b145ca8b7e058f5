"""What a node's owner allows any job: the ``limits`` of its settings (see docs/reference/node-settings.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from vfl_node.configuration.models import Frozen, name_in
from vfl_node.gdp import MOST_EPSILON
from vfl_node.job import Name, ProtocolName
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.unaligned import METHODS

UnboundedModel = Literal["networks", "taylor", "exact"]
"""A kind of hidden model of which what is opened has no bound."""


class Limits(Frozen):
    """What this node's owner allows any job."""

    min_set_size: int = Field(
        default=50,
        ge=1,
        description="smallest number of ids of either party. The size of an intersection that is empty or the whole set "
        "reveals membership; if one record in ten is shared, the intersection of 50 random ids is empty once in 200 jobs "
        "(0.9^50), that of 10 in every third",
    )
    min_overlap: int = Field(
        default=0,
        ge=0,
        description="psu and psi with several passive parties: fewest records in each part of the overlap (those that exactly "
        "some of the parties hold, for every choice of them), as the active party counts them. The largest minimum of all "
        "parties applies; with a smaller part a job stops before there is a shared order, and nobody but the active party "
        "learns which part it is. 0: none",
    )
    protocols: tuple[ProtocolName, ...] = Field(
        default_factory=lambda: tuple(name for name, spec in ALIGNMENTS.usable() if spec.allowed_by_default),
        min_length=1,
        description="alignment protocols that a job may use; a peer that may submit jobs chooses among them what is revealed. "
        "By default every one but those that must be named here (docs/explanations/alignment/index.md)",
    )
    methods: tuple[Annotated[str, name_in(METHODS)], ...] = Field(
        default_factory=lambda: tuple(name for name, method in METHODS.usable() if method.allowed_by_default),
        description="methods of train.unaligned that a job may use. By default every one but those that send more of this "
        "party's columns than embeddings and gradients tell (docs/guides/use-unaligned-rows.md)",
    )
    max_set_size: int = Field(
        default=100_000_000, ge=1, description="largest number of ids that a peer may announce, random ones included"
    )
    inputs_per_peer: int = Field(
        default=20,
        ge=1,
        description="how many different pairs of sets (this node's and a peer's) may ever be aligned; "
        "from two pairs that differ in a few ids either party may learn about these ids",
    )
    changes_per_peer: int = Field(
        default=0,
        ge=0,
        description="how often, over one table, a set (this node's or a peer's) may ever change between alignments with a peer "
        "of which one hid from it how many records are shared (dummies, obfuscated sets), by one record as by many. A change "
        "draws again what hides it, or lets it be told: c changes leave about 2/(c + 2) of what dummies hide, and of the "
        "records that hide the shared ones in a set of m of n_s at most (m/n_s)^c",
    )
    epsilon_per_partner: float | None = Field(
        default=4.0,
        gt=0,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        description="ε, with a δ of 10⁻⁶, of all that hidden trainings over one table may ever open with one partner: about "
        "whether one record is shared, or its label. null: no bound",
    )
    unbounded_models: tuple[UnboundedModel, ...] = Field(
        default=(),
        description="kinds of hidden models that a job may train without ε: networks (train.layers), taylor (train.loss: "
        "taylor), and exact (regressions with train.epsilon: null). What is opened of these has no bound. Default: none",
    )
    models_served: int = Field(
        default=5,
        ge=1,
        description="how many different hidden models over one table may ever answer one partner: each gives another equation "
        "of the columns of a record that is asked for",
    )
    least_rows: int = Field(
        default=20,
        ge=0,
        description="a column of this node's table in which fewer records differ, or one has more than a fifth of the sum of "
        "squares, takes no part in hidden training. The width that a table has with a partner stays what it was at first",
    )
    coordinators: tuple[Name, ...] = Field(
        default=(),
        description="coordinators that a job of a peer may name. A coordinator deals the randomness of hidden training: with "
        "one other party it sees everything. Jobs of this node's own name whom they like",
    )
    trainings_per_set: int = Field(
        default=20,
        ge=1,
        description="how many trainings with synthetic rows, or with weights or sums of hidden training opened, a peer may "
        "ever have over the same records of this node; synthetic rows, first weights and the records held out are drawn again "
        "in each training, real rows are not, so comparing a few trainings separates them",
    )
    linkages_per_set: int = Field(
        default=5,
        ge=1,
        description="in how many different ways the same records may ever be linked with a peer's: another set of the peer is "
        "one, and so are other terms (keys, encoding, candidates, noise). On these noise is drawn anew, and the mean of a few "
        "similarities tells distances, so there may be as many different terms over all sets. At a coordinator over encodings",
    )
    max_reuse: int = Field(
        default=200,
        ge=1,
        description="for a passive node: of how many different records of the active party one record of this node may be a "
        "candidate in one linkage. Each gives the active party a similarity of it, and from many it locates the keys",
    )
    min_sigma: float = Field(
        default=0,
        ge=0,
        description="for a passive node: least noise on similarities in a linkage, in standard deviations of distances. It "
        "hides distances, not where a record lies: of which records it is a candidate tells that without any similarity",
    )
    reveal_candidates: bool = Field(
        default=True,
        description="for an active node: whether a linkage may tell the passive party which of its records are nearest to each "
        "of this node's; that set alone locates this node's records. false refuses linkage before anything is encoded",
    )
    rows_per_model: int = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="about how many different rows of one model a peer may ever learn about by predictions. All rows of a "
        "batch count. All of them are computed with the same weights, so a copy among them is equal to its source",
    )
    jobs_per_peer: int = Field(
        default=1000,
        ge=1,
        le=1_000_000,
        description="how many jobs submitted by one peer this node stores, ended ones included; more are refused until "
        "some are pruned (keep_days, keep_jobs, vfl-node prune)",
    )
    running_per_peer: int | None = Field(
        default=None,
        ge=1,
        description="how many jobs submitted by one peer run at a time; more wait. The last of jobs_at_once places is this "
        "owner's in any case. None: an equal share of the others for each peer in accept_jobs_from",
    )
    max_attack_auc: float | None = Field(
        default=None,
        gt=0.5,
        le=1,
        description="this node attacks what it sends itself. Training stops when the AUC of an attack on its synthetic rows "
        "exceeds this (folded: .3 counts as .7), on the average of the last epochs; predictions stop before that. None: the "
        "AUCs are only shown",
    )
    max_feature_gain: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="for a passive node: training stops when a column of audit.features is rebuilt from what is sent better "
        "than by the best constant, by more than this (accuracy, AUC or R² of the rebuilt column). None: it is only shown",
    )
    max_label_auc: float | None = Field(
        default=None,
        gt=0.5,
        le=1,
        description="for an active node: training stops when an attack of its own reads labels better than this from what a "
        "passive party has (AUC, folded: .3 counts as .7), after any epoch. None: the AUCs are only shown",
    )

    allow_matched: bool = Field(
        default=False,
        description="whether a job may count, under encryption, which held-out rows both parties own (evaluate.matched); an "
        "active party that departs from the protocol can read flags of single rows instead, a bit for every 8 rows",
    )
    max_model_parameters: int = Field(
        default=20_000_000,
        ge=1,
        description="largest number of weights of a job's networks at this node; each takes about 64 bytes during training",
    )
    max_steps: int = Field(default=10_000_000, ge=1, description="largest number of batches, or iterations, of a job")
    max_memory_mib: int | None = Field(
        default=None, ge=1, description="largest estimated memory of all jobs together; None: what is free"
    )

    @model_validator(mode="after")
    def _check_order(self) -> Limits:
        if self.min_set_size > self.max_set_size:
            raise ValueError("min_set_size is above max_set_size")
        return self
