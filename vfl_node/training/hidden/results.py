"""What a party reports of what was opened: metrics from sums, and warnings."""

from __future__ import annotations

import numpy as np

from vfl_node.session.session import Session
from vfl_node.training.evaluation import Values
from vfl_node.training.hidden.computation import HiddenOutcome
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.inputs import Inputs

BEYOND = (
    "Of {count:,} shared records held out {beyond:,} have scores beyond ±28, about, where the sum of sines that training used "
    "is no sigmoid. Metrics are of the scores as they are, but the model may be worse than it could be. Lower "
    "train.learning_rate or train.epochs."
)
FAR = (
    "Of {count:,} shared records held out {beyond:,} are predicted more than 16 standard deviations off: the model has "
    "diverged. Lower train.learning_rate."
)
DIVERGED = (
    "Nothing was measured: the model has diverged, and its scores are too large to be counted. Lower train.learning_rate."
)
UNSHARED = "The data parties have no record in common: the model is what it began with, and nothing can be measured."
UNMEASURED = "No metric was opened: no shared record is held out. Say a larger evaluate.test_fraction, or metrics_by: none."
ONE_LABEL = "A class has no held-out shared record, or all of them: the mean area under the curve is not defined."
ALL_CHECKED = (
    "train.dealer_audit chose every batch of this training for a check, so the model is what it began with. Submit the job "
    "again, with more epochs or smaller batches."
)


def warnings(train: Hidden, shared: int | None, steps: int, outcome: HiddenOutcome, *, measures: bool) -> tuple[str, ...]:
    """What this party's owner should know of the model.

    Args:
        train: the job's section.
        shared: how many records all parties have; None if that is hidden from this party.
        steps: how many were made.
        outcome: of the training.
        measures: whether sums were opened, to this party or another one.
    """
    said, count = [UNSHARED] if shared == 0 else [], outcome.measured
    if not measures and train.metrics_by == "histogram":
        said.append(UNMEASURED)
    if len(outcome.tallies) > 1 and count and any(of.auc is None for of in outcome.tallies):
        said.append(ONE_LABEL)
    if outcome.diverged:
        said.append(DIVERGED)
    elif outcome.beyond:
        said.append((FAR if outcome.sums else BEYOND).format(count=count, beyond=outcome.beyond))
    if steps == 0:
        said.append(ALL_CHECKED)
    return tuple(said)


def measured(session: Session, inputs: Inputs, outcome: HiddenOutcome) -> Values:
    """The metrics that sums give, of all that the job asks for; None for the others.

    R² compares with the variance of this party's own held-out targets: that of the shared ones would tell which these are.
    """
    values: Values = dict.fromkeys(session.job.evaluate.metrics)
    if outcome.tallies:
        areas = [of.auc for of in outcome.tallies]
        values |= {"auc": None if None in areas else float(np.mean(areas))}  # type: ignore[arg-type]
        if len(outcome.tallies) == 1:
            values |= {"nll": outcome.tallies[0].nll, "accuracy": outcome.tallies[0].accuracy}
    elif (sums := outcome.sums) and sums.rows > 0 and not sums.diverged and inputs.scale:
        # passive parties do not know the unit
        mse = inputs.scale.deviation**2 * sums.errors / sums.rows
        r2 = 1 - sums.errors / sums.rows / inputs.spread if inputs.spread else None
        values |= {"mse": mse, "rmse": mse**0.5, "r2": r2}
    return {name: values[name] for name in session.job.evaluate.metrics}
