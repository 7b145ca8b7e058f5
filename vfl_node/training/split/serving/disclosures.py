"""What each party learns from predictions by a split network, in words; see docs/privacy.md."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.service import disclosures
from vfl_node.training.service.disclosures import SentOfRows
from vfl_node.training.serving import Predicted, Served


def learnt(job: Job, exchanged: Served | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
    """As :func:`vfl_node.training.service.disclosures.learnt`."""
    return disclosures.learnt(job, exchanged, SentOfRows("embeddings", _embedding))


def _embedding(party: str, which: str, of_all: bool) -> str:
    besides = "" if of_all else ", and for shared rows which are not its own, as in training"
    return (
        f"from {party} an embedding of {which}: values of {party}'s columns can be inferred from them in part{besides} "
        "(see docs/privacy.md)"
    )
