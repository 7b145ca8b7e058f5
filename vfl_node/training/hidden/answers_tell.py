"""What each party learns from predictions in shares, in words; see docs/guides/train-hidden.md."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.prediction.disclosures import requests
from vfl_node.training.predictor import Predicted, ServiceCount


def learnt(job: Job, exchanged: ServiceCount | Predicted) -> Mapping[str, tuple[Disclosure, ...]]:
    """Party → what it learnt; the coordinator, too."""
    parties, asker = job.parties, str(job.asker)
    masked = Disclosure(
        "masked values", None, "columns and scores of the others, each under a mask of its own: uniform numbers"
    )
    if isinstance(exchanged, Predicted):
        rows, which = exchanged.shared, f"each record that {'all' if len(parties.passive) > 1 else 'both'} have"
        about = Disclosure(
            "requests",
            rows,
            f"that {asker} has these records predicted, and which of them it has asked for before with the same columns",
        )
        told = "how many records are predicted, and when"
    else:
        rows, which = exchanged.rows * exchanged.batches, "each row of the batches asked for"
        about, told = requests(asker, exchanged), "how many batches are asked for, and when"
    scores = Disclosure(
        "scores",
        rows,
        f"of {which} the score rounded to 9 bits for each output of the model, however often it is asked: minus the asker's "
        "own part that is an equation for the columns of the others in this record. Each further model gives another equation "
        "(limits.models_served). "
        "From enough answers the weights can be computed",
    )
    entries = {name: (masked, scores) if name == asker else (masked, about) for name in parties.data}
    dealer = Disclosure(
        "shapes",
        rows,
        f"{told}, how many columns each party has, and when one of them restarts. No other number that it gets depends on "
        "data; but it knows every mask, so with what one data party receives it knows everything",
    )
    return {**entries, **({parties.coordinator: (dealer,)} if parties.coordinator else {})}
