"""What an experiment is: pieces of work whose outcomes a page is written from.

A module of an experiment has

    TITLE                                     a heading of the page
    works(plan) -> list[Work]                 what has to be run, for every seed
    page(plan, found) -> list[str]            lines of Markdown below the heading: tables with the paper's numbers beside
    drawings(plan, found) -> dict[str, str]   file name → SVG
    check(plan, found) -> list[Expectation]   what was expected, and what was found

and stands in ``EXPERIMENTS`` of run.py. ``found`` has an outcome for each :attr:`Work.name`. Works with equal names are run
once, also if several experiments need them. With ``plan.small`` the tables are made up, and all takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from experiments.inference.attacker import ATTACKS, attack
from experiments.inference.data import SPLITS
from experiments.inference.training import Settings, train
from vfl_node.crypto.randomness import Randomness
from vfl_node.training.intervals import student_t

Outcome = Any
"""JSON."""

SMALL = {
    "adult": "made_up",
    "default_credit": "made_up",
    "location30": "made_up_flags",
    "location30-three": "made_up_three",
    "location30-one": "made_up_one",
    "location30-other": "made_up_other",
}
"""Table → the one that is made up in its place."""


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        seeds: of each kind of trial.
        small: on made-up tables, for tests and for a first look.
    """

    seeds: int = 5
    small: bool = False

    def data(self, name: str) -> str:
        """The table to use for ``name``."""
        return SMALL[name] if self.small else name

    def few(self, most: int) -> range:
        """The first seeds, ``most`` of them at most."""
        return range(min(self.seeds, most))


@dataclass(frozen=True)
class Work:
    """One piece of work, which a process of its own may do.

    Attributes:
        function: of a module, called with the folder of shared data sets and ``arguments``.
        arguments: JSON.
    """

    function: Callable[..., Outcome]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Tells it from all other works."""
        return f"{self.function.__name__} {json.dumps(self.arguments, sort_keys=True)}"

    def run(self, shared: Path) -> Outcome:
        """Its outcome."""
        return self.function(shared, **self.arguments)


Found = Mapping[str, Outcome]
"""Name of a work → its outcome."""


@dataclass(frozen=True)
class Expectation:
    """Something that was expected before it was measured.

    Attributes:
        what: a clause that ``found`` and ``least`` complete.
        found: what was measured.
        least: it holds if ``found`` is at least this.
    """

    what: str
    found: float
    least: float

    @property
    def holds(self) -> bool:
        """Whether it is as was expected."""
        return self.found >= self.least


class Experiment(Protocol):
    """A module as described above."""

    TITLE: str

    def works(self, plan: Plan) -> list[Work]:
        """What has to be run."""

    def page(self, plan: Plan, found: Found) -> list[str]:
        """Lines of Markdown."""

    def drawings(self, plan: Plan, found: Found) -> dict[str, str]:
        """File name → SVG."""

    def check(self, plan: Plan, found: Found) -> list[Expectation]:
        """What was expected."""


def trial(
    data: str,
    seed: int,
    *,
    settings: Settings | None = None,
    defences: Sequence[Settings] = (),
    shares: Sequence[float] = (0.05,),
    epochs: Sequence[int] = (),
    attacks: Sequence[str] = ATTACKS,
) -> Work:
    """One training and the attacks on it; arguments as of :func:`~experiments.inference.training.train` and ``attack``."""
    chosen = {"settings": dict(settings or {}), "defences": [dict(one) for one in defences], "shares": list(shares)}
    return Work(attacked, {"data": data, "seed": seed, **chosen, "epochs": list(epochs), "attacks": list(attacks)})


def attacked(
    shared: Path,
    *,
    data: str,
    seed: int,
    settings: Settings,
    defences: Sequence[Settings],
    shares: Sequence[float],
    epochs: Sequence[int],
    attacks: Sequence[str],
) -> Outcome:
    """The work of a :func:`trial`.

    Returns:
        ``test``: metric → value on the rows held out. ``alone``: that of the attacker's own columns alone. ``losses``: of each
        epoch. ``victims``: passive party → known share, as ``{:g}`` → what
        :func:`~experiments.inference.attacker.attack` found.
    """
    heard = train(data, SPLITS[data](shared, seed), seed, settings=settings, defences=defences)

    def attack_with(party: str, share: float) -> Outcome:
        own = Randomness(bytes(32)).derive(f"attacker of {party}, {data}, {seed}, {share:g}")
        return attack(heard, party, share, own, epochs=epochs, attacks=attacks)

    victims = {party: {f"{share:g}": attack_with(party, share) for share in shares} for party in heard.split.passive}
    return {"test": dict(heard.test), "alone": dict(heard.alone), "losses": heard.losses, "victims": victims}


def mean(values: Sequence[float]) -> float:
    """Over seeds."""
    return float(np.mean(values))


def cell(values: Sequence[float], digits: int = 3) -> str:
    """Mean ± standard deviation over seeds."""
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def interval(values: Sequence[float], digits: int = 3) -> str:
    """Mean and 95 % interval over seeds (Student's t)."""
    if len(values) < 2:
        return f"{np.mean(values):+.{digits}f}"
    half = student_t(0.95, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.{digits}f} [{np.mean(values) - half:+.{digits}f}, {np.mean(values) + half:+.{digits}f}]"


def lower(values: Sequence[float]) -> float:
    """End of the 95 % interval of the mean; the mean itself of one value."""
    if len(values) < 2:
        return mean(values)
    return mean(values) - float(student_t(0.95, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
