"""What each party learns from predictions by a split network, in words; see docs/explanations/privacy/index.md."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.service import disclosures
from vfl_node.training.service.disclosures import RowsTold
from vfl_node.training.serving import Predicted, Served


def learnt(job: Job, exchanged: Served | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
    """As :func:`vfl_node.training.service.disclosures.learnt`."""
    return disclosures.learnt(job, exchanged, _embedding)


def _embedding(party: str, rows: RowsTold) -> Disclosure:
    besides = "" if rows.of_all else ", and for shared rows which are not its own, as in training"
    return Disclosure(
        "embeddings",
        rows.count,
        f"from {party} an embedding of {rows.which}: values of {party}'s columns can be inferred from them in part{besides} "
        "(see docs/explanations/privacy/index.md)",
    )
