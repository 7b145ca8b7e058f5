"""Which of several runs to choose, and why: in one sentence that claims no more than the intervals allow.

The rule:

1. Only runs count whose metrics on held-out rows are known. The *main metric* is the first one, in the order of a report, that
   all of them have.
2. A run is left out that is clearly worse in it than the best run on the same rows, or than the active party alone on its own
   rows. "Clearly": the 95 % interval of the difference leaves out zero.
3. If some of the others are clearly better than the active party alone, only these stay.
4. Of those that stay, the one is chosen whose worst leak has the lowest level; then the next worst. What is not measured, or
   open by design, counts as high.
5. If several are equal in that, the one is chosen that sends and receives the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vfl_node.job.evaluate import LOWER_IS_BETTER
from vfl_node.report.compare import ComparedRun, Difference, Runs, paired_differences
from vfl_node.report.results import METRICS, format_difference, format_value
from vfl_node.report.words import join_names

RANKS = {"low": 0, "some": 1}
"""Level of a leak → how bad it is; of every other one 2."""


@dataclass(frozen=True)
class Choice:
    """The run to choose.

    Attributes:
        run: its name; None: no run can be recommended.
        metric: the main metric; None where there is none.
        words: one sentence.
        reasons: further ones: on what it rests, and why not the others.
    """

    run: str | None
    metric: str | None
    words: str
    reasons: tuple[str, ...]


def choose(compared: Runs) -> Choice:
    """The run to choose by the rule of this module."""
    measured = [run for run in compared.runs if run.metrics]
    metric = next((key for key in METRICS if measured and all(key in run.metrics for run in measured)), None)
    if metric is None:
        return _choose_none(compared, measured)
    dropped = _worse_than_best(measured, metric) | _worse_than_alone(measured, metric, compared.active)
    stay = [run for run in measured if run.name not in dropped]
    title = METRICS[metric][0]
    if not stay:
        words = f"Choose none: no run holds up in {title}."
        return Choice(None, metric, words, tuple(dropped.values()))
    better = [run for run in stay if _change(run, metric) == "better"]
    chosen, *others = sorted(better or stay, key=lambda run: (_ranks(run), run.bytes))
    unsure = {run.name: _describe_unsure(run, chosen, compared.active, title) for run in stay if better and run not in better}
    words = _sentence(
        chosen, others, compared.active, title, known=any(_change(run, metric) for run in stay), helps=bool(better)
    )
    missing = [f"“{run.name}” has no metrics of held-out rows here." for run in compared.runs if run not in measured]
    reasons = (_describe_figure(chosen, metric, compared.active), *dropped.values(), *unsure.values(), *missing)
    return Choice(chosen.name, metric, words, reasons)


def _choose_none(compared: Runs, measured: Sequence[ComparedRun]) -> Choice:
    """Without a main metric nothing is chosen; which run tells others least is still known."""
    why = "they have no metric in common" if measured else f"{compared.party} knows no metrics of them on held-out rows"
    least, *others = sorted(compared.runs, key=_ranks)
    told = least.leaks and all(_ranks(least) < _ranks(run) for run in others)
    reasons = (f"“{least.name}” tells others least.",) if told else ()
    return Choice(None, None, f"No run can be recommended: {why}.", reasons)


def _sentence(chosen: ComparedRun, others: Sequence[ComparedRun], active: str, title: str, *, known: bool, helps: bool) -> str:
    if not known:
        lead = f"If any, choose “{chosen.name}”: whether it is better than {active} alone is not known here, and "
    elif helps:
        lead = f"Choose “{chosen.name}”: it is clearly better than {active} alone in {title}, and "
    else:
        lead = f"If any, choose “{chosen.name}”: no run is clearly better than {active} alone in {title}, and "
    if not others:
        return f"{lead}it is the only one of which that is shown." if helps else f"{lead}no other run is left."
    if all(_ranks(chosen) < _ranks(run) for run in others):
        return f"{lead}of such runs it tells others least." if helps else f"{lead}it tells others least."
    return f"{lead}of those that tell others least it sends the fewest bytes."


def _describe_figure(run: ComparedRun, metric: str, active: str) -> str:
    """The chosen run's figure, and what it rests on."""
    figure, title = run.metrics[metric], METRICS[metric][0]
    whose = "all parties have" if run.all_shared else f"{active} owns"
    rows = "" if run.rows is None else f" on {run.rows:,} held-out rows that {whose}"
    splits = f", in each of {run.splits} splits" if run.splits > 1 else ", in one split"
    value = f"{title} {format_value(figure.value, metric)}"
    if figure.low is None or figure.high is None:
        return f"{value}{rows}{splits}, without an interval."
    ends = f"{format_value(figure.low, metric)} to {format_value(figure.high, metric)}"
    return f"{value} ({ends}){rows}{splits}."


def _worse_than_best(runs: Sequence[ComparedRun], metric: str) -> dict[str, str]:
    """Run → why it is left out, of those that are clearly worse than the best run on the same rows."""
    sign = -1 if metric in LOWER_IS_BETTER else 1
    found = {}
    for run in runs:
        same = [other for other in runs if other is run or metric in paired_differences(run, other)]
        best = max(same, key=lambda other: sign * other.metrics[metric].value)
        if best is not run and (gain := paired_differences(run, best)[metric]).change == "worse":
            found[run.name] = f"“{run.name}” is clearly worse than “{best.name}” on the same rows{_write(gain, metric)}."
    return found


def _worse_than_alone(runs: Sequence[ComparedRun], metric: str, active: str) -> dict[str, str]:
    return {
        run.name: f"“{run.name}” is clearly worse than {active} alone on its own rows{_write(run.alone[metric], metric)}."
        for run in runs
        if _change(run, metric) == "worse"
    }


def _describe_unsure(run: ComparedRun, chosen: ComparedRun, active: str, title: str) -> str:
    """Why a run is not chosen that may be as good."""
    less = "tells others less, but it " if _ranks(run) < _ranks(chosen) else ""
    return f"“{run.name}” {less}is not shown to be better than {active} alone in {title}."


def _change(run: ComparedRun, metric: str) -> str | None:
    return run.alone[metric].change if metric in run.alone else None


def _ranks(run: ComparedRun) -> list[int]:
    """How bad its leaks are, the worst first."""
    return sorted((RANKS.get(leak.level, 2) for leak in run.leaks.values()), reverse=True)


def _write(gain: Difference, metric: str) -> str:
    """A difference with its interval, in brackets."""
    if gain.low is None or gain.high is None:
        return ""
    value, low, high = (format_difference(number, metric) for number in (gain.value, gain.low, gain.high))
    return f" ({METRICS[metric][0]} {value}, {low} to {high})"


def describe_rows(compared: Runs) -> str | None:
    """What to know where not all runs were measured on the same rows; None where they were, or the first has none."""
    measured = [run for run in compared.runs if run.metrics]
    others = [run.name for run in measured if not run.same_rows]
    if not others or not compared.runs[0].metrics:
        return None
    differ = len({run.all_shared for run in measured}) > 1
    easier = f" Rows that all parties have can be easier than all those of {compared.active}." if differ else ""
    names = join_names([f"“{name}”" for name in others])
    return (
        f"{names} met other rows than “{compared.runs[0].name}”, as far as can be known: each job draws its own, "
        f"unless it uses the alignment of another.{easier} "
        f"So first compare each run with {compared.active} alone on its own rows."
    )


def to_document(compared: Runs) -> dict[str, Any]:
    """The whole comparison for programs."""
    return {"choice": asdict(choose(compared)), "note": describe_rows(compared), **compared.to_json()}
