"""The command that asks an owner a few questions, and recommends a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from vfl_node.cli.shared import app, check_writable, err, out, print_json, writing
from vfl_node.errors import UsageError

if TYPE_CHECKING:
    from vfl_node.plans.answers import Answers, Question


@app.command("plan")
def plan_job(
    active: Annotated[str, typer.Option(metavar="N", help="Records of the party with the labels.")] = "",
    passive: Annotated[list[str], typer.Option(metavar="N", help="Records of another party. Repeat for each.")] = [],  # noqa: B006
    same_id: Annotated[str, typer.Option(metavar="yes|no", help="Whether the tables have an identifier in common.")] = "",
    shared_guess: Annotated[str, typer.Option(metavar="PART", help="Part of the smallest table that is shared, 0 to 1.")] = "",
    task: Annotated[str, typer.Option(metavar="binary|multiclass|regression|count", help="What is learnt.")] = "",
    classes: Annotated[str, typer.Option(metavar="N", help="With --task multiclass: how many.")] = "",
    may_learn_shared: Annotated[
        str, typer.Option(metavar="none|active|both", help="Who may learn which records are shared.")
    ] = "",
    hide_labels: Annotated[str, typer.Option(metavar="yes|no", help="Whether labels of rows stay hidden from others.")] = "",
    third_party: Annotated[str, typer.Option(metavar="yes|no", help="Whether there is a third party that all trust.")] = "",
    columns: Annotated[list[str], typer.Option(help="ROLE=NUMBER of columns as encoded, for the cost.")] = [],  # noqa: B006
    rate: Annotated[float, typer.Option(min=0.001, help="Mbit/s between the parties.")] = 100,
    rtt: Annotated[float, typer.Option(min=0, help="Round trip in milliseconds.")] = 20,
    target: Annotated[Optional[Path], typer.Option("--out", help="Write the recommended job into this file.")] = None,  # noqa: UP045
    as_json: Annotated[bool, typer.Option("--json", help="For programs: one document.")] = False,
) -> None:
    """Find the way that suits your tables: asks a few questions, prints a job, its cost, and what each party would learn."""
    from vfl_node.plans.answers import collect

    given = {
        "--active": active,
        "--passive": " ".join(passive),
        "--same-id": same_id,
        "--shared-guess": shared_guess,
        "--task": task,
        "--classes": classes,
        "--may-learn-shared": may_learn_shared,
        "--hide-labels": hide_labels,
        "--third-party": third_party,
    }
    if target:
        _check_new(target)
    given = {option: text for option, text in given.items() if text}
    answers, assumed = collect(given, _ask if sys.stdin.isatty() else None)
    known = _columns(answers, columns)
    from vfl_node.plans.recommend import recommend
    from vfl_node.plans.relax import refuse

    ranked = recommend(answers)
    if not ranked.fitting:
        raise refuse(answers)
    from vfl_node.plans.cost import cost_of  # loads numpy, and measures
    from vfl_node.plans.words import describe, job_text, to_document

    cost = cost_of(ranked.fitting[0], answers, known, rate, rtt)
    if as_json:
        print_json(to_document(ranked, answers, assumed, cost))
    else:
        if assumed:
            err.print(f"taken for granted: {', '.join(assumed)}")
        for line in describe(ranked, answers, cost, f"at {rate:g} Mbit/s and {rtt:g} ms"):
            out.print(line)
    if target:
        with writing(target, "--out"):
            target.write_text(job_text(ranked.fitting[0]), encoding="utf-8")
        err.print(f"written: {target}")


def _ask(question: Question) -> str:
    """What a person answers; asked again until it is an answer."""
    while True:
        err.print(f"{question.text}{f' [{question.default}]' if question.default else ''} ", end="")
        line = sys.stdin.readline()
        if not line:
            raise typer.Abort
        written = line.strip() or question.default
        try:
            question.parse(written)
        except UsageError as error:
            err.print(error.message)
        else:
            return written


def _columns(answers: Answers, options: list[str]) -> dict[str, int]:
    """``ROLE=NUMBER`` options as party → number."""
    from vfl_node.plans.answers import ACTIVE

    names = {"active": (ACTIVE,), "passive": answers.passive_names, **{name: (name,) for name in answers.records}}
    known: dict[str, int] = {}
    for option in options:
        role, _, number = option.partition("=")
        if role not in names or not number.isdecimal() or int(number) < 1:
            raise UsageError(f"--columns {option} is not ROLE=NUMBER", hint="for example --columns active=20")
        known |= dict.fromkeys(names[role], int(number))
    return known


def _check_new(target: Path) -> None:
    """Raises UsageError (``E_FILE``) where the file of ``--out`` is there already, or cannot be written."""
    if target.exists():
        raise UsageError(f"{target} is there already", code="E_FILE", hint="name another --out")
    check_writable(target, "--out")
