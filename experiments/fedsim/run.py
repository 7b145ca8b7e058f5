"""FedSim (arXiv 2106.06312) on tables that can be had: linkage without exact identifiers, and what it is worth.

    python -m experiments.fedsim.run --data SHARED_DATA_FOLDER --out docs/experiments --processes 2
    python -m experiments.fedsim.run --data SHARED_DATA_FOLDER --out docs/experiments --only figure-6,games --go-on
    python -m experiments.fedsim.run --small --out OUT          on small made-up tables, in a minute or two

It writes ``fedsim.json``, every outcome by seed, the page ``fedsim.md`` beside it and pictures. With ``--go-on`` outcomes that
are stored are kept, so that a run can be cut off, or have more seeds later; the page is written when all are there. README.md
beside this file says what is run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from experiments.fedsim import figure_4, figure_6, games, matching, rates, sweeps, table_2
from experiments.fedsim.trials import SETTINGS, Plan
from experiments.inference.experiment import Expectation, Found, Work
from experiments.pages import Page, divide, write
from experiments.stored import complete
from vfl_node.errors import UsageError


class Part(Protocol):
    """A module of this experiment; as :class:`experiments.inference.experiment.Experiment`, with a plan of its own."""

    TITLE: str

    def works(self, plan: Plan) -> list[Work]:
        """What has to be run."""

    def page(self, plan: Plan, found: Found) -> list[str]:
        """Lines of Markdown."""

    def drawings(self, plan: Plan, found: Found) -> dict[str, str]:
        """File name → SVG."""

    def check(self, plan: Plan, found: Found) -> list[Expectation]:
        """What was expected."""


PARTS: Mapping[str, Part] = {
    "figure-6": figure_6,
    "table-2": table_2,
    "sweeps": sweeps,
    "figure-4": figure_4,
    "games": games,
    "matching": matching,
    "rates": rates,
}
"""Name on the command line → module, in the order of the page."""

ABOUT = Path(__file__).with_name("about.md").read_text(encoding="utf-8")


def works(plan: Plan, names: list[str]) -> list[Work]:
    """What has to be run for parts, all of a seed together: a run that is cut off has whole seeds."""
    every = {work.name: work for name in names for work in PARTS[name].works(plan)}
    return sorted(every.values(), key=lambda work: work.arguments["seed"])


def page(plan: Plan, found: Found) -> str:
    """All of the pages, as one."""
    lines, expected = [], []
    for name, part in PARTS.items():
        lines += [f"## {part.TITLE}", "", *part.page(plan, found), ""]
        expected += [
            f"| {name} | {one.what} | {one.least:+.3f} | {one.found:+.4f} | {'yes' if one.holds else '**no**'} |"
            for one in part.check(plan, found)
        ]
    head = ["## What was expected", "", "| of | what | at least | found | holds |", "|---|---|---|---|---|", *expected, ""]
    return ABOUT + "\n" + "\n".join([*head, *lines]).rstrip() + "\n"


BESIDE = (
    Page(
        "fedsim-noise",
        "FedSim: noise and candidates",
        "Figures 4 and 6 to 9 of FedSim. For readers of its paper.",
        ("Figure 6", "Figures 7", "Figure 4"),
    ),
    Page(
        "fedsim-tables",
        "FedSim: tables of real records",
        "Tables 2 and 3 of FedSim, found pairs, and learning rates. For readers of its paper.",
        ("Table 2", "Table 3", "Pairs of records", "Learning rates"),
    ),
)
"""Pages beside the first one."""


def pages(plan: Plan, found: Found) -> dict[str, str]:
    """File → page of all outcomes."""
    return divide(page(plan, found), "fedsim", BESIDE)


def main(chosen: argparse.Namespace) -> None:
    """Run what is not kept, and write values, page and pictures."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    plan, file = Plan(chosen.seeds, chosen.small), chosen.out / "fedsim.json"
    every = works(plan, list(PARTS))
    found = complete(
        file,
        works(plan, chosen.only or list(PARTS)),
        chosen.data,
        every=every,
        head={"seeds": chosen.seeds, "small": chosen.small, "settings": SETTINGS},
        processes=chosen.processes,
        stored_after=chosen.stored_after,
        go_on=chosen.go_on,
    )
    if missing := [work for work in every if work.name not in found]:
        print(f"{len(missing)} of {len(every)} outcomes are still missing: the page is not written")
        return
    write(pages(plan, found), chosen.out)
    for part in PARTS.values():
        for name, svg in part.drawings(plan, found).items():
            (chosen.out / name).write_text(svg, encoding="utf-8")


def parse_parts(text: str) -> list[str]:
    """Parts by their names. Raises argparse.ArgumentTypeError."""
    if unknown := sorted(set(names := text.split(",")) - PARTS.keys()):
        raise argparse.ArgumentTypeError(f"there is no {unknown[0]!r}; there are {', '.join(PARTS)}")
    return names


def positive(text: str) -> int:
    """1 or more. Raises argparse.ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", type=parse_parts, metavar="NAME,NAME", help=", ".join(PARTS))
    parser.add_argument("--seeds", type=positive, default=5)
    parser.add_argument("--processes", type=positive, default=2)
    parser.add_argument("--small", action="store_true", help="small made-up tables")
    parser.add_argument("--go-on", action="store_true", help="keep outcomes that are stored already")
    parser.add_argument("--stored-after", type=positive, default=5, metavar="TRAININGS", help="how often outcomes are stored")
    return parser


if __name__ == "__main__":
    try:
        main(arguments().parse_args())
    except UsageError as error:
        raise SystemExit(str(error)) from None
