"""Make the tables and figures of FLORIST from real tables, one command for each.

    python -m experiments.florist.run table-1 --out OUT           one of them
    python -m experiments.florist.run all --out OUT               all of them, half an hour on two cores
    python -m experiments.florist.run all --out OUT --small       the same on a made-up table, in seconds

Every trial's outcome is kept in OUT/trials.jsonl; what is there is not computed again. See
README.md beside this file for the data, and docs/experiments for the results.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from experiments.florist.data import SOURCES
from experiments.florist.experiment import Trial, run
from experiments.florist.tables import OUTPUTS, Plan, Results
from vfl_node.process.logs import configure_logs

ROOT = Path(__file__).parents[2]
REAL = tuple(name for name in SOURCES if name not in ("made_up", "continuous"))


def outcomes(wanted: Iterable[Trial], data: Path, kept: Path, processes: int) -> dict[str, dict[str, Any]]:
    """Name → outcome of every trial that is wanted; what ``kept`` lacks is computed and added to it."""
    known = {}
    if kept.exists():
        known = {line["trial"]: line["outcome"] for line in map(json.loads, kept.read_text().splitlines())}
    missing = {trial.name: trial for trial in wanted if trial.name not in known}
    if not missing:
        return known
    started = time.monotonic()
    pool = ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,))
    try:
        running = {pool.submit(run, trial, data): name for name, trial in missing.items()}
        for count, done in enumerate(as_completed(running), 1):
            name = running[done]
            known[name] = done.result()
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"trial": name, "outcome": known[name]}) + "\n")
            if count % 100 == 0 or count == len(running):
                print(f"{count} of {len(running)} trials, {time.monotonic() - started:.0f} s", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    return known


def place(page: str, name: str, table: str) -> str:
    """``page`` with ``table`` between its marks for the output ``name``, if it has any."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    if begin not in page:
        return page
    before, rest = page.split(begin)
    return before + begin + table + end + rest.split(end)[1]


def main(chosen: argparse.Namespace) -> None:
    """Compute what is missing, print the tables, and write all into the folder."""
    configure_logs(quiet=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    plan = Plan(tuple(chosen.names), chosen.seeds, chosen.at_active, chosen.small)
    outputs = OUTPUTS if chosen.output == "all" else {chosen.output: OUTPUTS[chosen.output]}
    wanted = [trial for output in outputs.values() for trial in output.trials(plan)]
    results = Results(plan, outcomes(wanted, chosen.data, chosen.out / "trials.jsonl", chosen.processes))
    for name, output in outputs.items():
        written = output.write(results)
        about = {"data": plan.names, "seeds": plan.seeds, "columns of the active party": plan.at_active}
        parts = {f"{name}.json": json.dumps({"about": about, "by seed": written.values}, indent=1) + "\n"}
        if written.lines:
            title = (output.write.__doc__ or "").splitlines()[0]
            parts[f"{name}.md"] = f"{title}\n\n" + "\n".join(written.lines) + "\n"
            print(parts[f"{name}.md"])
            for path in chosen.page:
                page = place(path.read_text(encoding="utf-8"), name, "\n".join(written.lines) + "\n")
                path.write_text(page, encoding="utf-8")
        parts |= {f"{name}-{data}.svg": drawn for data, drawn in written.drawings.items()}
        for path, text in parts.items():
            for folder in {chosen.out} | ({page.parent for page in chosen.page} if not path.endswith(".md") else set()):
                (folder / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", choices=[*OUTPUTS, "all"])
    parser.add_argument("--out", type=Path, required=True)
    default = Path(os.environ.get("VFL_SHARED_DATA", ROOT.parent / "shared" / "data"))
    parser.add_argument("--data", type=Path, default=default, help="folder of the shared data sets; read in place")
    parser.add_argument("--names", nargs="+", choices=SOURCES, help="which of them")
    parser.add_argument("--seeds", type=int, help="trials of each kind")
    parser.add_argument("--at-active", type=int, default=0, help="columns that the active party has; the paper's has none")
    parser.add_argument(
        "--page",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="Markdown pages that get the tables, between their marks; the rest goes beside them",
    )
    parser.add_argument("--small", action="store_true", help="a made-up table, two seeds, three ratios")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.names = options.names or (["made_up"] if options.small else REAL)
    options.seeds = options.seeds or (2 if options.small else 5)
    main(options)
