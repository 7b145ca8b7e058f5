"""What a peer rebuilds from embeddings: the tables and figures of arXiv 2104.14383 on public tables.

    python -m experiments.inference.run --data SHARED_DATA_FOLDER --out docs/experiments
    python -m experiments.inference.run --data SHARED_DATA_FOLDER --out docs/experiments --only table-2,figure-2
    python -m experiments.inference.run --small --out OUT          on made-up tables, in a minute

It writes ``inference.json``, every outcome by seed, the page ``inference.md`` and its pictures. What ``--only`` leaves out
stays in the first as it is, and the page is written anew from all of it. README.md beside this file says what is run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import torch

from experiments.inference import cost, digits, figure_2, figure_3, figure_4, table_2, table_5, tables_3_4
from experiments.inference.experiment import Experiment, Found, Plan, Work
from experiments.pages import Page, divide, write
from vfl_node.process.logs import configure_logs

MODULES = {
    "table-2": table_2,
    "figure-2": figure_2,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "tables-3-4": tables_3_4,
    "table-5": table_5,
    "images": digits,
    "cost": cost,
}

EXPERIMENTS: Mapping[str, Experiment] = {name: cast("Experiment", module) for name, module in MODULES.items()}
"""Name on the command line → module, in the order of the page."""

ABOUT = (Path(__file__).with_name("about.md")).read_text(encoding="utf-8")
"""What the page begins with."""


def outcomes(
    works: Sequence[Work], shared: Path, processes: int, told: Callable[[str, Any], None] = lambda name, outcome: None
) -> dict[str, Any]:
    """Name → outcome and seconds of each work; works of the same name are run once. Each outcome is ``told`` at once."""
    wanted = {work.name: work for work in works}
    found = {}
    started = time.monotonic()
    with ProcessPoolExecutor(processes, get_context("spawn"), _begin) as pool:
        running = {pool.submit(_timed, work, shared): name for name, work in wanted.items()}
        for count, done in enumerate(as_completed(running), 1):
            found[running[done]] = done.result()
            told(running[done], found[running[done]]["outcome"])
            if count % 10 == 0 or count == len(running):
                print(f"{count} of {len(running)}, {time.monotonic() - started:.0f} s", flush=True)
    return found


def _begin() -> None:
    torch.set_num_threads(1)
    configure_logs(quiet=True)


def _timed(work: Work, shared: Path) -> dict[str, Any]:
    started = time.process_time()
    return {"outcome": work.run(shared), "seconds": round(time.process_time() - started, 1)}


def page(plan: Plan, kept: Mapping[str, Mapping[str, Any]]) -> str:
    """All of the pages, as one, of the experiments that are kept."""
    lines, expected = [], []
    for name, experiment in EXPERIMENTS.items():
        if name not in kept:
            continue
        found, seconds = results(kept[name])
        lines += [f"## {experiment.TITLE}", "", *experiment.page(plan, found), ""]
        lines += [f"{len(found)} trainings and their attacks, {seconds / 60:.0f} minutes of one core.", ""]
        expected += [
            f"| {name} | {one.what} | {one.least:+.3f} | {one.found:+.3f} | {'yes' if one.holds else '**no**'} |"
            for one in experiment.check(plan, found)
        ]
    head = ["## What was expected", "", "| of | what | at least | found | holds |", "|---|---|---|---|---|", *expected, ""]
    return ABOUT + "\n" + "\n".join([*head, *lines]).rstrip() + "\n"


BESIDE = (
    Page(
        "inference-attacks",
        "Attacks on embeddings without a defence",
        "How well a peer rebuilds columns if nothing is done against it. For whoever judges the risk.",
        ("Table 2", "Figure 2"),
    ),
    Page(
        "inference-defences",
        "Defences of embeddings",
        "What defences hide, and what they cost. For whoever chooses a defence.",
        ("Figure 3", "Figure 4", "Tables 3 and 4"),
    ),
    Page(
        "inference-others",
        "Attacks by three parties and on images, and the cost of a defended step",
        "Further attacks on embeddings, and times. For whoever judges the risk.",
        ("Table 5", "Images", "Cost of"),
    ),
)
"""Pages beside the first one."""


def pages(plan: Plan, kept: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """File → page of all experiments that are kept; without the short pages if some are missing."""
    whole = page(plan, kept)
    return divide(whole, "inference", BESIDE) if kept.keys() == EXPERIMENTS.keys() else {"inference.md": whole}


def results(kept: Mapping[str, Any]) -> tuple[Found, float]:
    """Outcomes by name, and seconds of all together, of what is kept of one experiment."""
    return {name: one["outcome"] for name, one in kept.items()}, sum(one["seconds"] for one in kept.values())


def main(chosen: argparse.Namespace) -> None:
    """Run what is wanted, and write values, page and pictures."""
    plan = Plan(chosen.seeds, chosen.small)
    file = chosen.out / "inference.json"
    kept = json.loads(file.read_text(encoding="utf-8"))["experiments"] if chosen.only and file.exists() else {}
    names = chosen.only.split(",") if chosen.only else list(EXPERIMENTS)
    works = {name: EXPERIMENTS[name].works(plan) for name in names}
    found = outcomes([work for some in works.values() for work in some], chosen.data, chosen.processes)
    kept |= {name: {work.name: found[work.name] for work in some} for name, some in works.items()}
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"seeds": plan.seeds, "small": plan.small, "experiments": kept}, indent=1, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")
    write(pages(plan, kept), chosen.out)
    for name in names:
        for drawing, svg in EXPERIMENTS[name].drawings(plan, results(kept[name])[0]).items():
            (chosen.out / drawing).write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", metavar="NAME,NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="made-up tables")
    main(parser.parse_args())
