"""Tables 3 and 4 of FedAds (arXiv 2305.08328): rows without a partner; defences of labels, and what is still read of these.

    python -m experiments.fedads.run --data SHARED_DATA_FOLDER --out docs/experiments --processes 2
    python -m experiments.fedads.run --small --out OUT          on made-up tables, in a minute or two
    python -m experiments.fedads.run --table 3 …                one of them

It writes ``unaligned.json`` and ``label-defences.json``, every outcome by seed, pages beside each and pictures. With
``--go-on`` outcomes that are stored are kept, so that a run can be cut off, or have more seeds later. README.md beside this
file says what is run.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from experiments.fedads import label_pages, members, outside, row_pages, table_3, table_4, trials
from experiments.fedads.outside import RowsPlan
from experiments.fedads.trials import Plan
from experiments.inference.experiment import Expectation, Found, Work
from experiments.stored import complete
from vfl_node.errors import UsageError

NAME = "label-defences"


class Tables(Protocol):
    """One of the paper's tables."""

    @property
    def name(self) -> str:
        """What its pages and its file of values are called."""

    @property
    def more_seeds(self) -> str:
        """What the page says of seeds besides."""

    @property
    def works(self) -> list[Work]:
        """What has to be run."""

    def check(self, found: Found) -> list[Expectation]:
        """What was expected, and what was found."""

    def pages(self, found: Found, seeds: int) -> dict[str, str]:
        """File name → page."""

    def drawings(self, found: Found) -> dict[str, str]:
        """File name → SVG."""


@dataclass(frozen=True)
class Rows:
    """Table 3."""

    plan: RowsPlan
    name: str = "unaligned"
    about: str = "about_rows.md"
    more_seeds: str = ", or as many as a heading says"

    def pages(self, found: Found, seeds: int) -> dict[str, str]:
        """As :class:`Tables`."""
        return row_pages.pages(page(self, found, seeds), small=self.plan.small)

    @property
    def works(self) -> list[Work]:
        """As :class:`Tables`."""
        return outside.works(self.plan)

    def check(self, found: Found) -> list[Expectation]:
        """As :class:`Tables`."""
        return table_3.check(self.plan, found)

    def lines(self, found: Found) -> list[str]:
        """As :class:`Tables`."""
        return table_3.page(self.plan, found)

    def drawings(self, found: Found) -> dict[str, str]:
        """As :class:`Tables`."""
        return table_3.drawings(self.plan, found)


@dataclass(frozen=True)
class Labels:
    """Table 4."""

    plan: Plan
    name: str = NAME
    more_seeds: str = ""

    @property
    def works(self) -> list[Work]:
        """As :class:`Tables`."""
        return trials.works(self.plan)

    def check(self, found: Found) -> list[Expectation]:
        """As :class:`Tables`."""
        return [*table_4.check(self.plan, found), *members.check(self.plan, found)]

    def pages(self, found: Found, seeds: int) -> dict[str, str]:
        """As :class:`Tables`."""
        return label_pages.pages(self.plan, found, self.name, expectations(self, found, seeds))

    def drawings(self, found: Found) -> dict[str, str]:
        """As :class:`Tables`."""
        return table_4.drawings(self.plan, found)


def expectations(tables: Tables, found: Found, seeds: int) -> list[str]:
    """What was expected, and in the last line how many trainings there were."""
    expected = [
        f"| {one.what} | {one.least:+.3f} | {one.found:+.3f} | {'yes' if one.holds else '**no**'} |"
        for one in tables.check(found)
    ]
    head = ["## What was expected", "", "| what | at least | found | holds |", "|---|---|---|---|"]
    return [*head, *expected, "", f"{len(found)} trainings, {seeds} seeds{tables.more_seeds}."]


def page(rows: Rows, found: Found, seeds: int) -> str:
    """The page of Table 3, of all outcomes."""
    about = Path(__file__).with_name(rows.about).read_text(encoding="utf-8")
    return about + "\n" + "\n".join([*rows.lines(found), *expectations(rows, found, seeds)]) + "\n"


def main(chosen: argparse.Namespace) -> None:
    """Run what is not kept, and write values, pages and pictures."""
    chosen.out.mkdir(parents=True, exist_ok=True)
    every: dict[str, Tables] = {
        "3": Rows(RowsPlan(chosen.seeds, chosen.small)),
        "4": Labels(Plan(chosen.seeds, chosen.small)),
    }
    for number, lines in every.items():
        if chosen.table in (None, number):
            _run(lines, chosen)


def _run(tables: Tables, chosen: argparse.Namespace) -> None:
    file = chosen.out / f"{tables.name}.json"
    kept = complete(
        file,
        tables.works,
        chosen.data,
        every=tables.works,
        head={"seeds": chosen.seeds, "small": chosen.small},
        processes=chosen.processes,
        stored_after=chosen.stored_after,
        go_on=chosen.go_on,
    )
    for name, text in {**tables.pages(kept, chosen.seeds), **tables.drawings(kept)}.items():
        (chosen.out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", choices=["3", "4"], help="only this one; default: both")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a made-up table, one strength of each defence")
    parser.add_argument("--go-on", action="store_true", help="keep outcomes that are stored already")
    parser.add_argument("--stored-after", type=int, default=120, metavar="TRAININGS", help="how often outcomes are stored")
    try:
        main(parser.parse_args())
    except UsageError as error:
        raise SystemExit(str(error)) from None
