"""What each party learns from predictions by a model with opened weights, in words; see docs/prediction.md."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.service import disclosures
from vfl_node.training.service.disclosures import RowsTold
from vfl_node.training.serving import Predicted, Served

SOLVED = (
    "; without hidden layers, a probability gives the score, and minus the asker's own part that is a linear function of the "
    "columns of the others, whose weights follow from rows with known columns"
)


def learnt(job: Job, exchanged: Served | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
    """As :func:`vfl_node.training.service.disclosures.learnt`."""
    return disclosures.learnt(job, exchanged, _part, solved=SOLVED)


def _part(party: str, rows: RowsTold) -> Disclosure:
    return Disclosure(
        "partial scores",
        rows.count,
        f"from {party} its part of the first layer for {rows.which}: a linear function of {party}'s columns, one number for "
        f"each unit of that layer. Whoever knows the columns of as many rows as {party} has columns can compute its weights. "
        f"If the layer has as many units as {party} has columns, or more, the columns of all other rows follow, too "
        "(see docs/prediction.md)",
    )
