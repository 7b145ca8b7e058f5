"""What each party learns from predictions, with a job's numbers, in words; see docs/privacy.md."""

from __future__ import annotations

from vfl_node.job import Predict
from vfl_node.ledger import Disclosure
from vfl_node.training.serving import Predicted, Served


def learnt(predict: Predict, *, active: str, passive: str, exchanged: Served | Predicted) -> dict[str, tuple[Disclosure, ...]]:
    """Party → what it learnt.

    Args:
        predict: the job's section.
        active: name of the party.
        passive: likewise.
        exchanged: of known records, or of new ones.
    """
    of_both = isinstance(exchanged, Predicted)
    if isinstance(exchanged, Predicted):
        rows, which = exchanged.shared, "each record that both have"
        asked: tuple[Disclosure, ...] = ()
    elif exchanged.unnamed:
        rows = exchanged.rows * exchanged.batches
        which = "rows that are not named, made-up ones and the wanted one's batch among them"
        asked = (
            Disclosure(
                "requests",
                exchanged.batches,
                f"how many batches of {exchanged.rows} rows {passive} asked for; a known record may be recognised as one of "
                f"its batch by whoever compares with training",
            ),
        )
    else:
        rows, which = exchanged.rows * exchanged.batches, "each row of the batches asked for"
        asker = active if predict.to == "active" else passive
        asked = (
            Disclosure(
                "requests",
                exchanged.batches,
                f"which of the agreed batches of {exchanged.rows} rows {asker} asked for, and when",
            ),
        )
    embeddings = Disclosure(
        "embeddings",
        rows,
        f"from {passive} an embedding of {which}: values of {passive}'s columns can be inferred from them in part"
        + ("" if of_both else ", and for shared rows which are not its own, as in training")
        + " (see docs/privacy.md)",
    )
    if predict.to == "active":
        return {active: (embeddings,), passive: asked}
    probabilities = Disclosure(
        "predictions",
        rows,
        f"from {active} the model's probability, or number in the target's unit, for {which}"
        f"{'' if of_both else ', its own or not'}: from enough of them a copy of the model can be trained, and something of "
        f"{active}'s labels and columns inferred (see docs/privacy.md)",
    )
    return {active: (embeddings, *asked), passive: (probabilities,)}
