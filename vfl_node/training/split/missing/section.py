"""The job's ``train.missing`` section: how rows are filled in that a party does not own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, SkipValidation, ValidationError, create_model, model_validator
from typing_extensions import Self

from vfl_node.configuration.models import Frozen, name_in
from vfl_node.errors import UsageError
from vfl_node.job.training import TrainingJob
from vfl_node.training.split.missing.strategies import FEATURES, LABELS, FeatureStrategy, LabelStrategy, Strategy


class OwnedShares(Frozen):
    """What share of the shared rows each party owns, where the alignment hides it: an agreed guess."""

    active: float = Field(gt=0, le=1, description="p_a: share of the rows with a real label")
    passive: float = Field(gt=0, le=1, description="p_p: share of the rows with real features of the passive party")


class _StrategyNames(Frozen, extra="ignore"):
    """The keys of a ``missing`` section that say which strategies' keys stand beside them."""

    labels: Annotated[str, name_in(LABELS)] = "majority"
    features: Annotated[str, name_in(FEATURES)] = "sampling"


class Missing(_StrategyNames, extra="forbid"):
    """How rows are filled in that a party does not own (see docs/explanations/training/missing-rows.md).

    In a job the keys of the chosen strategies stand beside these: it is read by a subclass that has them as fields.
    """

    renamed: ClassVar[Mapping[str, str]] = {"calibrate": "calibration_for"}

    strategies: ClassVar[tuple[type[Strategy], ...]] = ()

    calibration: Literal["none", "train", "test"] = Field(
        default="none", description="whether and when probabilities are corrected for synthetic rows"
    )
    calibration_for: Literal["both", "labels", "features"] = Field(
        default="both", description="whose synthetic values calibration corrects for"
    )
    shares: OwnedShares | None = Field(
        default=None, description="for calibration with align.dummies, which hide how many rows each party owns"
    )

    @property
    def label_strategy(self) -> LabelStrategy:
        """The strategy of :attr:`labels` with its own keys."""
        return LABELS[self.labels].model_validate(_keys_of(LABELS[self.labels], dict(self)))

    @property
    def feature_strategy(self) -> FeatureStrategy:
        """The strategy of :attr:`features` with its own keys."""
        return FEATURES[self.features].model_validate(_keys_of(FEATURES[self.features], dict(self)))

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, read anew: with another strategy its keys take the place of those of the former one."""
        update = update or {}
        changed = {**dict(self), **update}
        model = missing_of(changed)
        return cast("Self", model(**{key: changed[key] for key in changed if key in model.model_fields or key in update}))

    @model_validator(mode="before")
    @classmethod
    def _read_strategy_keys(cls, section: Any) -> Any:
        if not isinstance(section, Mapping):
            return section
        others = [key for key in section if key not in cls.model_fields and _is_default_of_another(key, section[key])]
        keys = {key: section[key] for key in section if key not in others}
        for strategy in cls.strategies:
            keys |= dict(strategy.model_validate(_keys_of(strategy, keys)))
        return keys

    @model_validator(mode="after")
    def _check_keys(self) -> Missing:
        if self.calibration == "none" and (self.shares or self.calibration_for != "both"):
            raise ValueError("shares and calibration_for are for calibration, and calibration is none")
        return self


def _keys_of(strategy: type[Strategy], keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: keys[key] for key in strategy.model_fields if key in keys}


def _is_default_of_another(key: object, value: object) -> bool:
    """Whether a key that no chosen strategy has says what would be so without it, as in jobs of earlier versions.

    Raises:
        ValueError: it says something else to a strategy that is not chosen.
    """
    owners = []
    for name, strategy in chain(LABELS.usable(), FEATURES.usable()):
        if key in strategy.model_fields:
            owners.append(name)
            with suppress(ValidationError):
                if strategy.model_validate({key: value}) == strategy():
                    return True
    if owners:
        raise ValueError(f"{key} is for {' and '.join(owners)}")
    return False


def missing_of(section: Any) -> type[Missing]:
    """What reads a ``missing`` section: :class:`Missing` with the keys of the strategies that it names."""
    names = _StrategyNames.model_validate(section, from_attributes=True)
    return _make_section(names.labels, names.features, LABELS[names.labels], FEATURES[names.features])


_READ: Any = SkipValidation()  # type: ignore[type-arg]
"""Annotates a key whose value a strategy has read."""


@cache
def _make_section(labels: str, features: str, *strategies: type[Strategy]) -> type[Missing]:
    fields: dict[str, Any] = {}
    for name, strategy in zip((labels, features), strategies, strict=True):
        for key, field in strategy.model_fields.items():
            if key in (*Missing.model_fields, *Missing.renamed) or hasattr(Missing, key):
                raise UsageError(
                    f"strategy {name!r} cannot be used: the name of its key {key!r} is taken in train.missing",
                    code="E_EXTENSION",
                    hint="ask the author of its package to rename the key",
                    for_peer="a part that the job needs cannot be used there",
                )
            if key in fields:
                raise ValueError(f"labels: {labels} and features: {features} both have a key {key!r}: choose another of them")
            fields[key] = (Annotated[(field.annotation, *field.metadata, _READ)], ...)
    if not fields:
        return Missing
    model = create_model("Missing", __base__=Missing, __doc__=Missing.__doc__, **fields)
    model.strategies = strategies
    return model


def hidden_intersection_words(job: TrainingJob) -> str:
    """Words for an error, after the size of the intersection; empty where it is not hidden."""
    if hidden := job.align.spec.intersection_hidden_from:
        parties = " and the ".join(f"{role} party" for role in sorted(hidden))
        return f"which {job.align.protocol} keeps from the {parties} (a loss that depends on it would tell)"
    return "which align.dummies hides from both parties" if job.align.dummies else ""
