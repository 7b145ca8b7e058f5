"""``none``: no substitute."""

from __future__ import annotations

from vfl_node.errors import UsageError
from vfl_node.training.split.missing.labels.strategy import Known, Labels


def none(known: Known) -> Labels:
    """Fit only for an alignment whose rows the active party owns, where no strategy is asked for.

    Raises:
        UsageError: always.
    """
    raise UsageError(
        "some shared rows have no label at the active party and train.missing.labels is none",
        hint="set train.missing.labels: majority, or align by psi",
    )
