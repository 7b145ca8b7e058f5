"""The pages on hidden labels: one to begin with, every attack at equal loss, one for each table, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.fedads import members, table_4
from experiments.fedads.trials import Plan
from experiments.inference.experiment import Found

ABOUT_DATA = "This page shows what each attack reads of the labels on `{data}` under each strength of each defence."


def pages(plan: Plan, found: Found, name: str, expected: Sequence[str]) -> dict[str, str]:
    """File name → page.

    Args:
        plan: what was run.
        found: all outcomes.
        name: of the first page, with which the others' begin.
        expected: lines of what was expected, and of how many trainings there were.
    """
    about = Path(__file__).with_name("about.md").read_text(encoding="utf-8")
    every = {
        "": [about, *table_4.short(plan, found), *expected[-1:]],
        "-attacks": [*_head("Defences of labels at equal loss, by attack", ATTACKS, name), *table_4.attacked(plan, found)],
        **{f"-{data}": _data_page(plan, found, name, data) for data in plan.tables},
        "-checks": [
            *_head("Checks of the defences of labels", CHECKS, name),
            *table_4.literal(plan, found),
            *members.page(plan, found),
            *expected[:-2],
        ],
    }
    return {f"{name}{kind}.md": "\n".join(lines).rstrip("\n") + "\n" for kind, lines in every.items()}


def _data_page(plan: Plan, found: Found, name: str, data: str) -> list[str]:
    title = f"Defences of labels on {data}"
    return [*_head(title, ABOUT_DATA.format(data=data), name), *table_4.data_page(plan, found, data)]


def _head(title: str, about: str, name: str) -> list[str]:
    return [f"# {title}", "", about, f"[{name}.md]({name}.md) says what it means.", ""]


ATTACKS = """\
This page shows what each of the twelve attacks reads of the labels, folded, after ten epochs. Each defence is taken where it
costs .01 of AUC."""

CHECKS = """\
This page compares defences with their published forms, attacks membership under each of them, and lists what was expected."""
