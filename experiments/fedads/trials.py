"""What is run: each defence at three strengths, on each table, with both kinds of top; and what is kept of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.fedads.data import ACTIVE, TABLES
from experiments.fedads.literal import NAMES as LITERAL
from experiments.fedads.training import train
from experiments.inference.experiment import Work

ONE_LAYER = "one layer"

TOPS: Mapping[str, list[int]] = {ONE_LAYER: [], "hidden layer of 16": [16]}
"""Name → ``top``. The first is the paper's."""

EPOCHS = (1, 3, 10)
"""After which the attacks are kept."""

Defence = Mapping[str, Any]
"""One entry of ``defences`` in a node's settings; empty: none."""

NONE: Defence = {}

STRENGTHS: Mapping[str, Sequence[Defence]] = {
    "dp": [{"name": "dp", "max_grad_norm": 1.0, "noise_multiplier": noise} for noise in (0.1, 0.3, 1.2)],
    "isotropic": [{"name": "isotropic", "noise": noise} for noise in (0.4, 1.3, 4.0)],
    "maxnorm": [{"name": "maxnorm"}],
    "marvell": [{"name": "marvell", "power": power} for power in (0.2, 1.0, 8.0)],
    "mixpro": [{"name": "mixpro", "goal": goal, "share": share} for goal, share in ((-0.9, 0.1), (0.3, 0.6), (0.866, 0.6))],
    "randomised-labels": [{"name": "randomised-labels", "epsilon": epsilon} for epsilon in (4.0, 2.0, 1.0)],
}
"""Defence → its strengths, the weakest first. ``maxnorm`` has no key."""

FROM_NOTHING = ("dp", "isotropic", "marvell")
"""Defences that vanish as their key goes to 0. The others change much by their weakest keys."""

PUBLISHED: Sequence[Defence] = [{"name": LITERAL[0], "goal": 0.866, "share": 0.6}, {"name": LITERAL[1], "power": 8.0}]
"""Word for word; the repaired ones of the same strength are among :data:`STRENGTHS`."""

OF_TABLE: Mapping[str, Mapping[str, Any]] = {"small": {"batch_size": 64, "learning_rate": 0.01}}
"""Table → settings of the job that differ."""

LABELLED = 0.7
"""Share of the rows that the active party has where who has what is hidden."""

CLUSTERS = "embeddings"
"""The paper's attack."""

BY_EMBEDDINGS = ("embeddings", "embeddings_soft")
"""The attacks that no defence of gradients can stop directly."""


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        seeds: of each trial.
        small: on one small made-up table with one strength of each defence, for tests and for a first look.
    """

    seeds: int = 5
    small: bool = False

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return ("small",) if self.small else ("adult", "generator-5", "generator-1")

    @property
    def published_tables(self) -> tuple[str, ...]:
        """Those on which the published forms run."""
        return ("small",) if self.small else ("generator-5",)

    @property
    def membership_tables(self) -> tuple[str, ...]:
        """Those on which the audit of membership runs."""
        return ("small",) if self.small else ("adult",)

    @property
    def strengths(self) -> dict[str, list[Defence]]:
        """Defence → its strengths that are run, the weakest first."""
        return {name: list(strengths[-1:] if self.small else strengths) for name, strengths in STRENGTHS.items()}

    @property
    def middle(self) -> dict[str, Defence]:
        """Defence → the one strength at which it is compared with others besides."""
        return {name: values[len(values) // 2] for name, values in self.strengths.items()}

    @property
    def epochs(self) -> tuple[int, ...]:
        """After which the attacks are kept."""
        return (1, 3) if self.small else EPOCHS


def trial(plan: Plan, table: str, top: str, defence: Defence, seed: int) -> Work:
    """A training under a defence."""
    arguments = {"table": table, "top": TOPS[top], "defence": dict(defence), "seed": seed, "epochs": list(plan.epochs)}
    return Work(hidden_labels, arguments)


def hidden_labels(shared: Path, *, table: str, top: list[int], defence: Defence, seed: int, epochs: list[int]) -> Any:
    """The work of a :func:`trial`.

    Returns:
        ``auc`` on the rows held out, ``alone``, that of the label party's own columns (of trainings without a defence), and
        ``labels``: number of epochs → attack → AUC, folded.
    """
    settings = {"top": top, "epochs": epochs[-1], **OF_TABLE.get(table, {})}
    entries = [defence] if defence else []
    done = train(TABLES[table](shared, seed), seed, settings=settings, defences=entries)
    labels = {str(epoch): _round(done.labels[epoch - 1]) for epoch in epochs}
    return {"auc": round(done.auc, 5), "alone": None if defence else round(done.alone, 5), "labels": labels}


def membership(plan: Plan, table: str, top: str, defence: Defence, seed: int) -> Work:
    """A training under a defence over a union, in which the active party has a part of the rows."""
    arguments = {"table": table, "top": TOPS[top], "defence": dict(defence), "seed": seed, "epochs": plan.epochs[-1]}
    return Work(hidden_members, arguments)


def hidden_members(shared: Path, *, table: str, top: list[int], defence: Defence, seed: int, epochs: int) -> Any:
    """The work of :func:`membership`.

    Returns:
        ``auc`` on the rows held out, and ``attacks``: attack of ``training.audit`` on which rows are the active party's → AUC,
        not folded, after the last epoch.
    """
    settings = {"top": top, "epochs": epochs, "missing": {"labels": "random-pred"}, **OF_TABLE.get(table, {})}
    entries = [defence] if defence else []
    done = train(TABLES[table](shared, seed), seed, settings=settings, defences=entries, labelled=LABELLED)
    return {"auc": round(done.auc, 5), "attacks": _round(done.trained[ACTIVE].epochs[-1].attacks)}


def works(plan: Plan) -> list[Work]:
    """Everything that has to be run."""
    defended = [one for values in plan.strengths.values() for one in values]
    every = []
    for seed in range(plan.seeds):  # all of a seed together: a run that is cut off has whole seeds
        for top in TOPS:
            for table in plan.tables:
                published = PUBLISHED if table in plan.published_tables else ()
                every += [trial(plan, table, top, defence, seed) for defence in (NONE, *defended, *published)]
            for table in plan.membership_tables:
                every += [membership(plan, table, top, defence, seed) for defence in (NONE, *plan.middle.values())]
    return every


def _round(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 4) for name, value in values.items()}
