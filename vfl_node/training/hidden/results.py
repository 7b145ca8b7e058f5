"""What a party reports of what was opened: metrics from sums, and warnings."""

from __future__ import annotations

import numpy as np

from vfl_node.session.session import Session
from vfl_node.training.evaluation import Values
from vfl_node.training.hidden.computation import HiddenOutcome
from vfl_node.training.hidden.inputs import CLIP, Inputs

BEYOND = (
    "Of {count:,} shared records held out {beyond:,} have scores beyond ±16, where the sum of sines is no sigmoid: the metrics "
    "are wrong, and so may the model be. Lower train.learning_rate, or say train.weight_decay."
)
FAR = (
    "Of {count:,} shared records held out {beyond:,} are predicted more than 16 standard deviations off: the model has "
    "diverged. Lower train.learning_rate, or say train.weight_decay."
)
UNSHARED = "The data parties have no record in common: the model is what it began with, decayed, and nothing can be measured."
ALL_CHECKED = (
    "train.dealer_audit chose every batch of this training for a check, so the model is what it began with. Submit the job "
    "again, with more epochs or smaller batches."
)


def warnings(shared: int | None, count: int | None, steps: int, outcome: HiddenOutcome) -> tuple[str, ...]:
    """What this party's owner should know of the model."""
    said = [UNSHARED] if shared == 0 else []
    if outcome.beyond:
        said.append((FAR if outcome.sums else BEYOND).format(count=count, beyond=outcome.beyond))
    if steps == 0:
        said.append(ALL_CHECKED)
    return tuple(said)


def measured(session: Session, inputs: Inputs, outcome: HiddenOutcome) -> Values:
    """The metrics that sums give, of all that the job asks for; None for the others."""
    values: Values = dict.fromkeys(session.job.evaluate.metrics)
    if outcome.tallies:
        areas = [of.auc for of in outcome.tallies]
        values |= {"auc": None if None in areas else float(np.mean(areas))}  # type: ignore[arg-type]
        if len(outcome.tallies) == 1:
            values |= {"nll": outcome.tallies[0].nll, "accuracy": outcome.tallies[0].accuracy}
    elif (sums := outcome.sums) and sums.rows > 0:
        spread = sums.squares - sums.labels**2 / sums.rows
        if sums.errors >= 0:  # else they have left the ring
            values |= {"r2": 1 - sums.errors / spread if 0 < spread < 2 * sums.rows * (2 * CLIP) ** 2 else None}
        if sums.errors >= 0 and inputs.scale:  # whose unit passive parties do not know
            mse = inputs.scale.deviation**2 * sums.errors / sums.rows
            values |= {"mse": mse, "rmse": mse**0.5}
    return {name: values[name] for name in session.job.evaluate.metrics}
