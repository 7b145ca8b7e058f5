"""How the learning rate of each table was chosen: by validation, on rows of a seed that nothing else uses."""

from __future__ import annotations

from experiments.fedsim.trials import FEDSIM, RATES, TOP1, Plan, trial
from experiments.inference.experiment import Expectation, Found, Work, table

TITLE = "Learning rates"

GRID = (0.003, 0.01)
"""The two larger ones of the paper's grid."""

SEED = 100
METHODS = (FEDSIM, TOP1)


def tables(plan: Plan) -> tuple[str, ...]:
    """Those that are trained on."""
    return ("small",) if plan.small else ("made_up", "hdb", "games")


def works(plan: Plan) -> list[Work]:
    """As in :mod:`experiments.inference.experiment`."""
    return [trial(name, method, SEED, rate=rate) for name in tables(plan) for method in METHODS for rate in GRID]


def losses(found: Found, name: str) -> dict[float, list[float]]:
    """Rate → smallest validation loss of each method."""
    return {rate: [found[trial(name, method, SEED, rate=rate).name]["validation"] for method in METHODS] for rate in GRID}


def best(found: Found, name: str) -> float:
    """The rate whose losses have the smaller sum."""
    every = losses(found, name)
    return min(GRID, key=lambda rate: sum(every[rate]))


def page(plan: Plan, found: Found) -> list[str]:
    """A row for each table and rate."""
    rows = [
        [f"`{name}`", f"{rate:g}", *(f"{loss:.4f}" for loss in values), "used" if RATES[name] == rate else ""]
        for name in tables(plan)
        for rate, values in losses(found, name).items()
    ]
    return [
        "The smallest validation loss of 30 epochs, on one seed that no other table has. Of each table the rate with the",
        "smaller sum is used, for all methods and for Solo.",
        "",
        *table(["", "rate", *(f"`{method}`" for method in METHODS), ""], rows),
    ]


def drawings(plan: Plan, found: Found) -> dict[str, str]:
    """None."""
    return {}


def check(plan: Plan, found: Found) -> list[Expectation]:
    """None."""
    return []
