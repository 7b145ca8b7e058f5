"""What a node's owner allows jobs: the limits of its policy (:mod:`vfl_node.settings.policy`), for everyone or one partner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from vfl_node.configuration.models import Frozen, name_in
from vfl_node.gdp import MOST_EPSILON
from vfl_node.job import Name, ProtocolName
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import TRAINERS
from vfl_node.job.unaligned import METHODS
from vfl_node.settings.bounds import Limit, tighten
from vfl_node.settings.hours import Window

UnboundedModel = Literal["networks", "taylor", "exact", "boosted-trees", "rounded-statistics"]
"""A kind of model trained in shares of which what is opened has no bound."""

TOLD = ("matched", "candidates")
"""What a job may ask to be told, beyond what its protocol tells."""

Any_ = Literal["any"]


@dataclass(frozen=True)
class Tighter:
    """Annotates a limit: of two values, which one allows less.

    Attributes:
        by: least, the larger one; most, the smaller one, and None has no bound; names, those in both.
    """

    by: Literal["least", "most", "names"]


LEAST, MOST, NAMES = Tighter("least"), Tighter("most"), Tighter("names")

Count = Annotated[int, Field(ge=0)] | None
"""How often something may happen; None: any number of times."""


class Budgets(Frozen):
    """How much may happen with one partner over many jobs."""

    alignments: Annotated[Limit, MOST] = Field(
        default=20,
        description="how many different pairs of sets (this node's and a partner's) may ever be aligned; from two pairs "
        "that differ in a few ids either party may learn about these ids",
    )
    changes: Annotated[Count, MOST] = Field(
        default=0,
        description="how often, over one table, a set (this node's or a partner's) may ever change between alignments of "
        "which one hid how many records are shared (dummies, obfuscated sets), by one record as by many. A change draws "
        "again what hides it, or lets it be told: c changes leave about 2/(c + 2) of what dummies hide, and of the records "
        "that hide the shared ones in a set of m of n_s at most (m/n_s)^c",
    )
    trainings: Annotated[Limit, MOST] = Field(
        default=20,
        description="how many trainings with synthetic rows, with weights or sums of hidden training opened, or with halves "
        "handed over, a partner may ever have over the same table of this node; synthetic rows are drawn again with each "
        "alignment, first weights and the records held out in each training, real rows are not, so comparing a few trainings "
        "separates them",
    )
    trainings_in_clear: Annotated[Limit, MOST] = Field(
        default=200,
        description="how many trainings that send embeddings, gradients or scores of single rows, over whatever alignment, a "
        "partner may ever have over the same table of this node; each tells more of the columns and labels of the same rows",
    )
    linkages: Annotated[Limit, MOST] = Field(
        default=5,
        description="in how many different ways the same records may ever be linked with a partner's: another set of the "
        "partner is one, and so are other terms (keys, encoding, candidates, noise). On these noise is drawn anew, and the "
        "mean of a few similarities tells distances, so there may be as many different terms over all sets. At a "
        "coordinator over encodings",
    )
    predicted_rows: Annotated[int, MOST] = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description="about how many different rows of one model a partner may ever learn about by predictions. All rows of "
        "a batch count. All of them are computed with the same weights, so a copy among them is equal to its source",
    )
    models_served: Annotated[Limit, MOST] = Field(
        default=5,
        description="how many different hidden models over one table may ever answer one partner: each gives another "
        "equation of the columns of a record that is asked for",
    )
    epsilon: Annotated[Annotated[float, Field(gt=0, le=MOST_EPSILON, allow_inf_nan=False)] | None, MOST] = Field(
        default=4.0,
        description="ε, with a δ of 10⁻⁶, of all that hidden trainings over one table may ever open with one partner: "
        "about whether one record is shared, or its label. null: no bound",
    )
    extend: Annotated[bool, MOST] = Field(
        default=False,
        description="whether the owners of this node and a partner may agree on more of these until a day "
        "(vfl-node ledger extend), without a new policy; false: a partner that asks is refused at once",
    )


class SizeLimits(Frozen):
    """How large a job may be."""

    rows: Annotated[int, MOST] = Field(
        default=100_000_000, ge=1, description="largest number of ids that a partner may announce, random ones included"
    )
    parameters: Annotated[int, MOST] = Field(
        default=20_000_000,
        ge=1,
        description="largest number of weights of a job's networks at this node; each takes about 64 bytes during training",
    )
    steps: Annotated[int, MOST] = Field(
        default=10_000_000, ge=1, description="largest number of batches, or iterations, of a job"
    )


class LinkageLimits(Frozen):
    """What a linkage may tell of this node's records."""

    max_reuse: Annotated[Annotated[int, Field(ge=1)] | None, MOST] = Field(
        default=200,
        description="for a passive node: of how many different records of the active party one record of this node may be "
        "a candidate in one linkage. Each gives the active party a similarity of it, and from many it locates the keys. "
        "null: of any number",
    )
    min_sigma: Annotated[float, LEAST] = Field(
        default=0,
        ge=0,
        description="for a passive node: least noise on similarities in a linkage, in standard deviations of distances. It "
        "hides distances, not where a record lies: of which records it is a candidate tells that without any similarity",
    )


class QueryLimits(Frozen):
    """How many ids a partner may ask about in an alignment by upsi, and how long the key of the answers lasts."""

    per_day: Annotated[Count, MOST] = Field(
        default=2_000,
        description="ids within any 24 hours: at the side that serves of a partner's, at the side that asks of this node's. "
        "null: any number",
    )
    per_epoch: Annotated[int, MOST] = Field(
        default=50_000,
        ge=1,
        le=1 << 26,
        description="the same within any rotate_days. Whoever asks often enough enumerates the list; more answers under one "
        "key would also weaken the key",
    )
    rotate_days: Annotated[int, MOST] = Field(
        default=30,
        ge=1,
        le=366,
        description="days after which the next job gets a new key, and the list is sent again: what was asked before stays "
        "known, and the list of before tells nothing new",
    )
    deltas: Annotated[bool, MOST] = Field(
        default=False,
        description="at the side that serves: whether a list to which ids have come keeps its key, and only their tags are "
        "sent. It tells a partner how many came, and which of all ids that it has asked about under the key are among them. "
        "false: a changed table has another key, and its list is sent again",
    )


_Auc = Annotated[float, Field(gt=0.5, le=1)] | None


class AttackLimits(Frozen):
    """How well this node's own attacks on what it sends may do before it stops. None: that is only shown."""

    rows: Annotated[_Auc, MOST] = Field(
        default=None,
        description="training stops when the AUC of an attack on this node's synthetic rows exceeds this (folded: .3 counts "
        "as .7), on the average of the last epochs; predictions stop before that",
    )
    columns: Annotated[Annotated[float, Field(gt=0, le=1)] | None, MOST] = Field(
        default=None,
        description="for a passive node: training stops when a column of audit.features is rebuilt from what is sent better "
        "than by the best constant, by more than this (accuracy, AUC or R² of the rebuilt column)",
    )
    labels: Annotated[_Auc, MOST] = Field(
        default=None,
        description="for an active node: training stops when an attack of its own reads labels better than this from what "
        "a passive party has (AUC, folded: .3 counts as .7), after any epoch",
    )


class Limits(Frozen):
    """What this node's owner allows any job, whoever says yes to it. The defaults are those of ``preset: careful``."""

    protocols: Annotated[tuple[ProtocolName, ...] | Any_, NAMES] = Field(
        default_factory=lambda: tuple(name for name, spec in ALIGNMENTS.usable() if spec.allowed_by_default),
        min_length=1,
        description="alignment protocols that a job may use; who submits a job chooses among them what is revealed. "
        "careful: every one but those that must be named here (docs/explanations/alignment/index.md)",
    )
    trainers: Annotated[tuple[Annotated[str, name_in(TRAINERS)], ...] | Any_, NAMES] = Field(
        default="any", description="algorithms of train that a job may use"
    )
    unaligned: Annotated[tuple[Annotated[str, name_in(METHODS)], ...] | Any_, NAMES] = Field(
        default_factory=lambda: tuple(name for name, method in METHODS.usable() if method.allowed_by_default),
        description="methods of train.unaligned that a job may use. careful: every one but those that send more of this "
        "party's columns than embeddings and gradients tell (docs/guides/use-unaligned-rows.md)",
    )
    unbounded_models: Annotated[tuple[UnboundedModel, ...] | Any_, NAMES] = Field(
        default=(),
        description="kinds of models that a job may train in shares without ε: networks (train.layers), taylor (train.loss: "
        "taylor), exact (regressions with train.epsilon: null), boosted-trees, and rounded-statistics (epsilon: null). "
        "What is opened of these has no bound",
    )
    tables: Annotated[tuple[Name, ...] | Any_, NAMES] = Field(
        default=("default",),
        description="this party's tables that a job may use, by their names in data; default: that of a job that names none",
    )
    coordinators: Annotated[tuple[Name, ...] | Any_, NAMES] = Field(
        default=(),
        description="coordinators that a job of a partner may name. A coordinator deals the randomness of hidden training: "
        "with one other party it sees everything. Jobs of this node's own name whom they like",
    )
    reveal: Annotated[tuple[Annotated[str, name_in(TOLD)], ...] | Any_, NAMES] = Field(
        default=(),
        description="what a job may ask to be told beside: matched, how many held-out rows both parties own "
        "(evaluate.matched; an active party that departs from the protocol can read flags of single rows instead, a bit "
        "for every 8 rows); candidates, at an active node, which records of a passive party are nearest to each of this "
        "node's in a linkage (that set alone locates this node's records)",
    )
    min_own_rows: Annotated[int, LEAST] = Field(
        default=50,
        ge=1,
        description="smallest number of this node's ids in an alignment. The size of an intersection that is empty or the "
        "whole set reveals membership; if one record in ten is shared, the intersection of 50 random ids is empty once in "
        "200 jobs (0.9^50), that of 10 in every third",
    )
    min_peer_rows: Annotated[int, LEAST] = Field(
        default=50, ge=1, description="smallest number of a partner's ids in an alignment; likewise"
    )
    min_overlap: Annotated[int, LEAST] = Field(
        default=0,
        ge=0,
        description="psu and psi with several passive parties: fewest records in each part of the overlap (those that "
        "exactly some of the parties hold, for every choice of them), as the active party counts them. The largest minimum "
        "of all parties applies; with a smaller part a job stops before there is a shared order, and nobody but the active "
        "party learns which part it is. 0: none",
    )
    least_rows: Annotated[int, LEAST] = Field(
        default=20,
        ge=0,
        description="a column of this node's table in which fewer records differ, or one has more than a fifth of the sum "
        "of squares, takes no part in hidden training. The width that a table has with a partner stays what it was at first. "
        "Of trees: fewest records on each side of a split, which a job must ask for",
    )
    size: SizeLimits = SizeLimits()
    linkage: LinkageLimits = LinkageLimits()
    attacks: AttackLimits = AttackLimits()
    budgets: Budgets = Budgets()
    queries_per_peer: QueryLimits = QueryLimits()
    allow_export: Annotated[bool, MOST] = Field(
        default=False,
        description="whether this node's half of a model may be written to files of its own (vfl-node export). It binds this "
        "node's half alone. A half holds levels and quantiles, which are cells of the table, and whoever has the halves of all "
        "parties predicts without any count",
    )
    allow_joint_export: Annotated[bool, MOST] = Field(
        default=False,
        description="whether a job may give this node's half of a model to another party, or the halves of others to this node "
        "(export.joint). Whoever has the halves of all parties has cells of their tables, and predicts without any count",
    )
    hours: Annotated[tuple[Window, ...], Field(min_length=1)] | Any_ = Field(
        default="any",
        description="when a job may begin, such as mon-fri 18:00-06:00, in the policy's zone; hours past midnight belong to "
        "the evening's day. A job that has begun goes on",
    )
    allow_preparation: Annotated[bool, MOST] = Field(
        default=False,
        description="hidden training without a coordinator: whether a job may align, encrypt columns and make random numbers "
        "before its hours. Then only the training waits for them",
    )


Section = TypeVar("Section", bound=Frozen)


def overlay(below: Section, above: Section) -> Section:
    """``below``, and what is written in ``above`` instead of it."""
    written = {}
    for key in above.model_fields_set:
        value = getattr(above, key)
        written[key] = overlay(getattr(below, key), value) if isinstance(value, Frozen) else value
    return below.model_copy(update=written)


def tightest(several: Iterable[Section]) -> Section:
    """What all of these allow. ``hours`` stay those of the first: they bind each partner by itself."""
    return reduce(_tighten, several)


def _tighten(one: Section, other: Section) -> Section:
    met: dict[str, Any] = {}
    for key, field in type(one).model_fields.items():
        left, right = getattr(one, key), getattr(other, key)
        if isinstance(left, Frozen):
            met[key] = _tighten(left, right)
        for tighter in (each for each in field.metadata if isinstance(each, Tighter)):
            met[key] = _TIGHTER[tighter.by](left, right)
    return one.model_copy(update=met)


def _fewer(left: Any, right: Any) -> Any:
    if left is None or right is None:
        return right if left is None else left
    return tighten(left, right) if isinstance(left, tuple) or isinstance(right, tuple) else min(left, right)


def _common(left: Any, right: Any) -> Any:
    return right if left == "any" else left if right == "any" else tuple(name for name in left if name in right)


_TIGHTER: Mapping[str, Callable[[Any, Any], Any]] = {"least": max, "most": _fewer, "names": _common}


def allows(names: tuple[str, ...] | Any_, *wanted: str) -> bool:
    """Whether a limit that lists names allows all that are wanted."""
    return names == "any" or set(wanted) <= set(names)
