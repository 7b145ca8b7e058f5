"""The defences by the names that a node's settings use.

A package adds one by an entry point of the group ``vfl_node.defences`` that names a
:class:`~vfl_node.privacy.defences.spec.DefenceSpec`.
"""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.configuration.models import validate
from vfl_node.configuration.registry import Registry, instance_of
from vfl_node.errors import UsageError
from vfl_node.privacy.defences.spec import DefenceParams, DefenceSpec

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


def read_params(entry: object) -> DefenceParams:
    """One entry of ``defences`` in a node's settings, by the defence's own model.

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
        return validate(entry, spec.params, source=name)
    except UsageError as error:
        raise ValueError(f"{error.message} ({error.hint})" if error.hint else error.message) from None
