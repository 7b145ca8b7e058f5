"""Which trainings there are, and what is kept of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiments.fedsim.data import ACTIVE, CASES, ENCODINGS, ROWS, Case
from experiments.fedsim.linkage import align_section, link
from experiments.fedsim.training import EVALUATE, TRAIN, job_of, train
from experiments.inference.experiment import Found, Work
from vfl_node.job import Job
from vfl_node.settings.protection import Compare

FEDSIM, MEAN, TOP1, FEATURE, EXACT = "fedsim", "mean", "top1", "feature", "exact"

SIGMA, CANDIDATES = 0.4, 20
"""What is not varied: the paper's noise in its largest example, and how many candidates."""

PERMUTED = "permuted"
"""The control in which the passive party's columns stand beside other records."""

SIZES: Mapping[str, Any] = {"bottom": [64, 32], "active_bottom": [64, 32], "top": [64]}
"""Layers of every training: about a third of the paper's widths."""

ONLY_FEDSIM: Mapping[str, Any] = {"merge_hidden": [64]}

RATES: Mapping[str, float] = {"made_up": 0.01, "hdb": 0.003, "games": 0.003, "small": 0.01}
"""Table → learning rate of all of its trainings, chosen by validation (:mod:`experiments.fedsim.rates`)."""

BLIND = (MEAN, EXACT)
"""Methods that do not read similarities: noise on these changes nothing, so they are run without."""

SETTINGS: Mapping[str, Any] = {
    "rows": ROWS,
    "encodings": ENCODINGS,
    "sizes": {**SIZES, **ONLY_FEDSIM},
    "train": TRAIN,
    "evaluate": EVALUATE,
}
"""On which outcomes depend, and which the names of works do not say: a file of other ones is not gone on with."""


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
    rate: float | None = None,
) -> Work:
    """One training.

    Args:
        table: as in :data:`experiments.fedsim.data.CASES`.
        method: of the job.
        seed: of rows, split, batches, first weights, pivots and noise.
        candidates: K; 1 for ``exact``.
        sigma: of the noise on similarities; 0 for methods that do not read these (:data:`BLIND`).
        scatter: of keys, of made-up tables.
        control: :data:`PERMUTED`, or one of ``Case.more``.
        rate: of learning; default: the table's.
    """
    chosen = {
        "candidates": 1 if method == EXACT else candidates,
        "sigma": 0.0 if method in BLIND else sigma,
        "rate": rate or RATES[table],
        **({} if scatter is None else {"scatter": scatter}),
    }
    return Work(trained, {"table": table, "method": method, "seed": seed, **chosen, "control": control})


def alone(table: str, seed: int, control: str) -> Work:
    """What the active party has alone with the columns of a control; ``exact`` beside it is the cheapest."""
    return trial(table, EXACT, seed, control=control)


def trained(shared: Path, *, seed: int, **chosen: Any) -> Any:
    """The work of a :func:`trial`.

    Returns:
        ``metrics`` and ``alone``, those of the active party alone, on the rows held out; with ``exact`` ``tree``, those of
        boosted trees on its columns; ``pairs``, those of pairs, where they are samples; ``epoch_s``, median seconds of the
        processor an epoch, both parties together; ``best``, the epoch kept, and its loss, ``validation``; ``spearman`` of
        weight and similarity; and the ``linkage``'s facts.
    """
    case, job = set_up(shared, seed=seed, **chosen)
    linkage = link(case, job.align, seed)
    tree = Compare(boosted_tree=chosen["method"] == EXACT)
    done = train(case, linkage, job, seed, tree)[ACTIVE]
    section: Any = done.section
    results: Any = done.results
    return {
        "metrics": _round(results.metrics),
        "alone": _round(results.alone.metrics if results.alone else None),
        "tree": _round(results.rival.metrics) if results.rival else None,
        "pairs": _round(section.pair_metrics) if section.pair_metrics else None,
        "epoch_s": round(median(epoch.seconds for epoch in done.epochs), 4),
        "best": section.early_stopping.best_epochs[0],
        "validation": round(min(epoch.validation_loss or 0.0 for epoch in done.epochs), 6),
        "spearman": None if section.spearman is None else round(section.spearman, 4),
        "linkage": _round(linkage.facts, 7),
    }


def set_up(
    shared: Path,
    *,
    table: str,
    method: str,
    seed: int,
    candidates: int,
    sigma: float,
    rate: float,
    control: str = "",
    scatter: float | None = None,
) -> tuple[Case, Job]:
    """The tables of a :func:`trial`, and its job."""
    case = CASES[table](shared, seed, **({} if scatter is None else {"scatter": scatter}))
    if control == PERMUTED:
        case = case.permute(seed)
    elif control:
        case = case.wider(control)
    settings = {"method": method, "learning_rate": rate, **SIZES, **(ONLY_FEDSIM if method == FEDSIM else {})}
    align = align_section(case, candidates=candidates, sigma=sigma, equal_only=method == EXACT)
    return case, job_of(case, align, settings)


def _round(values: Mapping[str, Any] | None, digits: int = 5) -> dict[str, float | None]:
    return {name: None if value is None else round(float(value), digits) for name, value in (values or {}).items()}


class Outcomes:
    """What was found, a value for each seed.

    Args:
        found: all outcomes.
        seeds: that are read.
    """

    def __init__(self, found: Found, seeds: range) -> None:
        self._found, self._seeds = found, seeds

    def values(self, table: str, method: str, metric: str, *, key: str = "metrics", **of_trial: Any) -> list[float]:
        """A metric of a training with the arguments ``of_trial``; ``key``: as in what :func:`trained` returns."""
        return [self._found[trial(table, method, seed, **of_trial).name][key][metric] for seed in self._seeds]

    def said(self, table: str, method: str, key: str, **of_trial: Any) -> list[float]:
        """Something else that is kept of a training."""
        return [self._found[trial(table, method, seed, **of_trial).name][key] for seed in self._seeds]

    def alone(self, table: str, metric: str, control: str = "", *, key: str = "alone") -> list[float]:
        """The metric of the active party alone, with the columns of a control; ``key`` as in :meth:`values`."""
        return [self._found[alone(table, seed, control).name][key][metric] for seed in self._seeds]


def subtract(one: list[float], other: list[float]) -> list[float]:
    """Paired differences."""
    return [a - b for a, b in zip(one, other, strict=True)]
