"""Which trainings there are, and what is kept of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiments.fedsim.data import ACTIVE, CASES, Case
from experiments.fedsim.linkage import align_section, link
from experiments.fedsim.training import job_of, train
from experiments.inference.experiment import Found, Work
from vfl_node.job import Job

FEDSIM, MEAN, TOP1, FEATURE, EXACT = "fedsim", "mean", "top1", "feature", "exact"

SIGMA, CANDIDATES = 0.4, 20
"""What is not varied: the paper's noise in its largest example, and how many candidates."""

PERMUTED = "permuted"
"""The control in which the passive party's columns stand beside other records."""

SIZES: Mapping[str, Any] = {"bottom": [64, 32], "active_bottom": [64, 32], "top": [64], "learning_rate": 0.01}
"""Of every training: about a third of the paper's widths, and the largest rate of its grid."""

ONLY_FEDSIM: Mapping[str, Any] = {"merge_hidden": [64]}


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        seeds: of the experiments that need least; the others have fewer (:meth:`few`).
        small: on small made-up tables, for tests and for a first look.
    """

    seeds: int = 5
    small: bool = False

    def few(self, most: int) -> range:
        """The first seeds, ``most`` of them at most."""
        return range(min(self.seeds, most))

    def table(self, name: str) -> str:
        """The table to use for ``name``."""
        return "small" if self.small else name


def trial(
    table: str,
    method: str,
    seed: int,
    *,
    candidates: int = CANDIDATES,
    sigma: float = SIGMA,
    scatter: float | None = None,
    control: str = "",
) -> Work:
    """One training.

    Args:
        table: as in :data:`experiments.fedsim.data.CASES`.
        method: of the job.
        seed: of rows, split, batches, first weights, pivots and noise.
        candidates: K; 1 for ``exact``.
        sigma: of the noise on similarities; 0 for ``exact``.
        scatter: of keys, of made-up tables.
        control: :data:`PERMUTED`, or one of ``Case.more``.
    """
    equal = method == EXACT
    more = {} if scatter is None else {"scatter": scatter}
    chosen = {"candidates": 1 if equal else candidates, "sigma": 0.0 if equal else sigma}
    return Work(trained, {"table": table, "method": method, "seed": seed, **chosen, **more, "control": control})


def alone(table: str, seed: int, control: str) -> Work:
    """The model that the active party has alone with the columns of a control; the linkage beside it is the cheapest."""
    return trial(table, TOP1, seed, candidates=1, control=control)


def trained(
    shared: Path,
    *,
    table: str,
    method: str,
    seed: int,
    candidates: int,
    sigma: float,
    control: str,
    scatter: float | None = None,
) -> Any:
    """The work of a :func:`trial`.

    Returns:
        ``metrics`` and ``alone``, those of the active party alone, on the rows held out; ``pairs``, those of pairs, where they
        are samples; ``epoch_s``, median seconds of the processor an epoch, both parties together; ``best``, the epoch kept;
        ``spearman`` of weight and similarity; and the ``linkage``'s facts.
    """
    case, job = set_up(shared, table, method, seed, candidates, sigma, control, scatter)
    linkage = link(case, job.align, seed)
    done = train(case, linkage, job, seed)[ACTIVE]
    section: Any = done.section
    return {
        "metrics": _rounded(done.metrics),
        "alone": _rounded(done.local_metrics),
        "pairs": _rounded(section.pair_metrics) if section.pair_metrics else None,
        "epoch_s": round(median(epoch.seconds for epoch in done.epochs), 4),
        "best": section.early_stopping.best_epochs[0],
        "spearman": None if section.spearman is None else round(section.spearman, 4),
        "linkage": _rounded(linkage.facts, 7),
    }


def set_up(
    shared: Path, table: str, method: str, seed: int, candidates: int, sigma: float, control: str, scatter: float | None
) -> tuple[Case, Job]:
    """The tables of a training, and its job."""
    case = CASES[table](shared, seed, **({} if scatter is None else {"scatter": scatter}))
    if control == PERMUTED:
        case = case.permuted(seed)
    elif control:
        case = case.wider(control)
    settings = {"method": method, **SIZES, **(ONLY_FEDSIM if method == FEDSIM else {})}
    align = align_section(case, candidates=candidates, sigma=sigma, equal_only=method == EXACT)
    return case, job_of(case, align, settings)


def _rounded(values: Mapping[str, Any] | None, digits: int = 5) -> dict[str, float | None]:
    return {name: None if value is None else round(float(value), digits) for name, value in (values or {}).items()}


class Outcomes:
    """What was found, a value for each seed.

    Args:
        found: all outcomes.
        seeds: that are read.
    """

    def __init__(self, found: Found, seeds: range) -> None:
        self._found, self._seeds = found, seeds

    def of(self, table: str, method: str, metric: str, *, key: str = "metrics", **of_trial: Any) -> list[float]:
        """A metric of a training with the arguments ``of_trial``; ``key`` may be ``alone``, ``pairs`` or ``linkage``."""
        return [self._found[trial(table, method, seed, **of_trial).name][key][metric] for seed in self._seeds]

    def said(self, table: str, method: str, key: str, **of_trial: Any) -> list[float]:
        """Something else that is kept of a training."""
        return [self._found[trial(table, method, seed, **of_trial).name][key] for seed in self._seeds]

    def alone(self, table: str, metric: str, control: str) -> list[float]:
        """Of the active party alone, with the columns of a control."""
        return [self._found[alone(table, seed, control).name]["alone"][metric] for seed in self._seeds]


def less(one: list[float], other: list[float]) -> list[float]:
    """Paired differences."""
    return [a - b for a, b in zip(one, other, strict=True)]
