"""How records are matched: the job's ``align`` section (see docs/explanations/alignment/index.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from vfl_node.alignment.registry import ALIGNMENTS
from vfl_node.alignment.spec import AlignmentSpec
from vfl_node.configuration.models import Frozen, name_in
from vfl_node.job.keys import Encoding, Key, SimilarityNoise

ProtocolName = Annotated[str, name_in(ALIGNMENTS)]
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
    def _one(self) -> ObfuscatedSet:
        if (self.size is None) == (self.fraction is None):
            raise ValueError("give either size (records) or fraction (of the passive party's set)")
        return self


class Expected(Frozen):
    """What the parties expect of an alignment (see docs/guides/give-tables.md, "Ids that do not meet")."""

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
        description="announced set sizes are rounded up to one of so many sizes per doubling; 0: exact; apsi: only the active "
        "party's",
    )
    dummies: int = Field(
        default=0,
        ge=0,
        le=100_000_000,
        description="psu only: each set grows by twice as many dummy ids; dummies + 1 sizes of the intersection stay possible",
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

    @model_serializer(mode="wrap")
    def _written(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``comparison`` where it is the default, so that jobs from before there was this key are the same."""
        fields = written(self)
        if self.comparison == "filters":
            fields.pop("comparison", None)
        return fields

    @field_validator("obfuscation", mode="before")
    @classmethod
    def _size_or_private(cls, value: object) -> object:
        if value is None or value == "private" or isinstance(value, Mapping | ObfuscatedSet):
            return value
        raise ValueError("give {size: RECORDS}, {fraction: OF THE PASSIVE SET} or private")

    @model_validator(mode="before")
    @classmethod
    def _no_security_number(cls, value: object) -> object:
        obfuscation = value.get("obfuscation") if isinstance(value, Mapping) else None
        if any(isinstance(keys, Mapping) and "security_number" in keys for keys in (value, obfuscation)):
            raise ValueError(
                "a job must not hold a security number: from it, the size m of the obfuscated set and the size n_s of "
                "its own set the passive party computes that of the intersection, (m/n_s^ξ)^(1/(1-ξ)). Say "
                "align.obfuscation: private, and put it into the active node's settings (obfuscation.security_number)"
            )
        return value

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> Align:
        options = {"obfuscation": self.obfuscation is not None, "dummies": self.dummies > 0, **self._of_linkage}
        for option, given in options.items():
            if given and option not in self.spec.options:
                suited = " or ".join(name for name, spec in ALIGNMENTS.usable() if option in spec.options)
                raise ValueError(f"align.{option} is for {suited}: {self.protocol} has none, so leave it out")
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
        """What the protocol is: its properties, costs and words.

        Raises:
            UsageError: the package that adds it cannot be loaded (``E_EXTENSION``).
        """
        return ALIGNMENTS[self.protocol]
