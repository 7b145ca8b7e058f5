"""How records are matched: the job's ``align`` section, and what is asked of the protocol that it names before it runs.

A protocol is a folder under ``vfl_node/alignment`` (or an installed package) with four parts: the *spec*, an
:class:`AlignmentSpec`, which imports no numpy, torch or grpc, so that a job can be checked without them; and three that the
spec names and that are loaded when they are needed: the *sides*, a coroutine for each role; the *plan*, which counts what it
costs; and the *words* of its report. docs/explanations/alignment/index.md ("Another protocol") has the rest.

Nothing outside a protocol's folder compares its name: it asks for a property.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from vfl_node.configuration.models import Frozen, name_in
from vfl_node.configuration.registry import Registry, instance_of
from vfl_node.configuration.renamed import Renamed
from vfl_node.job.keys import Encoding, Key, SimilarityNoise
from vfl_node.job.names import JobId
from vfl_node.roles import Role


@dataclass(frozen=True)
class SeveralPassive:
    """How a protocol runs with several passive parties.

    Attributes:
        most: with how many at most; 1: with one only.
        why_not_more: why it does not run with more; a clause without a capital and a full stop.
        sides: as :attr:`AlignmentSpec.sides`, where there are several.
    """

    most: int
    why_not_more: str
    sides: Mapping[Role, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AlignmentSpec:
    """What an alignment protocol is.

    Attributes:
        name: in ``align.protocol``; the key in the registry.
        shared_rows: what its shared order is, in words, such as "the union".
        sides: role → ``module:attribute`` of the coroutine that plays it (:data:`vfl_node.alignment.protocols.Side`). For a
            coordinator: of a function that makes its :class:`~vfl_node.alignment.protocols.AlignmentCoordination` from its
            session. A role without one takes no part.
        several: how it runs with several passive parties.
        plan: ``module:attribute`` of its :class:`~vfl_node.alignment.plan.AlignmentPlan`.
        words: ``module:attribute`` of its :class:`~vfl_node.alignment.words.AlignmentWords`.
        synthetic_rows_at: roles that may meet shared rows whose records they do not own.
        intersection_hidden_from: roles that do not learn how many records are shared, whatever the job's options are.
        padded_roles: roles whose sets ``align.padding`` rounds up.
        options: which of the options ``obfuscation``, ``dummies`` and ``server`` of the job's ``align`` section it has.
        allowed_by_default: whether a careful policy allows it that does not name it in ``protocols``.
        reveals: ``module:attribute`` of a function from a job to the :class:`~vfl_node.ledger.Declaration` of each thing that a
            party may learn by it; empty: it does not say.
        ways: keys of the job's ``align`` section in each way to run it that tells something else, the usual one first
            (:mod:`vfl_node.plans.combinations`).
        answers_questions: whether one party answers the other's ids under a key that lasts over jobs. Then each id counts, and
            no pair of sets.
        by_similarity: whether each row is a record of the active party with several records of the passive one that are like it
            (candidates), instead of one record that parties have in common.
    """

    name: str
    shared_rows: str
    sides: Mapping[Role, str]
    several: SeveralPassive
    plan: str
    words: str
    synthetic_rows_at: frozenset[Role]
    intersection_hidden_from: frozenset[Role]
    padded_roles: frozenset[Role]
    options: frozenset[str]
    allowed_by_default: bool = True
    by_similarity: bool = False
    reveals: str = ""
    ways: tuple[Mapping[str, Any], ...] = (MappingProxyType({}),)
    answers_questions: bool = False

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator takes part."""
        return "coordinator" in self.sides

    @property
    def every_row_is_shared(self) -> bool:
        """Whether each party owns the record of every row of the shared order.

        Then there are no synthetic rows, in training or in predictions of new records, and both parties know which
        of their records the other one has.
        """
        return not self.synthetic_rows_at and not self.by_similarity

    @property
    def can_count_matched_rows(self) -> bool:
        """Whether the rows that both own are only a part of the shared order, unknown which, and all may know how many.

        Only then ``evaluate.matched`` is useful, and permitted.
        """
        return not self.every_row_is_shared and not self.intersection_hidden_from and not self.by_similarity

    @property
    def is_within_one_set(self) -> bool:
        """Whether one party owns every row and another one does not: the shared order is a part of the first one's records."""
        return 0 < len(self.synthetic_rows_at) < len(self.sides)

    def shows_shared_records_to(self, role: Role) -> bool:
        """Whether ``role`` learns exactly which of its records are shared.

        The others own the record of every row of the shared order: so its own records there are the shared ones, and all its
        other records have no partner.
        """
        return self.synthetic_rows_at <= {role} and not self.by_similarity

    def fit_to(self, align: Align) -> AlignmentSpec:
        """The same in a job with this ``align`` section, where another plan belongs to that."""
        return self

    def check(self, align: Align) -> None:
        """Refuse a job's ``align`` section that does not fit this protocol. Its options are known to be among :attr:`options`.

        Raises:
            ValueError: it does not; the text is for the owner.
        """

    def check_several(self, align: Align) -> None:
        """Refuse a job's ``align`` section that does not fit several passive parties.

        Raises:
            ValueError: it does not; the text is for the owner.
        """


ALIGNMENTS: Registry[AlignmentSpec] = Registry(
    "vfl_node.alignments",
    {
        "psu": "vfl_node.alignment.psu.spec:PSU",
        "psi": "vfl_node.alignment.psi.spec:PSI",
        "apsi": "vfl_node.alignment.apsi.spec:APSI",
        "psi-pairs": "vfl_node.alignment.psi_pairs.spec:PSI_PAIRS",
        "upsi": "vfl_node.alignment.upsi.spec:UPSI",
        "linkage": "vfl_node.alignment.linkage.spec:LINKAGE",
    },
    check=instance_of(AlignmentSpec),
    renamed={"psi-star": "psi-pairs"},
)
"""``align.protocol`` → what the protocol is. A package adds one by an entry point of the group ``vfl_node.alignments`` that
names an :class:`AlignmentSpec`."""

ProtocolName = Annotated[str, name_in(ALIGNMENTS), Renamed(ALIGNMENTS.renamed)]
"""The name of an alignment protocol, of this package or of an installed one."""


def coordinated_protocols() -> list[str]:
    """Names of the protocols in which a coordinator takes part."""
    return [name for name, spec in ALIGNMENTS.usable() if spec.coordinated]


IdForm = Literal["text", "nocase", "integer"]


class ObfuscatedSet(Frozen):
    """How many records an asymmetric intersection shows to both parties: one of the two is given."""

    size: int | None = Field(default=None, ge=1, description="records")
    fraction: float | None = Field(default=None, gt=0, le=1, description="share of the passive party's set, 0 to 1")

    @model_validator(mode="after")
    def _check_one_given(self) -> ObfuscatedSet:
        if (self.size is None) == (self.fraction is None):
            raise ValueError("give either size (records) or fraction (of the passive party's set)")
        return self


class Expected(Frozen):
    """What the parties expect of an alignment (see docs/guides/check-a-table.md, "Ids that do not meet")."""

    at_least: int = Field(
        default=1,
        ge=1,
        description="records; where fewer are shared, and both parties know how many, a job stops before it trains",
    )


class Align(Frozen):
    """How records are matched (see docs/explanations/alignment/index.md)."""

    protocol: ProtocolName = Field(
        default="psu",
        description="the shared order is the union, the intersection, or an obfuscated set around the intersection",
    )
    group: Literal["curve25519", "modp3072", "modp2048"] = Field(
        default="curve25519", description="the group in which ids are blinded"
    )
    id_form: IdForm | Annotated[tuple[IdForm, ...], Field(min_length=2, max_length=16)] = Field(
        default="text", description="how ids are compared; a list if several columns together identify a record"
    )
    obfuscation: ObfuscatedSet | Literal["private"] | None = Field(
        default=None,
        description="apsi only, and required: size of the obfuscated set; private: as in the active node's settings",
    )
    padding: int = Field(
        default=0,
        ge=0,
        le=16,
        description="announced set sizes are rounded up. With 4 there are four sizes from 1,024 to 2,048, four up to 4,096 and "
        "so on; 0: exact; apsi: only the active party's",
    )
    dummies: int = Field(
        default=0,
        ge=0,
        le=100_000_000,
        description="psu only: each set grows by twice as many dummy ids; dummies + 1 sizes of the intersection stay possible",
    )
    server: Literal["active", "passive"] = Field(
        default="passive",
        description="upsi only: the role of the party that answers, whose set is the large one; it sends a list once for many "
        "jobs. The other party asks",
    )
    at_most: int | None = Field(
        default=None,
        ge=1,
        description="a party with more records brings only a fixed random part of this size, so that the union stays small",
    )
    expect: Expected = Field(default=Expected(), description="stops a job whose parties' ids hardly meet")
    keys: dict[Annotated[str, Field(min_length=1, max_length=64)], Key] | None = Field(
        default=None, min_length=1, max_length=16, description="linkage only, and required: what records are compared by"
    )
    encoding: Encoding = Field(default=Encoding(), description="linkage only: how exact the encodings of keys are")
    candidates: int = Field(
        default=50, ge=1, le=1024, description="linkage only: how many of the passive party's records each record gets"
    )
    equal_only: bool = Field(
        default=False, description="linkage only: only records whose keys are encoded alike are candidates"
    )
    noise: SimilarityNoise | None = Field(default=None, description="linkage only, and required: what blurs the similarities")
    comparison: Literal["filters", "shares"] = Field(
        default="filters",
        description="linkage only: filters: the coordinator gets all encoded keys and compares them; shares: the data parties "
        "compare them in shares, and the coordinator gets nothing but their numbers",
    )

    reuse: JobId | None = Field(
        default=None,
        description="id of an earlier job of the same parties and tables, whose alignment is used again: nothing is aligned. "
        "Or auto: the newest alignment of the same records on the same terms that all data parties have kept, if there is one",
    )

    @model_serializer(mode="wrap")
    def _serialise(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without keys that say their default, where there were jobs before there was the key, so that those are the same."""
        fields = written(self)
        if self.comparison == "filters":
            fields.pop("comparison", None)
        if self.reuse is None:
            fields.pop("reuse", None)
        if self.server == "passive":
            fields.pop("server", None)
        return fields

    @field_validator("obfuscation", mode="before")
    @classmethod
    def _check_obfuscation(cls, value: object) -> object:
        if value is None or value == "private" or isinstance(value, Mapping | ObfuscatedSet):
            return value
        raise ValueError("give {size: RECORDS}, {fraction: OF THE PASSIVE SET} or private")

    @model_validator(mode="before")
    @classmethod
    def _refuse_security_number(cls, value: object) -> object:
        obfuscation = value.get("obfuscation") if isinstance(value, Mapping) else None
        if any(isinstance(keys, Mapping) and "security_number" in keys for keys in (value, obfuscation)):
            raise ValueError(
                "a job must not hold a security number: by it the passive party could compute the size of the intersection, "
                "since it knows the sizes of its own set and of the obfuscated one, (m/n_s^ξ)^(1/(1-ξ)). Say "
                "align.obfuscation: private, and put it into the active node's settings (obfuscation.security_number)"
            )
        return value

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> Align:
        options = {"obfuscation": self.obfuscation is not None, "dummies": self.dummies > 0, "server": self.server == "active"}
        options |= self._of_linkage
        for option, given in options.items():
            if given and option not in self.spec.options:
                suited = " or ".join(name for name, spec in ALIGNMENTS.usable() if option in spec.options)
                raise ValueError(f"align.{option} is for {suited}: {self.protocol} has none, so leave it out")
        if self.reuse and self.spec.coordinated:
            raise ValueError(f"align.reuse is not for {self.protocol}, in which a coordinator takes part: leave it out")
        self.spec.check(self)
        return self

    @property
    def _of_linkage(self) -> dict[str, bool]:
        """The options of an alignment by similarity, and whether this section says anything else than their defaults."""
        names = ("keys", "encoding", "candidates", "equal_only", "noise", "comparison")
        return {name: getattr(self, name) != type(self).model_fields[name].default for name in names}

    @property
    def tells_common(self) -> bool:
        """Whether every data party learns how many records all of them have."""
        return not self.dummies and not {"active", "passive"} & self.spec.intersection_hidden_from

    @property
    def spec(self) -> AlignmentSpec:
        """What the protocol is.

        Raises:
            UsageError: the package that adds it cannot be loaded (``E_EXTENSION``).
        """
        return ALIGNMENTS[self.protocol].fit_to(self)
