"""Defences by the names that a node's settings use, and what is asked of one before it runs: keys, place, words.

A package adds one by an entry point of the group ``vfl_node.defences`` that names a :class:`DefenceSpec`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vfl_node.configuration.models import Frozen, validate
from vfl_node.configuration.registry import Registry, instance_of
from vfl_node.errors import UsageError

Direction = Literal["embeddings", "gradients", "projections"]
"""What leaves: embeddings at the passive party, gradients at the active one; and at each of them projections of its columns,
where a method of ``train.unaligned`` has some before the training with labels."""


class DefenceParams(Frozen):
    """One entry of ``defences`` in a node's settings. A subclass has the defence's own keys.

    Attributes:
        name: that of the registry.
    """

    name: str

    @property
    def changes_nothing(self) -> bool:
        """Whether with these keys it leaves every tensor as it is."""
        return False

    @property
    def trains(self) -> bool:
        """Whether it changes the model while it is trained, and nothing of what that model sends in predictions."""
        return False

    @property
    def allows_row_weights(self) -> bool:
        """Whether it keeps its promise where the length of a gradient shows how much its row counts."""
        return True

    @property
    def needs_two_classes(self) -> bool:
        """Whether it protects labels of two classes only."""
        return False

    def words(self, direction: Direction) -> str:
        """What it does to what is sent, for the owner's report: a clause without a capital and a full stop."""
        raise NotImplementedError


@dataclass(frozen=True)
class DefenceSpec:
    """One defence.

    Attributes:
        params: the model of its keys.
        directions: the tensors that it can change. Of projections it is asked to ``protect`` alone.
        implementation: ``module:attribute`` of its :class:`~vfl_node.privacy.defences.defence.Defence`, loaded when it first
            runs.
    """

    params: type[DefenceParams]
    directions: frozenset[Direction]
    implementation: str


DEFENCES: Registry[DefenceSpec] = Registry(
    "vfl_node.defences",
    {
        "noise": "vfl_node.privacy.defences.specs:NOISE",
        "naive": "vfl_node.privacy.defences.specs:NAIVE",
        "basic": "vfl_node.privacy.defences.specs:BASIC",
        "fbs": "vfl_node.privacy.defences.specs:FBS",
        "fbs-fixed": "vfl_node.privacy.defences.specs:FBS_FIXED",
        "nopeek": "vfl_node.privacy.defences.specs:NOPEEK",
        "dp": "vfl_node.privacy.defences.specs:DP",
        "marvell": "vfl_node.privacy.defences.specs:MARVELL",
        "mixpro": "vfl_node.privacy.defences.specs:MIXPRO",
        "maxnorm": "vfl_node.privacy.defences.specs:MAXNORM",
        "isotropic": "vfl_node.privacy.defences.specs:ISOTROPIC",
        "randomised-labels": "vfl_node.privacy.defences.randomised.spec:RANDOMISED",
    },
    check=instance_of(DefenceSpec),
)
"""Name in the settings → what the defence is."""


def read_params(entry: object, context: str | None = None) -> DefenceParams:
    """One entry of ``defences`` in a node's settings, by the defence's own model.

    Args:
        entry: name and keys.
        context: as that of :func:`~vfl_node.configuration.models.validate`.

    Raises:
        ValueError: it names no defence, or has a key or value that the defence does not know; the text is for the owner.
        UsageError: the package that adds the defence cannot be loaded (``E_EXTENSION``).
    """
    if isinstance(entry, DefenceParams):
        return entry
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str):
        raise ValueError("a defence has a name, such as {name: noise, sigma: 0.1}")
    if name not in DEFENCES:
        raise ValueError(f"there is no defence {name!r}; known ones: {', '.join(DEFENCES)}")
    spec = DEFENCES[name]
    try:
        return validate(entry, spec.params, source=name, context=context)
    except UsageError as error:
        raise ValueError(f"{error.message} ({error.hint})" if error.hint else error.message) from None
