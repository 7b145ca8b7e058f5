"""Table 4 of FedAds (arXiv 2305.08328): what defences of gradients cost, and what is still read of the labels.

    python -m experiments.fedads.run --data SHARED_DATA_FOLDER --out docs/experiments --processes 2
    python -m experiments.fedads.run --small --out OUT          on a made-up table, in a minute or two

It writes ``label-defences.json``, every outcome by seed, the page ``label-defences.md`` and a picture. With ``--go-on``
outcomes that the first has are kept, so that a run can be cut off, or have more seeds later. README.md beside this file says
what is run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.fedads import members, table_4
from experiments.fedads.trials import Plan, works
from experiments.inference.experiment import Expectation, Found
from experiments.inference.run import outcomes

ABOUT = (Path(__file__).with_name("about.md")).read_text(encoding="utf-8")
"""What the page begins with."""

NAME = "label-defences"


def check(plan: Plan, found: Found) -> list[Expectation]:
    """All that was expected."""
    return [*table_4.check(plan, found), *members.check(plan, found)]


def page(plan: Plan, found: Found) -> str:
    """The page, of all outcomes."""
    expected = [
        f"| {one.what} | {one.least:+.3f} | {one.found:+.3f} | {'yes' if one.holds else '**no**'} |"
        for one in check(plan, found)
    ]
    lines = [*table_4.page(plan, found), "", *members.page(plan, found)]
    lines += ["## What was expected", "", "| what | at least | found | holds |", "|---|---|---|---|", *expected, ""]
    lines.append(f"{len(found)} trainings, {plan.seeds} seeds.")
    return ABOUT + "\n" + "\n".join(lines) + "\n"


def main(chosen: argparse.Namespace) -> None:
    """Run what is not kept, and write values, page and picture."""
    plan = Plan(chosen.seeds, chosen.small)
    file = chosen.out / f"{NAME}.json"
    chosen.out.mkdir(parents=True, exist_ok=True)
    kept = json.loads(file.read_text(encoding="utf-8"))["trainings"] if chosen.go_on and file.exists() else {}
    every = works(plan)
    wanted = [work for work in every if work.name not in kept]
    for start in range(0, len(wanted), chosen.stored_after):
        done = outcomes(wanted[start : start + chosen.stored_after], chosen.data, chosen.processes)
        kept |= {name: one["outcome"] for name, one in done.items()}
        _write(file, plan, kept)
    kept = {work.name: kept[work.name] for work in every}
    _write(file, plan, kept)
    file.with_suffix(".md").write_text(page(plan, kept), encoding="utf-8")
    for name, svg in table_4.drawings(plan, kept).items():
        (chosen.out / name).write_text(svg, encoding="utf-8")


def _write(file: Path, plan: Plan, kept: Mapping[str, Any]) -> None:
    lines = [f"  {json.dumps(name)}: {json.dumps(kept[name], sort_keys=True)}" for name in sorted(kept)]
    head = f'{{\n "seeds": {plan.seeds},\n "small": {json.dumps(plan.small)},\n "trainings": {{\n'
    file.write_text(head + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a made-up table, one strength of each defence")
    parser.add_argument("--go-on", action="store_true", help="keep outcomes that are stored already")
    parser.add_argument("--stored-after", type=int, default=120, metavar="TRAININGS", help="how often outcomes are stored")
    main(parser.parse_args())
