"""What each party learns from predictions, with a job's numbers, in words; see docs/privacy.md."""

from __future__ import annotations

from vfl_node.job import Predict
from vfl_node.ledger import Disclosure
from vfl_node.training.split.serving.new_records import Predicted
from vfl_node.training.split.serving.service import Served


def learnt(predict: Predict, *, active: str, passive: str, made: Served | Predicted) -> dict[str, tuple[Disclosure, ...]]:
    """Party → what it learnt.

    Args:
        predict: the job's section.
        active: name of the party.
        passive: likewise.
        made: what was exchanged.
    """
    of_both = isinstance(made, Predicted)
    if isinstance(made, Predicted):
        rows, which = made.shared, "each record that both have"
        asked: tuple[Disclosure, ...] = ()
    elif made.unnamed:
        rows, which = made.rows * made.batches, "rows that are not named, made-up ones and the wanted one's batch among them"
        asked = (
            Disclosure(
                "requests",
                made.batches,
                f"how many batches of {made.rows} rows {passive} asked for; a known record may be recognised as one of "
                f"its batch by whoever compares with training",
            ),
        )
    else:
        rows, which = made.rows * made.batches, "each row of the batches asked for"
        asker = active if predict.to == "active" else passive
        asked = (
            Disclosure(
                "requests", made.batches, f"which of the agreed batches of {made.rows} rows {asker} asked for, and when"
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
        f"from {active} the model's probability for {which}{'' if of_both else ', its own or not'}: from enough of them a copy "
        f"of the model can be trained, and something of {active}'s labels and columns inferred (see docs/privacy.md)",
    )
    return {active: (embeddings, *asked), passive: (probabilities,)}
