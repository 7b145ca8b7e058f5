"""The verdict of a report: did it help to federate, and what can others infer now? Sentences come before figures.

A model counts as better in a metric if the whole 95 % interval of the difference lies on the good side of zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from vfl_node.job import Job
from vfl_node.report.meters import Level, Meter, Meters
from vfl_node.report.results import CHANGES, METRICS, Change, change_of
from vfl_node.report.sections import Interval, Metrics
from vfl_node.report.words import join_names
from vfl_node.roles import NUMBER_TASKS
from vfl_node.training.section import Section

UNKNOWN = "Done. This report does not show whether federating helped."

NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

NEARLY_ALL, ALL = 0.95, 0.995
"""Figures of an attack. From ``NEARLY_ALL`` on, a sentence says "almost without error"; from ``ALL`` on, it says "can read".

``ALL`` is 1.00 when rounded to two places.
"""


class Leak(Section):
    """What others can infer about one secret of this party, in words."""

    level: Level = Field(description="as in meters")
    words: str = Field(description="the answer, in one sentence")
    evidence: str = Field(description="the figure or reason behind it, in one sentence")
    advice: str | None = Field(default=None, description="the one setting that would help; null where none is needed")


class Verdict(Section):
    """The first things to read in a report."""

    helped: Literal["yes", "unclear", "mixed", "no", "not_comparable", "not_measured"] = Field(
        description="whether the federated model is better than that of the active party alone; not_comparable: they were "
        "measured on different rows, or on rows that were trained on; not_measured: this party lacks the metrics of at "
        "least one of the two models, or no model was trained"
    )
    words: str = Field(description="the answer, in one sentence")
    reason: str = Field(description="the metrics and rows behind it")
    changes: dict[str, Change] = Field(
        default={}, description="metric → how the federated model compares with that of the active party alone"
    )
    leaks: dict[str, Leak] = Field(default={}, description="labels, membership, columns → what others can infer, as meters")


def verdict_of(
    job: Job,
    party: str,
    *,
    metrics: Metrics | None,
    alone: Metrics | None,
    gains: Mapping[str, Interval] | None,
    tree: Mapping[str, Interval] | None = None,
    meters: Meters | None,
    instead: tuple[str, str] | None = None,
) -> Verdict:
    """The verdict for ``party`` of a job that trained.

    Args:
        job: as agreed.
        party: whose report it is.
        metrics: of the federated model; None: not known to this party.
        alone: of the active party's own model; likewise.
        gains: metric → interval of the difference, federated minus alone.
        tree: likewise, federated minus boosted tree of the active party.
        meters: of what this party sent.
        instead: words and reason of what trains no model (:attr:`~vfl_node.training.section.TrainerSection.verdict`).
    """
    rival = f"{job.parties.active} alone"
    leaks = leaks_of(job, party, meters) if meters else {}
    if instead is not None:
        words, reason = instead
        return Verdict(helped="not_measured", words=words, reason=reason, leaks=leaks)
    wanted = [name for name in METRICS if name in job.evaluate.metrics and getattr(metrics, name, None) is not None]
    if metrics is None or not wanted:
        reason = "No metrics were measured, or none were shared with this party."
        return Verdict(helped="not_measured", words=UNKNOWN, reason=reason, leaks=leaks)
    if not metrics.held_out:
        reason = "On rows that were trained on, every model looks better than it is."
        return Verdict(helped="not_comparable", words="No verdict: no rows were held out.", reason=reason, leaks=leaks)
    if alone is None or all(getattr(alone, name) is None for name in wanted):
        reason = "This party does not know the metrics of a model to compare with."
        return Verdict(helped="not_measured", words=UNKNOWN, reason=reason, leaks=leaks)
    if (metrics.rows, metrics.population) != (alone.rows, alone.population):
        reason = f"The difference between the federated model and {rival} has no known interval."
        words = "No verdict: the two models were not measured in the same way."
        return Verdict(helped="not_comparable", words=words, reason=reason, leaks=leaks)
    changes: dict[str, Change] = {name: "unclear" for name in wanted if getattr(alone, name) is not None}
    changes |= {name: change_of(name, gain.low, gain.high) for name, gain in (gains or {}).items() if name in changes}
    helped, words = _answer(list(changes.values()), rival)
    reason = f"{_reason(job, changes, metrics)}{_tree_words(job, changes, tree or {})}"
    return Verdict(helped=helped, words=words, reason=reason, changes=changes, leaks=leaks)


def _answer(changes: Sequence[Change], rival: str) -> tuple[Literal["yes", "unclear", "mixed", "no"], str]:
    better, worse, every = changes.count("better"), changes.count("worse"), len(changes)
    if better and worse:
        return "mixed", f"Mixed: better than {rival} on {_number(better)} of {_count(every)}, worse on {_number(worse)}."
    if better:
        return "yes", f"Yes: better than {rival} on {_part(better, every)}."
    if worse:
        return "no", f"No: worse than {rival} on {_part(worse, every)}."
    return "unclear", f"Unclear: no measure shows a difference between the federated model and {rival}."


def _part(some: int, every: int) -> str:
    if some < every:
        return f"{_number(some)} of {_count(every)}"
    return "the only measure" if every == 1 else f"all {_count(every)}"


def _count(number: int) -> str:
    return f"{_number(number)} measure{'s' if number != 1 else ''}"


def _number(number: int) -> str:
    return NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"


def _reason(job: Job, changes: Mapping[str, Change], metrics: Metrics) -> str:
    """Which metrics changed how, and on which rows that was measured."""
    found = {change: [METRICS[name][0] for name in changes if changes[name] == change] for change in CHANGES}
    parts = [f"{CHANGES[change].capitalize()}: {join_names(names)}." for change, names in found.items() if names]
    whose = f"{job.parties.active} owns" if metrics.population == "owned" else "all parties have"
    splits = f", in each of {job.evaluate.repeats} splits" if job.evaluate.repeats > 1 else ", in one split"
    rows = "" if metrics.rows is None else f" Measured on {metrics.rows:,} held-out rows that {whose}{splits}."
    return f"{' '.join(parts)}{rows}"


def _tree_words(job: Job, changes: Mapping[str, Change], tree: Mapping[str, Interval]) -> str:
    """That a boosted tree of the active party is better than the federated model, where it is."""
    better = [
        METRICS[name][0] for name in changes if name in tree and change_of(name, tree[name].low, tree[name].high) == "worse"
    ]
    return f" But a boosted tree of {job.parties.active} alone is better in: {join_names(better)}." if better else ""


def leaks_of(job: Job, party: str, meters: Meters) -> dict[str, Leak]:
    """Secret → what others can infer of it, for each that ``party`` has in this job."""
    met = [name for name in job.parties.peers_of(party) if name in job.parties.data]
    told = meters.membership and meters.membership.level == "open"
    others, all_others = (_name_all(names) for names in (met, job.parties.others(party)))
    what = "targets" if job.task in NUMBER_TASKS else "labels"
    made = {
        "labels": _labels(meters.labels, others, what) if meters.labels else None,
        "membership": _membership(meters.membership, party, all_others if told else others) if meters.membership else None,
        "columns": _columns(meters.columns, party, others) if meters.columns else None,
    }
    return {secret: leak for secret, leak in made.items() if leak}


def _name_all(names: Sequence[str]) -> str:
    """The names of the parties that can infer a secret.

    If there are several, the sentence that uses them holds for the strongest of these parties, or for all of them together.
    """
    return join_names(names) if len(names) == 1 else f"{join_names(names)}, alone or together,"


def _labels(meter: Meter, others: str, what: str) -> Leak:
    well = "almost without error" if (meter.value or 0) >= NEARLY_ALL else "well"
    can = {
        "low": f"{others} can hardly infer the {what}.",
        "some": f"{others} can infer the {what} in part.",
        "high": f"{others} can read the {what}." if (meter.value or 0) >= ALL else f"{others} can infer the {what} {well}.",
        "open": f"{others} can read the {what}: this training sends them.",
    }
    pairs = f"rows with different {what}"
    return _leak(meter, can, f"It was not measured whether {others} can infer the {what}.", pairs, HIDE_LABELS)


def _membership(meter: Meter, party: str, others: str) -> Leak:
    can = {
        "low": f"{others} can hardly infer which rows are records of {party}.",
        "some": f"{others} can infer in part which rows are records of {party}.",
        "high": f"{others} can infer which rows are records of {party}.",
        "open": f"{others} can see which records of {party} are shared.",
    }
    advice = ALIGN_HIDDEN if meter.level == "open" else HIDE_MEMBERS
    unknown = f"It was not measured whether {others} can infer which rows are records of {party}."
    return _leak(meter, can, unknown, "a real and a made-up row", advice)


def _columns(meter: Meter, party: str, others: str) -> Leak:
    can = {
        "low": f"{others} can hardly rebuild a column of {party}.",
        "some": f"{others} can rebuild a column of {party} in part.",
        "high": f"{others} can rebuild a column of {party}.",
        "open": f"{others} can read columns of {party}: this training sends them.",
    }
    advice = f"{TRAIN_HIDDEN}." if meter.level == "open" else HIDE_COLUMNS
    return _leak(meter, can, f"It was not measured whether {others} can rebuild columns of {party}.", "", advice)


TRAIN_HIDDEN = "If the job allows it, use hidden training (train.algorithm: hidden, with a coordinator or randomness: parties)"
HIDE_LABELS = f"{TRAIN_HIDDEN}: it sends no gradients. Defences of labels hide less."
HIDE_MEMBERS = f"{TRAIN_HIDDEN}. Or let a limit stop the training (attacks.rows: 0.6 in the policy)."
ALIGN_HIDDEN = f"To hide this, align by psu. {TRAIN_HIDDEN}."
HIDE_COLUMNS = (
    "Use a defence of columns (defences, such as fbs), or let a limit stop the training (attacks.columns in the policy)."
)


def _leak(meter: Meter, can: Mapping[str, str], unknown: str, pairs: str, advice: str) -> Leak:
    """The words of one meter: ``can`` has a sentence for each level, ``pairs`` names what an attack judges in pairs."""
    alarming = meter.level in ("some", "high", "open")
    return Leak(
        level=meter.level,
        words=can.get(meter.level, unknown),
        evidence=_evidence(meter, pairs),
        advice=advice if alarming else None,
    )


def _evidence(meter: Meter, pairs: str) -> str:
    if meter.value is None:
        return f"{'Not measured' if meter.level == 'not_measured' else 'By design'}: {meter.why or 'no attack ran'}."
    attack = (meter.attack or "").replace("_", " ")
    knows = "" if meter.knows in (None, "nothing") else f", by a peer that knows {meter.knows}"
    over = f", over {meter.over} trainings" if meter.over > 1 else ""
    estimated = " This is an estimate, because the peer's columns are not available here." if meter.estimate else ""
    if pairs:
        told = f"is right for {100 * meter.value:.0f} of 100 pairs of {pairs}; guessing is right for 50"
    else:
        told = f"closes {100 * meter.value:.0f} % of the gap between one constant guess and the true values"
    return f"The strongest attack ({attack}{knows}{over}) {told}.{estimated}"
