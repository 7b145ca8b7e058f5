"""The missing-row strategies by the names that a job uses, and what each says about itself before anything runs.

``specs.py`` of each kind has a class for each strategy, with its words and its own keys in ``train.missing``; it imports no
torch. What it names in the files beside it is loaded on first use. A package adds a strategy by an entry point of the group
``vfl_node.strategies.labels`` or ``vfl_node.strategies.features``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from pydantic import ValidationError

from vfl_node.configuration.models import Frozen
from vfl_node.configuration.registry import Registry
from vfl_node.roles import Task


class Strategy(Frozen, validate_default=True):
    """A strategy as a job has chosen it. The fields of a subclass are its own keys in ``train.missing``, each with a default.

    Defaults are validated like what a job says, so that a job that leaves a key out is equal to one that writes its default.

    Attributes:
        fills: whether it makes anything up; one that does not suits an alignment without missing rows only.
    """

    fills: ClassVar[bool] = True

    def words(self) -> str:
        """What a row gets that its party does not own, for the report: words without a verb and a full stop."""
        raise NotImplementedError


class LabelStrategy(Strategy):
    """What the active party takes for the label of a row that it does not own: ``train.missing.labels``.

    Attributes:
        implementation: ``module:attribute``, called with the chosen strategy and a
            :class:`~vfl_node.training.split.missing.labels.contract.Known`; gives
            :class:`~vfl_node.training.split.missing.labels.contract.Labels`.
        redrawn: whether another training over the same records draws other labels.
        fixed: whether a label follows from its position, the real labels and randomness alone. Only then may another training
            over the same alignment have the same randomness.
        tasks: what it can make up: classes, or numbers.
        exported: whether a half that is calibrated for its labels can be written to a file.
    """

    implementation: ClassVar[str]
    redrawn: ClassVar[bool] = True
    fixed: ClassVar[bool] = False
    tasks: ClassVar[tuple[Task, ...]] = ("classification",)
    exported: ClassVar[bool] = True

    def learnt(self, peer: str) -> str:
        """What the passive party learns from gradients about which rows the active party, ``peer``, lacks, for the ledger."""
        raise NotImplementedError


class FeatureStrategy(Strategy):
    """What a party uses for the columns of a row that it does not own: ``train.missing.features``.

    A strategy with neither of the attributes copies own rows.

    Attributes:
        rows: ``module:attribute``, called with the chosen strategy, the own rows and randomness; gives
            :class:`~vfl_node.training.split.missing.features.contract.Rows`.
        embeddings: ``module:attribute``, called with the chosen strategy and randomness; gives a
            :class:`~vfl_node.training.split.missing.features.contract.Substitute`, which the passive party puts over
            embeddings of copied rows.
    """

    rows: ClassVar[str] = ""
    embeddings: ClassVar[str] = ""

    def learnt(self) -> str:
        """For how many rows the active party can tell which are synthetic, and why, for the ledger."""
        raise NotImplementedError


def _check(base: type[Strategy]) -> Callable[[str, type[Strategy]], None]:
    """Refuses what is no strategy of this base, or has a key without a default that fits it."""

    def check(_: str, strategy: type[Strategy]) -> None:
        if not (isinstance(strategy, type) and issubclass(strategy, base)):
            raise ValueError(f"is no {base.__name__}")
        try:
            strategy()
        except ValidationError as error:
            keys = ", ".join(sorted({str(item["loc"][0]) for item in error.errors() if item["loc"]}))
            raise ValueError(f"has keys without a default that fits them: {keys}") from None

    return check


LABELS: Registry[type[LabelStrategy]] = Registry(
    "vfl_node.strategies.labels",
    {
        "majority": "vfl_node.training.split.missing.labels.specs:Majority",
        "minority": "vfl_node.training.split.missing.labels.specs:Minority",
        "random-pos": "vfl_node.training.split.missing.labels.specs:RandomPos",
        "random-pred": "vfl_node.training.split.missing.labels.specs:RandomPred",
        "neighbors": "vfl_node.training.split.missing.labels.specs:Neighbors",
        "sampling": "vfl_node.training.split.missing.labels.specs:SampledLabels",
        "mean": "vfl_node.training.split.missing.labels.specs:MeanLabel",
        "none": "vfl_node.training.split.missing.labels.specs:NoLabels",
    },
    check=_check(LabelStrategy),
)
"""``train.missing.labels`` → its strategy."""

FEATURES: Registry[type[FeatureStrategy]] = Registry(
    "vfl_node.strategies.features",
    {
        "sampling": "vfl_node.training.split.missing.features.specs:Sampling",
        "smoothed": "vfl_node.training.split.missing.features.specs:Smoothed",
        "gaussian": "vfl_node.training.split.missing.features.specs:Gaussian",
        "random": "vfl_node.training.split.missing.features.specs:Random",
        "naive": "vfl_node.training.split.missing.features.specs:Naive",
        "none": "vfl_node.training.split.missing.features.specs:NoFeatures",
    },
    check=_check(FeatureStrategy),
)
"""``train.missing.features`` → its strategy."""
