"""Which trainer runs over which alignment, with how many passive parties and which options.

    python -m benchmarks.combinations         writes docs/reference/combinations.md; `make docs` runs it, too

Every cell is a job that is checked here: what the page says is what a node answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vfl_node.configuration.models import validate
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.training import ALWAYS, TRAINERS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "combinations.md"

MOST_PASSIVE = 8

COORDINATED = {"logistic": "coordinator-open-scores", "linear": "coordinator-open-scores"}
"""Trainer → a flow of it in which a coordinator takes part; by default none does."""

OPTIONS: dict[str, dict[str, Any]] = {
    "`serve`": {"serve": {"to": "active"}},
    "`evaluate.repeats: 2`": {"evaluate": {"repeats": 2}},
    "`evaluate.validation_fraction`": {"evaluate": {"validation_fraction": 0.1}},
    "`evaluate.hold_out`": {"evaluate": {"hold_out": {"last": 0.2}}},
    "`evaluate.matched`": {"evaluate": {"matched": True}},
    "`evaluate.contributions`": {"evaluate": {"contributions": True}},
    "`evaluate.share_with_passive`": {"evaluate": {"share_with_passive": True}},
    "`align.padding`": {"align": {"padding": 10}},
    "`align.dummies`": {"align": {"dummies": 100}},
    "`align.obfuscation`": {"align": {"obfuscation": "private"}},
}
"""Column of the second table → what the job says besides."""

ABOUT = """\
# What goes with what

Which trainer runs over which alignment, with which options. For whoever writes a job.

`make docs` writes this page: each cell is a job that vfl-node has checked. A number in brackets is a refusal; the sentences
stand below, as a node gives them. Installed packages ([extend it](../guides/extend-it.md)) add trainers and alignments to
these.

## Trainer, alignment, passive parties

A cell is the number of passive parties that a job may have.
"""

BESIDES = """\
## Options

What a job with one passive party may ask for besides. A job that only aligns has nothing to evaluate or to serve.
"""


def job(
    trainer: str | None, alignment: str, passive: int = 1, *, flow: str = "", **sections: Mapping[str, Any]
) -> dict[str, Any]:
    """A job of ``trainer`` (None: it only aligns) over ``alignment``, as a document; ``flow``: one with a coordinator."""
    spec = ALIGNMENTS[alignment]
    needed: dict[str, Any] = {"obfuscation": "private"} if "obfuscation" in spec.options else {}
    if "keys" in spec.options:
        needed = {"keys": {"age": {"kind": "number", "low": 0, "high": 120, "reach": 5}}, "noise": {"sigma": 0.4}}
    parties = {"active": "bank", "passive": [f"telco-{number}" for number in range(1, passive + 1)]}
    document: dict[str, Any] = {
        "name": "combination",
        "parties": parties | ({"coordinator": "notary"} if flow or spec.coordinated or _coordinated(trainer) else {}),
        "align": {"protocol": alignment, **needed, **sections.get("align", {})},
        **({"train": {"algorithm": trainer} | ({"flow": flow} if flow else {})} if trainer else {}),
    }
    return document | {name: dict(section) for name, section in sections.items() if name != "align"}


def _coordinated(trainer: str | None) -> bool:
    """Whether a coordinator takes part in each of its trainings, whatever the job says."""
    return trainer is not None and TRAINERS[trainer].traits.coordinated_by == ALWAYS


def refusal(document: Mapping[str, Any]) -> str | None:
    """Why the job is refused, without the name of its file; None where it is not."""
    try:
        validate(document, Job, source="job")
    except UsageError as error:
        return error.message.removeprefix("job: ")
    return None


def most_passive_parties(trainer: str | None, alignment: str, flow: str = "") -> int:
    """With how many passive parties a job may run, 0 to 8."""
    counts = range(1, MOST_PASSIVE + 1)
    return max((count for count in counts if refusal(job(trainer, alignment, count, flow=flow)) is None), default=0)


def trainers() -> Iterator[str | None]:
    """No trainer, and each of this project's own."""
    yield None
    yield from TRAINERS.own


def page() -> str:
    """The whole page."""
    refusals: list[str] = []

    def cell(document: Mapping[str, Any], accepted: str) -> str:
        why = refusal(document)
        if why is None:
            return accepted
        if why not in refusals:
            refusals.append(why)
        return f"[{refusals.index(why) + 1}]"

    def row(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    lines = [
        ABOUT,
        row(["`train.algorithm`", *(f"`{name}`" for name in ALIGNMENTS)]),
        row(["---"] * (1 + len(list(ALIGNMENTS)))),
    ]
    for trainer, flow in [(trainer, "") for trainer in trainers()] + list(COORDINATED.items()):
        cells = []
        for alignment in ALIGNMENTS.own:
            most = most_passive_parties(trainer, alignment, flow)
            beyond = cell(job(trainer, alignment, most + 1, flow=flow), "") if most < MOST_PASSIVE else ""
            cells.append(" ".join(filter(None, [str(most) if most < 2 else f"1 to {most}", beyond])) if most else beyond)
        lines.append(row([_name(trainer) + (f", `flow: {flow}`" if flow else ""), *cells]))
    lines += ["", BESIDES, row(["job", *OPTIONS]), row(["---"] * (1 + len(OPTIONS)))]
    for trainer in trainers():
        for alignment in ALIGNMENTS.own:
            if refusal(job(trainer, alignment)) is None:
                options = [
                    "" if trainer is None and "align" not in sections else cell(job(trainer, alignment, **sections), "yes")
                    for sections in OPTIONS.values()
                ]
                lines.append(row([f"{_name(trainer)}, `{alignment}`", *options]))
    lines += ["", "## Refusals", "", "```text", *(f"[{number}] {why}" for number, why in enumerate(refusals, 1)), "```"]
    return "\n".join(lines) + "\n"


def _name(trainer: str | None) -> str:
    return f"`{trainer}`" if trainer else "none"


if __name__ == "__main__":
    PAGE.write_text(page())
