"""What the overview makes of what is used of limits: which are nearly used up, and what each is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NEARLY = 0.8
"""Share of a limit from which on it is nearly used up."""

TITLES = {
    "alignments": "Different pairs of sets",
    "changes": "Changes while sizes are hidden",
    "trainings": "Trainings over the same table",
    "trainings_in_clear": "Trainings that send values of single rows",
    "models_served": "Hidden models that answer",
    "linkages": "Ways to link the same records",
    "epsilon": "Privacy budget ε of hidden training",
    "asked_per_day": "Ids asked about in a day",
    "asked_per_epoch": "Ids asked about in a key period",
    "answered_per_day": "Ids answered in a day",
    "answered_per_epoch": "Ids answered in a key period",
    "predicted_rows": "Rows told by predictions",
}
"""Budget → what it counts."""


@dataclass(frozen=True)
class BudgetLine:
    """One limit over many jobs.

    Attributes:
        title: what it counts.
        used: how much of it is used.
        allowed: how much its owner allows; None: without a bound.
        per: within which period; None: for as long as the records stay the same.
        free: the day on which fewer count, of a period.
    """

    title: str
    used: float
    allowed: float | None
    per: str | None = None
    free: str | None = None

    @property
    def nearly(self) -> bool:
        """Whether little is left."""
        return self.allowed is not None and self.used >= NEARLY * self.allowed

    @property
    def left(self) -> str:
        """What is left, in words."""
        if self.allowed is None:
            return f"{self.used:,g} used, no bound"
        left = max(0, self.allowed - self.used)
        per = f" per {self.per}" if self.per else ""
        free = f", the next is free on {self.free}" if self.free and not left else ""
        return f"{round(left, 2):,g} of {self.allowed:,g}{per} left{free}"


def budget_groups(budgets: Mapping[str, Mapping[str, Any]]) -> dict[str, list[BudgetLine] | None]:
    """Peer or model → its limits of which something is used; None where what was counted is damaged."""
    return {
        name: limits and used_lines(limits) for held in (budgets["peers"], budgets["models"]) for name, limits in held.items()
    }


def used_lines(limits: Mapping[str, Any]) -> list[BudgetLine]:
    """Those limits of one peer or model of which something is used, or may be within a period."""
    return [
        BudgetLine(TITLES.get(limit, limit), **budget)
        for limit, budget in limits.items()
        if budget["used"] or budget.get("per")
    ]
