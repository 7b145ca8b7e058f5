"""What each party learns from predictions by an additive model, in words; see docs/guides/give-predictions.md."""

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
        f"from {party} its partial scores of {rows.which}: a linear function of {party}'s columns, one number for each unit of "
        f"the first layer, or without hidden layers for each output. Whoever knows the columns of as many rows as {party} has "
        f"columns can compute its weights. If there are as many numbers as {party} has columns, or more, the columns of all "
        "other rows follow, too (see docs/guides/give-predictions.md)",
    )
