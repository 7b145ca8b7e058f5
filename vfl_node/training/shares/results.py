"""What a party reports of what was opened: metrics from sums with noise, with their intervals, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vfl_node.job import Job
from vfl_node.training.evaluation import Values
from vfl_node.training.intervals import Intervals
from vfl_node.training.shares.config import SharesConfig
from vfl_node.training.shares.estimates import LEAST_DEVIATIONS, Estimate, mean_area, mean_loss, share_right
from vfl_node.training.shares.measuring import OutputTally
from vfl_node.training.shares.metric_noise import MetricNoise
from vfl_node.training.targets import TargetScale

BEYOND = (
    "Of about {count:,} shared records held out about {beyond:,} have scores beyond ±{far}, where the sum of sines that "
    "training used is no sigmoid. Metrics are of the scores as they are, but the model may be worse than it could be. Lower "
    "train.learning_rate or train.{steps}."
)
FAR = (
    "Of about {count:,} shared records held out about {beyond:,} are predicted more than 16 standard deviations off: the model "
    "has diverged. Lower train.learning_rate."
)
UNSHARED = "The data parties have no record in common: the model is what it began with, and nothing can be measured."
TOO_FEW = (
    "{names}: too few shared records held out to say with this noise. Say a larger evaluate.test_fraction, or agree on a "
    "larger evaluate.epsilon."
)
ALL_CHECKED = (
    "train.dealer_audit chose every batch of this training for a check, so the model is what it began with. Submit the job "
    "again, with more epochs or smaller batches."
)


@dataclass(frozen=True)
class Measured:
    """What a party reports of the metrics.

    Attributes:
        values: all that the job asks for; None for those that are not known, or not said.
        intervals: of those that are said.
        unsaid: those of which the noise leaves nothing to say.
    """

    values: Values
    intervals: Intervals
    unsaid: tuple[str, ...]


def warnings(job: Job, shared: int | None, tallies: Sequence[OutputTally], measured: Measured) -> tuple[str, ...]:
    """What this party's owner should know of the model.

    Args:
        job: the job.
        shared: how many records all parties have; None if that is hidden from this party.
        tallies: of each output; empty at a party that is not told.
        measured: from these.
    """
    noise, said = MetricNoise.from_job(job).together, [UNSHARED] if shared == 0 else []
    if measured.unsaid and shared != 0:
        said.append(TOO_FEW.format(names=", ".join(measured.unsaid)))
    beyond = count_beyond(tallies)
    if beyond is not None and beyond > LEAST_DEVIATIONS * noise.sums["beyond"]:
        train, text = SharesConfig.section_of(job), FAR if noise.numbers else BEYOND
        steps = f"{train.traits.unit}s"
        said.append(text.format(count=tallies[0].rows, beyond=beyond, far=train.far_score, steps=steps))
    return tuple(said)


def count_beyond(tallies: Sequence[OutputTally]) -> int | None:
    """About how many records measured on have a score or an error beyond what is counted, of the output with most.

    The noise may take it below 0, which counts as 0. None without tallies.
    """
    return max(0, *(round(tally.sums["beyond"]) for tally in tallies)) if tallies else None


def measure(job: Job, tallies: Sequence[OutputTally], scale: TargetScale | None, spread: float) -> Measured:
    """The metrics that sums give, of all that the job asks for.

    Args:
        job: the job.
        tallies: as in :func:`warnings`.
        scale: of numbers; None of classes, and at a party that does not know it.
        spread: mean square of this party's own held-out targets' distances from their mean, scaled and cut; 0 without such.

    R² compares with this party's own held-out targets: the variance of the shared ones would tell which these are. Both squares
    are cut alike.
    """
    noise = MetricNoise.from_job(job).together
    found = _estimates(tallies, scale, spread, noise)
    names: list[str] = [name for name in job.evaluate.metrics if name in found]
    said = {name: estimate for name in names if (estimate := found[name]) is not None}
    values: Values = {name: said[name].value if name in said else None for name in job.evaluate.metrics}
    intervals = {name: estimate.interval(name) for name, estimate in said.items()}
    return Measured(values, intervals, tuple(name for name in names if name not in said))


def _estimates(
    tallies: Sequence[OutputTally], scale: TargetScale | None, spread: float, noise: MetricNoise
) -> dict[str, Estimate | None]:
    """Metric → what it is; None where the noise leaves nothing to say."""
    if not tallies:
        return {}
    tally = tallies[0]
    if not noise.numbers:
        found = {"auc": mean_area(tallies, noise)}
        if "loss" in noise.sums:
            found |= {"nll": mean_loss(tally, noise), "accuracy": share_right(tally, noise)}
        return {name: metric if metric and metric.is_said else None for name, metric in found.items()}
    if not scale:
        return {}  # passive parties do not know the unit
    error = mean_loss(tally, noise)
    if not error or not error.is_said:
        return dict.fromkeys(("mse", "rmse", "r2"))
    mse = error.scale(scale.deviation**2)
    variance = {"r2": error.scale(-1 / spread, 1.0)} if spread else {}
    return {"mse": mse, "rmse": mse.root, **variance}
