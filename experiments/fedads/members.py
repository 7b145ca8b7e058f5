"""Does hiding labels also hide who is known? The audit of membership under each defence.

Aligned by ``psu`` the parties do not know which rows of the union the other one has. The active party makes up labels of rows
that it lacks, and the gradients of these rows may tell them from others. A defence of labels changes the same gradients.
"""

from __future__ import annotations

from experiments.fedads.table_4 import key
from experiments.fedads.trials import LABELLED, NONE, TOPS, Defence, Plan, membership
from experiments.inference.experiment import Expectation, Found, interval, mean, table


def _outcomes(plan: Plan, found: Found, data: str, top: str, defence: Defence) -> list[dict[str, float | None]]:
    return [found[membership(plan, data, top, defence, seed).name]["attacks"] for seed in range(plan.seeds)]


def attacks(plan: Plan, found: Found) -> list[str]:
    """Names of the attacks that were defined in every training."""
    every = [
        outcome
        for data in plan.membership_tables
        for top in TOPS
        for one in (NONE, *plan.middle.values())
        for outcome in _outcomes(plan, found, data, top, one)
    ]
    return [name for name in every[0] if all(outcome.get(name) is not None for outcome in every)]


def strongest(plan: Plan, found: Found, data: str, top: str, defence: Defence) -> list[float]:
    """AUC, folded, of the strongest attack of each training."""
    outcomes = _outcomes(plan, found, data, top, defence)
    return [max(0.5 + abs(value - 0.5) for value in outcome.values() if value is not None) for outcome in outcomes]


def page(plan: Plan, found: Found) -> list[str]:
    """A table for each kind of top."""
    lines, names = ["## Who is known", "", ABOUT, ""], attacks(plan, found)
    for data in plan.membership_tables:
        for top in TOPS:
            rows = []
            for name, one in {"none": NONE, **plan.middle}.items():
                shown = [
                    f"{mean([outcome[attack] or 0.5 for outcome in _outcomes(plan, found, data, top, one)]):.3f}"
                    for attack in names
                ]
                worst = strongest(plan, found, data, top, one)
                without = strongest(plan, found, data, top, NONE)
                gap = interval([a - b for a, b in zip(worst, without, strict=True)]) if one else ""
                rows.append([f"{name} {key(one) if one else ''}".rstrip(), f"{mean(worst):.3f}", gap, *shown])
            head = ["defence", "strongest, folded", "− without", *names]
            lines += [f"**{data}; top: {top}**", "", *table(head, rows), ""]
    return lines


def check(plan: Plan, found: Found) -> list[Expectation]:
    """A defence of labels makes rows without a label no easier to find than without it, by more than chance."""
    return [
        Expectation(
            f"`{data}`, top {top}: strongest attack on membership without a defence − under {name}",
            mean(strongest(plan, found, data, top, NONE)) - mean(strongest(plan, found, data, top, one)),
            -0.02,
        )
        for data in plan.membership_tables
        for top in TOPS
        for name, one in plan.middle.items()
    ]


ABOUT = f"""\
A union (`psu`) in which the active party has {LABELLED:.0%} of the rows, with labels of `random-pred` for the rest. What
`training.audit` of the active party finds in the gradients after the last epoch, each defence at the middle one of its
strengths: AUC of its attacks on which rows it has. Those are not folded, as everywhere in the audit of membership; the
strongest of each training is."""
