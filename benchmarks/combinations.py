"""Which trainer runs over which alignment, with how many passive parties and which options, and what each way tells.

    python -m benchmarks.combinations         writes docs/reference/combinations.md and the table of docs/index.md;
                                              `make docs` runs it, too

The rows are those of :mod:`vfl_node.plans.combinations`, among which `vfl-node plan` chooses. Every cell is a job that is
checked here: what the pages say is what a node answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.plans.answers import ACTIVE, LEARNERS, PASSIVE, THIRD, Answers
from vfl_node.plans.combinations import Combination, job_of, list_combinations
from vfl_node.plans.meaning import SECRETS, Secret, list_told
from vfl_node.plans.recommend import accepts, recommend
from vfl_node.plans.relax import relax
from vfl_node.trust.manifest import declare

DOCS = Path(__file__).parents[1] / "docs"

PAGE, START = DOCS / "reference" / "combinations.md", DOCS / "index.md"

BEGIN, END = "<!-- written by make docs -->\n", "<!-- until here -->"
"""Around the table of the start page."""

MOST_PASSIVE = 8

MANY = 1_000_000
"""Records of each party, by which the start page recommends: noise takes little from a model then."""

NOTHING = "nothing"

WORDS: Mapping[bool | str, str] = {True: "yes", False: "no", "yes or no": "yes or no"}

OPTIONS: dict[str, dict[str, Any]] = {
    "`serve`": {"serve": {"to": "active"}},
    "`export`": {"export": {"joint": "active"}},
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

Which trainer runs over which alignment, with which options, and what each party learns of rows. For whoever writes a job.

`make docs` writes this page: each cell is a job that vfl-node has checked. A number in brackets is a refusal; the sentences
stand below, as a node gives them. Installed packages ([extend it](../guides/extend-it.md)) add trainers and alignments to
these. `vfl-node plan` chooses among the same ways ([choose a way](../guides/choose-a-way.md)).

## Trainer, alignment, passive parties

A cell is the number of passive parties that a job may have.
"""

TOLD = """\
## What each way tells

What a job with one passive party may tell of single rows, in part at least, by its manifest. A party without a mark learns only
sizes, sums, and what is under keys, masks or noise; [the ledger](ledger.md) has every entry. A defence may hide labels that
the table says are told ([defences](defences.md)).
"""

BESIDES = """\
## Options

What a job with one passive party may ask for besides. A job that only aligns has nothing to evaluate or to serve.
"""


def job(
    combination: Combination, passive: int = 1, *, align: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]
) -> dict[str, Any]:
    """A job of this kind with so many passive parties, as a document, with further keys and sections."""
    names = [PASSIVE] if passive == 1 else [f"{PASSIVE}-{number}" for number in range(1, passive + 1)]
    document = combination.document({"active": ACTIVE, "passive": names, "coordinator": THIRD}, align=align)
    return document | {name: dict(section) for name, section in sections.items()}


def refusal(document: Mapping[str, Any]) -> str | None:
    """Why the job is refused, without the name of its file; None where it is not."""
    found = job_of(document)
    return found if isinstance(found, str) else None


def most_passive_parties(combination: Combination) -> int:
    """With how many passive parties a job may run, 0 to 8."""
    counts = range(1, MOST_PASSIVE + 1)
    return max((count for count in counts if refusal(job(combination, count)) is None), default=0)


def usual() -> list[Combination]:
    """Those that run in the usual way of both parts."""
    return [each for each in list_combinations(own=True) if each.train == () and each.align == ()]


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

    lines = [ABOUT, _row(["`train.algorithm`", *(f"`{name}`" for name in ALIGNMENTS.own)]), _rule(1 + len(ALIGNMENTS.own))]
    trained: dict[str, list[Combination]] = {}
    for each in list_combinations(own=True):
        if each.align == ():
            trained.setdefault(each.trained, []).append(each)
    for name, across in trained.items():
        cells = []
        for combination in across:
            most = most_passive_parties(combination)
            beyond = cell(job(combination, most + 1), "") if most < MOST_PASSIVE else ""
            cells.append(" ".join(filter(None, [str(most) if most < 2 else f"1 to {most}", beyond])) if most else beyond)
        lines.append(_row([_code(name), *cells]))
    lines += ["", TOLD, *told_table(), "", BESIDES, _row(["job", *OPTIONS]), _rule(1 + len(OPTIONS))]
    for combination in filter(accepts, usual()):
        options = [
            "" if combination.trainer is None and "align" not in sections else cell(job(combination, **sections), "yes")
            for sections in OPTIONS.values()
        ]
        lines.append(_row([f"{_code(combination.trained)}, {_code(combination.aligned)}", *options]))
    lines += ["", "## Refusals", "", "```text", *(f"[{number}] {why}" for number, why in enumerate(refusals, 1)), "```"]
    return "\n".join(lines) + "\n"


def told_table() -> Iterator[str]:
    """Who learns what of single rows, for each way."""
    yield _row(["way", "third party", "rows made up", *SECRETS.values()])
    yield _rule(3 + len(SECRETS))
    for combination in filter(accepts, list_combinations(own=True)):
        made = job_of(job(combination))
        assert isinstance(made, Job)
        facts = ["yes" * combination.coordinated, "yes" * combination.makes_up_rows]
        yield _row(
            [
                f"{_code(combination.trained)}, {_code(combination.aligned)}",
                *facts,
                *(_learners(made, each) for each in SECRETS),
            ]
        )


def _learners(made: Job, secret: Secret) -> str:
    """The parties that learn something of a secret, by their roles."""
    roles = {ACTIVE: "active", PASSIVE: "passive", THIRD: "third party"}
    return ", ".join(roles[name] for name in list_told(declare(made, None), secret))


def choices() -> Iterator[str]:
    """The table of the start page: what `vfl-node plan` recommends for a model of two classes, by the answers about privacy."""
    yield _row(["Identifier in common?", "Who may learn which are shared?", "Labels hidden?", "Third party?", "Recommended"])
    yield _rule(5)
    for same_id, may in product((True, False), LEARNERS):
        found: dict[tuple[bool | str, bool], str] = {
            (hide, third): _choice(Answers(MANY, (MANY,), "binary", may, third, same_id=same_id, hide_labels=hide))
            for hide, third in product((True, False), (False, True))
        }
        if all(found[True, third] == found[False, third] for third in (False, True)):
            found = {("yes or no", third): found[True, third] for third in (False, True)}
        for (hide, third), choice in found.items():
            if same_id or not choice.startswith(NOTHING):
                yield _row([WORDS[same_id], may, WORDS[hide], WORDS[third], choice])


def _choice(answers: Answers) -> str:
    if fitting := recommend(answers).fitting:
        return _linked(fitting[0].combination)
    found = relax(answers)
    assert found
    return (
        f"nothing; {_linked(found.proposal.combination)} if you can say {' and '.join(f'`{option}`' for option in found.said)}"
    )


def _linked(combination: Combination) -> str:
    """A way with links to the sections of the start page about its parts."""
    text = START.read_text()
    parts = [_code(combination.trained), _code(combination.aligned)]
    names = [combination.trainer or "", combination.alignment]
    linked = (f"[{part}](#{name})" if f"\n### {name}\n" in text else part for part, name in zip(parts, names, strict=True))
    return " over ".join(linked)


def start() -> str:
    """The start page, with its table anew."""
    before, _, rest = START.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, *choices(), "", END + after])


def _code(name: str) -> str:
    """The name of a way, its keys and values as code."""
    plain, _, keys = name.partition(" (")
    said = ", ".join(f"`{each}`" for each in keys.removesuffix(")").split(", ")) if keys else ""
    return f"`{plain}`{f', {said}' if said else ''}" if plain != "none" else plain


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(count: int) -> str:
    return _row(["---"] * count)


if __name__ == "__main__":
    PAGE.write_text(page())
    START.write_text(start())
