"""Jobs of this node side by side: their reports, drawings, and links that add a run or leave one out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from vfl_node.errors import UsageError
from vfl_node.job.evaluate import LOWER_IS_BETTER
from vfl_node.report import charts
from vfl_node.report.charts import Mark
from vfl_node.report.choice import choose, describe_rows
from vfl_node.report.compare import LEAST, MOST, Runs, check_number, compare_reports, name_runs
from vfl_node.report.curves import ChartLine, line_chart
from vfl_node.report.results import METRICS, format_value
from vfl_node.report.side_by_side import equal_settings, parts
from vfl_node.report.stored import read_report
from vfl_node.web.view import NodeView, find_job

STYLES = ("joint", "alone", "second", "first", "third", "fourth")
"""Class of the style sheet for each run."""

LABEL = 8
"""Letters of a run's name beside an axis, after its number; the table has all."""

MOST_LISTED = 50
"""Jobs from which one is chosen: the newest ones."""


def compare_jobs(view: NodeView, ids: Sequence[str]) -> Runs:
    """The runs of the jobs ``ids``, each once.

    Raises:
        UsageError: they are too few or too many (``E_REQUEST``), there is no such job, or one has no report.
    """
    named = list(dict.fromkeys(ids))
    if len(named) > MOST:
        check_number(len(named))  # before any is read
    return compare_reports(name_runs([_read(view, job_id) for job_id in named], named))


def comparison(view: NodeView, ids: Sequence[str]) -> dict[str, Any] | None:
    """What the page shows of the jobs ``ids``; None while fewer than two are named. Raises as :func:`compare_jobs`."""
    if len(set(ids)) < LEAST:
        for job_id in dict.fromkeys(ids):
            _read(view, job_id)
        return None
    compared = compare_jobs(view, ids)
    return {
        "choice": choose(compared),
        "note": describe_rows(compared),
        "runs": list(zip(compared.runs, STYLES, strict=False)),
        "parts": parts(compared),
        "equal": equal_settings(compared),
        "losses": _draw_losses(compared),
        "without_loss": [run.name for run in compared.runs if not run.losses],
        "metrics": dict(_draw_metric(compared, name) for name in compared.metrics),
        "json": f"/api/compare?{_query(dict.fromkeys(ids))}",
    }


def links(jobs: Sequence[Mapping[str, Any]], ids: Sequence[str]) -> dict[str, list[tuple[Mapping[str, Any], str]]]:
    """Jobs with a report and the address that has them besides (``add``), or no more (``leave``)."""
    done = [job for job in jobs if job["report"]]
    known = {job["id"] for job in done}
    named = [job_id for job_id in dict.fromkeys(ids) if job_id in known]
    others = [job for job in done if job["id"] not in named][:MOST_LISTED] if len(named) < MOST else []
    return {
        "add": [(job, f"/compare?{_query([*named, job['id']])}") for job in others],
        "leave": [(job, f"/compare?{_query(one for one in named if one != job['id'])}") for job in done if job["id"] in named],
    }


def _query(ids: Iterable[str]) -> str:
    return urlencode([("run", job_id) for job_id in ids])


def _read(view: NodeView, job_id: str) -> dict[str, Any]:
    job = find_job(view, job_id)
    path = view.artefact(job["id"], "report.json")
    if path is None:
        raise UsageError(f"{job['id']} has no report", code="E_NO_REPORT", hint="it has not ended yet, or it failed")
    return read_report(path)


def _draw_losses(compared: Runs) -> Markup | None:
    lines = [
        ChartLine(f"{number} {run.name}", run.losses, style)
        for number, (run, style) in enumerate(zip(compared.runs, STYLES, strict=False), 1)
        if run.losses
    ]
    if not lines:
        return None
    units = {run.unit for run in compared.runs if run.losses}
    last = max(line.points[-1][0] for line in lines)
    return line_chart("losses", "Loss", lines, unit=units.pop() if len(units) == 1 else "round", last=last)


def _draw_metric(compared: Runs, name: str) -> tuple[str, Markup]:
    title, _, most = METRICS[name]
    marks = []
    for number, (run, style) in enumerate(zip(compared.runs, STYLES, strict=False), 1):
        if figure := run.metrics.get(name):
            low = figure.value if figure.low is None else figure.low
            high = figure.value if figure.high is None else figure.high
            label = run.name if len(run.name) <= LABEL else f"{run.name[: LABEL - 1]}…"
            marks.append(Mark(f"{number} {label}", figure.value, low, high, style))
    heading = f"{title}, {'left' if name in LOWER_IS_BETTER else 'right'} is better"
    return heading, charts.dot_chart(f"metric-{name}", title, marks, most=most, figure=partial(format_value, name=name))
