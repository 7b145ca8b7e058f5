"""What each party learns from predictions, with a job's numbers, in words; see docs/explanations/privacy/index.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vfl_node.job import Job
from vfl_node.ledger import Disclosure
from vfl_node.training.predictor import Predicted, ServiceCount


@dataclass(frozen=True)
class RowsTold:
    """The rows of which a passive party has sent something.

    Attributes:
        count: how many.
        which: in words.
        of_all: whether all parties have each of them, as new records.
    """

    count: int
    which: str
    of_all: bool


def learnt(
    job: Job, exchanged: ServiceCount | Predicted, sent: Callable[[str, RowsTold], Disclosure], *, solved: str = ""
) -> dict[str, tuple[Disclosure, ...]]:
    """Data party → what it learnt.

    Args:
        job: that predicts.
        exchanged: of known records, or of new ones.
        sent: (a passive party, rows) → what the active party learns by what that party has sent of them.
        solved: what besides follows from predictions for the party that asks; continues a sentence.
    """
    active, passive, asker = job.parties.active, job.parties.passive, str(job.asker)
    of_all, several = isinstance(exchanged, Predicted), len(passive) > 1
    if isinstance(exchanged, Predicted):
        rows, which = exchanged.shared, f"each record that {'all' if several else 'both'} have"
    else:
        rows = exchanged.rows * exchanged.batches
        which = (
            "rows that are not named, made-up ones and the wanted one's batch among them"
            if exchanged.unnamed
            else "each row of the batches asked for"
        )
    entries: dict[str, tuple[Disclosure, ...]] = dict.fromkeys(job.parties.data, ())
    entries[active] = tuple(sent(name, RowsTold(rows, which, of_all)) for name in passive)
    if isinstance(exchanged, ServiceCount):
        asked = requests(asker, exchanged)
        entries = {name: told if name == asker else (*told, asked) for name, told in entries.items()}
    if asker != active:
        made_up = "" if job.align.spec.every_row_is_shared else " and of the rows for which it made them up"
        others = "".join(f", and of the columns of {name}{made_up}" for name in passive if name != asker)
        probabilities = Disclosure(
            "predictions",
            rows,
            f"from {active} the model's probability, or number in the target's unit, for {which}"
            f"{'' if of_all else ', its own or not'}: from enough of them a copy of the model can be trained, and something of "
            f"{active}'s labels and columns{others} inferred{solved} (see docs/explanations/privacy/index.md)",
        )
        entries[asker] = (probabilities,)
    return entries


def requests(asker: str, count: ServiceCount) -> Disclosure:
    """What a party learns that is asked."""
    if count.unnamed:
        text = (
            f"how many batches of {count.rows} rows {asker} asked for; a known record may be recognised as one of "
            f"its batch by whoever compares with training"
        )
    else:
        text = f"which of the agreed batches of {count.rows} rows {asker} asked for, and when"
    return Disclosure("requests", count.batches, text)
