"""Several runs side by side: what differs in their settings, how good each is, what it tells others, and what it costs.

It takes reports as their JSON holds them, all of one party. A difference of two runs has an interval only where both were
measured on the same rows (:mod:`vfl_node.report.same_rows`); else each run is compared with the active party alone on its own
rows, as its report does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from vfl_node.configuration.models import validate
from vfl_node.configuration.renamed import LASTING_NAMES
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.report.compared_settings import ComparedSetting, compare_settings
from vfl_node.report.results import METRICS, Change, change_of
from vfl_node.report.same_rows import SplitRows, held_out_rows

LEAST, MOST = 2, 6
"""How many runs are compared."""

FORMAT = 6
"""The format of the reports that are read."""

SECRETS = ("labels", "membership", "columns")


@dataclass(frozen=True)
class MetricFigure:
    """A metric of a run; ``low`` and ``high`` are None where it has no interval."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference:
    """A run minus another model in one metric; ``change`` is None where there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    change: Change | None = None


@dataclass(frozen=True)
class ToldSecret:
    """What others can tell of one secret: a meter of the report."""

    level: str
    value: float | None
    attack: str | None
    why: str | None


AloneRows = Literal["same rows", "other rows", "not known"]


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs.

    Attributes:
        name: what it is called here.
        job: id of its job.
        finished: when, ISO 8601 in UTC.
        peers: whom this party met.
        unit: what an epoch is called.
        metrics: of the federated model on held-out rows; empty where they are not known.
        rows: how many rows they were measured on, in each split.
        population: whose rows these are.
        real_share: share of them with real columns of the passive parties.
        splits: how many.
        same_rows: whether these are known to be the rows of the first run.
        differences: from the first run, on the same rows; empty where they are others.
        alone_rows: on which rows the active party alone was measured.
        alone: the difference from the active party alone; empty where it has other rows or is not known.
        leaks: secret → what others can tell of it.
        losses: (epoch, loss), of the first split.
        seconds: from its start to its end.
        bytes: sent and received.
        steps: batches trained on, in all splits.
        repeats: metric → its value in each split.
        split_rows: rows trained on, and held out, in each.
        held_out: which rows those are.
    """

    name: str
    job: str
    finished: str
    peers: tuple[str, ...]
    unit: str
    metrics: dict[str, MetricFigure]
    rows: int | None
    population: str | None
    real_share: float | None
    splits: int
    same_rows: bool
    differences: dict[str, Difference]
    alone_rows: AloneRows
    alone: dict[str, Difference]
    leaks: dict[str, ToldSecret]
    losses: tuple[tuple[int, float], ...]
    seconds: float
    bytes: int
    steps: int | None
    repeats: Mapping[str, Sequence[float | None]] = field(repr=False)
    split_rows: tuple[int, int] | None
    held_out: SplitRows = field(repr=False)

    @property
    def all_shared(self) -> bool:
        """Whether all parties have every row that was measured on."""
        return self.population == "common" or self.real_share == 1


@dataclass(frozen=True)
class Runs:
    """The runs in the order in which they were named.

    Attributes:
        party: whose reports these are.
        active: the active party.
        runs: each with what it shares with the first one.
        settings: all keys of the jobs but their names, in the jobs' order.
    """

    party: str
    active: str
    runs: tuple[ComparedRun, ...]
    settings: tuple[ComparedSetting, ...]

    @property
    def metrics(self) -> list[str]:
        """Those that some run has, in the order of a report."""
        return [name for name in METRICS if any(name in run.metrics for run in self.runs)]

    @property
    def secrets(self) -> list[str]:
        """Those of which some run has a meter."""
        return [name for name in SECRETS if any(name in run.leaks for run in self.runs)]

    def to_json(self) -> dict[str, Any]:
        """For programs: without what only serves to tell whether rows are the same."""
        inner = ("repeats", "split_rows", "held_out")
        runs = [{key: value for key, value in asdict(run).items() if key not in inner} for run in self.runs]
        keys = [asdict(setting) | {"differs": setting.differs} for setting in self.settings]
        return {"party": self.party, "active": self.active, "runs": runs, "settings": keys}


def name_runs(reports: Sequence[Mapping[str, Any]], given: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Name → report: by the names of jobs, else by their ids, else as ``given``; numbers tell apart what is left."""
    jobs, ids = (
        [_look_up(report, "job", key, source=source) for report, source in zip(reports, given, strict=True)]
        for key in ("name", "id")
    )
    names = next((each for each in (jobs, ids) if len(set(each)) == len(each)), list(given))
    while len(set(names)) < len(names):
        names = [f"{name} ({number})" if names.count(name) > 1 else name for number, name in enumerate(names, 1)]
    return dict(zip(names, reports, strict=True))


def compare_reports(reports: Mapping[str, Mapping[str, Any]]) -> Runs:
    """The runs of ``reports``, name → ``report.json``.

    Raises:
        UsageError: they are too few or too many (``E_REQUEST``), of several parties, or no reports of this version.
    """
    check_number(len(reports))
    jobs = {name: _read_job(name, report) for name, report in reports.items()}
    party = _common_name("parties", [_look_up(report, "party", source=name) for name, report in reports.items()])
    active = _common_name("active parties", [job.parties.active for job in jobs.values()])
    runs: list[ComparedRun] = []
    for name, report in reports.items():
        try:
            run = _describe_run(name, report, jobs[name])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise _no_report(name) from None
        runs.append(_pair(run, runs[0]) if runs else run)
    return Runs(party, active, tuple(runs), tuple(compare_settings(list(jobs.values()), list(reports.values()))))


def _common_name(what: str, names: Sequence[str]) -> str:
    """The name that all reports have. Raises UsageError (``E_REQUEST``) if they have several."""
    name, *others = dict.fromkeys(names)
    if others:
        hint = "compare reports of one party, of jobs with the same active party"
        raise UsageError(f"the reports are of several {what}: {', '.join((name, *others))}", code="E_REQUEST", hint=hint)
    return name


def check_number(count: int) -> None:
    """Raises UsageError (``E_REQUEST``) unless so many runs can be compared."""
    if not LEAST <= count <= MOST:
        named = "one is" if count == 1 else f"{count or 'none'} are"
        raise UsageError(f"{named} named, and two to six runs can be compared", code="E_REQUEST")


def paired_differences(run: ComparedRun, other: ComparedRun) -> dict[str, Difference]:
    """Metric → ``run`` minus ``other``, split by split on the same rows; without an interval where there is one split only.

    Splits overlap, so the interval is the corrected one of :func:`vfl_node.training.intervals.repeats_interval`.
    """
    if not run.held_out.equals(other.held_out):
        return {}
    return {name: _difference(name, run, other) for name in METRICS if name in run.metrics and name in other.metrics}


def _difference(name: str, run: ComparedRun, other: ComparedRun) -> Difference:
    from vfl_node.training.intervals import bounds, repeats_interval  # needs numpy

    pairs = zip(run.repeats.get(name, ()), other.repeats.get(name, ()), strict=False)
    each = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    if len(each) < 2 or run.split_rows is None:
        return Difference(run.metrics[name].value - other.metrics[name].value)
    lowest, highest = bounds(name, signed=True)
    found = repeats_interval(each, *run.split_rows, lowest=lowest, highest=highest)
    return Difference(found["mean"], found["low"], found["high"], change_of(name, found["low"], found["high"]))


def _pair(run: ComparedRun, first: ComparedRun) -> ComparedRun:
    """``run``, with how it differs from the ``first`` one where both have the same rows."""
    return replace(run, same_rows=run.held_out.equals(first.held_out), differences=paired_differences(run, first))


def _describe_run(name: str, report: Mapping[str, Any], job: Job) -> ComparedRun:
    """A run for itself, as if it was the first one."""
    training, metrics = report["training"], report["metrics"]
    known = metrics if metrics and metrics["held_out"] else None
    about, sizes = known or {}, training and training["rows"]
    alone_rows, alone = _compare_alone(report, known)
    began, ended = (datetime.fromisoformat(report[key]) for key in ("started", "finished"))
    return ComparedRun(
        name=name,
        job=report["job"]["id"],
        finished=report["finished"],
        peers=tuple(job.parties.others(report["party"])),
        unit=job.train.traits.unit if job.train else "epoch",
        metrics=_figures(known) if known else {},
        rows=about.get("rows"),
        population=about.get("population"),
        real_share=about.get("real_share"),
        splits=training["repeats"] if training else 1,
        same_rows=True,
        differences={},
        alone_rows=alone_rows,
        alone=alone,
        leaks=_leaks(report),
        losses=_losses(training["epochs"] if training else ()),
        seconds=(ended - began).total_seconds(),
        bytes=sum(sent["bytes_sent"] + sent["bytes_received"] for sent in report["phases"].values()),
        steps=training and training["steps"],
        repeats=about.get("repeats") or {},
        split_rows=(sizes["training"], sizes["test"]) if sizes else None,
        held_out=held_out_rows(report, job),
    )


def _figures(metrics: Mapping[str, Any]) -> dict[str, MetricFigure]:
    intervals = metrics["intervals"] or {}
    ends = {name: (found["low"], found["high"]) for name, found in intervals.items()}
    return {name: MetricFigure(metrics[name], *ends.get(name, ())) for name in METRICS if metrics.get(name) is not None}


def _compare_alone(report: Mapping[str, Any], metrics: Mapping[str, Any] | None) -> tuple[AloneRows, dict[str, Difference]]:
    """On which rows the active party's own model was measured, and what the federated one has more on the same."""
    alone = report["local_metrics"]
    if metrics is None or alone is None:
        return "not known", {}
    if any(metrics[key] != alone[key] for key in ("rows", "population")):
        return "other rows", {}
    gains = report["gains"] or {}
    found = {
        name: Difference(gain["mean"], gain["low"], gain["high"], change_of(name, gain["low"], gain["high"]))
        for name, gain in gains.items()
    }
    both = (name for name in METRICS if None not in (metrics.get(name), alone.get(name)))
    return "same rows", {name: found.get(name) or Difference(metrics[name] - alone[name]) for name in both}


def _leaks(report: Mapping[str, Any]) -> dict[str, ToldSecret]:
    meters = {name: meter for name in SECRETS if (meter := (report["meters"] or {}).get(name))}
    return {name: ToldSecret(*(meter[key] for key in ("level", "value", "attack", "why"))) for name, meter in meters.items()}


def _losses(epochs: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, float], ...]:
    return tuple((number, epoch["loss"]) for number, epoch in enumerate(epochs, 1) if epoch["loss"] is not None)


def _read_job(name: str, report: Mapping[str, Any]) -> Job:
    """The job of a report. Raises UsageError if it is none of this version."""
    if report.get("format") != FORMAT:
        raise _no_report(name)
    spec = _look_up(report, "job", "spec", source=name)
    return validate(spec, Job, source=f"the job of {name}", context=LASTING_NAMES)


def _look_up(report: Any, *keys: str, source: str) -> Any:
    for key in keys:
        if not isinstance(report, Mapping) or key not in report:
            raise _no_report(source)
        report = report[key]
    return report


def _no_report(name: str) -> UsageError:
    return UsageError(f"{name} is no report of this version", code="E_REQUEST", hint=f"a report.json of format {FORMAT} is")
