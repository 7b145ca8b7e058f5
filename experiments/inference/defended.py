"""Defended trainings that several experiments share, and what is read off them.

A defence is judged by decoders that are trained afresh on what it sent: the best of static-epoch, static-pass, adaptive and
stacked. Its leakage is the success of that attack − that of imputation, which needs no embedding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.inference.attacker import ADAPTIVE, PASS, STACKED, STATIC
from experiments.inference.experiment import Found, Plan, Work, trial

SETTINGS: Mapping[bool, Mapping[str, Any]] = {False: {"batch_size": 256, "learning_rate": 0.003}, True: {}}
"""Keys of the job, by :attr:`Plan.small`. A defended step costs as much for 128 rows as for 256: larger batches cost half."""

JUDGES = (STATIC, PASS, ADAPTIVE, STACKED)

LOOKS = {False: (4, 12, 20), True: (2, 6)}
"""Epochs after which the attacks by epochs are run."""

COLUMNS: Mapping[str, Any] = {
    "adult": ["occupation"],
    "default_credit": ["LIMIT_BAL"],
    "location30": "all",
    "made_up": ["kind"],
    "made_up_flags": "all",
}
"""Table → the columns that are protected, which are those that are attacked."""

METRIC = {"adult": "auc", "default_credit": "auc", "location30": "accuracy"}
"""Table → how good the joint model is."""

NAMES = {"auc": "AUC", "accuracy": "accuracy"}

Defence = Mapping[str, Any]
"""One entry of ``defences`` in a node's settings, without ``columns``; empty: no defence."""

NONE: Defence = {}

FBS: Defence = {"name": "fbs", "model_rate": 0.001}


def entries(defence: Defence, columns: Any) -> list[dict[str, Any]]:
    """As in a node's settings."""
    if not defence:
        return []
    return [dict(defence) if defence["name"] == "noise" else {**defence, "columns": columns}]


def defended(plan: Plan, data: str, seed: int, defence: Defence) -> Work:
    """A training of ``data`` under a defence, and the attacks on it."""
    table = plan.data(data)
    return trial(
        table,
        seed,
        settings=SETTINGS[plan.small],
        defences=entries(defence, COLUMNS[table]),
        epochs=LOOKS[plan.small],
        attacks=JUDGES,
    )


class Results:
    """What was found of ``data`` under a defence, a value for each seed."""

    def __init__(self, plan: Plan, found: Found, data: str, seeds: Sequence[int]) -> None:
        self._plan, self._found, self._data, self._seeds = plan, found, data, seeds
        self.metric = METRIC[data]

    def _outcomes(self, defence: Defence) -> list[Any]:
        return [self._found[defended(self._plan, self._data, seed, defence).name] for seed in self._seeds]

    def task(self, defence: Defence) -> list[float]:
        """How good the joint model is on the rows held out."""
        return [outcome["test"][self.metric] for outcome in self._outcomes(defence)]

    def gain(self, defence: Defence) -> list[float]:
        """How much better it is than without the defence: usually negative. Paired by seed."""
        return _subtract(self.task(defence), self.task(NONE))

    def alone(self) -> list[float]:
        """How much better the attacker's own columns alone are than the joint model without a defence: negative."""
        outcomes = self._outcomes(NONE)
        return _subtract([outcome["alone"][self.metric] for outcome in outcomes], self.task(NONE))

    def success(self, defence: Defence, line: str = "worst", metric: str = "success") -> list[float]:
        """Success of an attack, or of a line without one."""
        return [outcome["victims"]["victim"]["0.05"][line][metric] for outcome in self._outcomes(defence)]

    def leakage(self, defence: Defence) -> list[float]:
        """Leakage by the best attack, beyond imputation."""
        return _subtract(self.success(defence), self.success(defence, "imputation"))

    def losses(self, defence: Defence) -> list[list[float]]:
        """The task's loss of each epoch."""
        return [outcome["losses"] for outcome in self._outcomes(defence)]


def _subtract(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(ones, others, strict=True)]
