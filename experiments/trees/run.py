"""Boosted trees in shares beside scikit-learn's, over psi and psu, and what a revealed model tells.

    python -m experiments.trees.run --data SHARED_DATA_FOLDER --out docs/experiments    about 20 minutes of one core
    python -m experiments.trees.run --out OUT                                           on the made-up tables alone, in minutes

It writes ``trees.json``, every outcome by seed, and the page ``trees.md``. A table whose file is not there is left out, and the
command says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.inference.experiment import Work, interval
from experiments.stored import complete
from experiments.trees.experiment import CONTROL, DEFAULTS, MEMORISING, SHARES, TRAIN, Plan
from vfl_node.process.logs import configure_logs

REAL = {"adult": "adult", "default_credit": "default_credit", "criteo": "criteo_10k"}
"""Table → its folder among the shared data sets."""

SCORING, MADE_UP = "scoring", "made_up"
ABOUT = Path(__file__).with_name("about.txt")


def present(folder: Path) -> list[str]:
    """Names of the tables that there are; prints which are left out."""
    found = [name for name, place in REAL.items() if (folder / place).is_dir()]
    for name in REAL:
        if name not in found:
            print(f"left out: {name}, which is not in {folder}")
    return [*found, SCORING, MADE_UP]


def page(plan: Plan, found: Mapping[str, Any]) -> str:
    """The page, of stored outcomes."""
    compared, attacked = [], []
    for data in plan.names:
        for share in SHARES:
            outcomes = [found[work.name] for work in plan.compared(data, share) if work.name in found]
            if not outcomes:
                continue
            aucs = {way: np.array([outcome["auc"][way] for outcome in outcomes]) for way in ("psu", "psi", "scikit-learn")}
            apart = [interval(aucs[way] - aucs["scikit-learn"], 4) for way in ("psu", "psi")]
            shared = round(np.mean([outcome["shared"] for outcome in outcomes]))
            means = [f"{aucs[way].mean():.4f}" for way in ("psu", "psi", "scikit-learn")]
            worst = f"{np.abs(aucs['psu'] - aucs['psi']).max():.4f}"
            compared.append(
                f"| {data} | {share:.0%} | {shared:,} | {len(outcomes)} | {' | '.join(means)} | {' | '.join(apart)} | {worst} |"
            )
        attacked += _guessed(f"{data}, default settings", plan.attacked(data), found)
    attacked += _guessed("control: leaves of single records, labels by coins", plan.attacked(MADE_UP, control=True), found)
    text = ABOUT.read_text(encoding="utf-8")
    return text.format(seeds=plan.seeds, compared="\n".join(compared), attacked="\n".join(attacked), **TRAIN, **_sizes(CONTROL))


def _guessed(what: str, works: Sequence[Work], found: Mapping[str, Any]) -> list[str]:
    guesses = [found[work.name]["auc"] for work in works if work.name in found]
    return [f"| {what} | {len(guesses)} | {interval(guesses)} | {max(guesses):.3f} |"] if guesses else []


def _sizes(control: Mapping[str, Any]) -> dict[str, Any]:
    return {"few": control["rows"]}


def main(chosen: argparse.Namespace) -> None:
    """Run what is wanted, and write values and page."""
    configure_logs(quiet=True)
    plan = Plan(present(chosen.data), chosen.seeds)
    chosen.out.mkdir(parents=True, exist_ok=True)
    found = complete(
        chosen.out / "trees.json",
        plan.works,
        chosen.data,
        every=plan.works,
        head={"seeds": plan.seeds, "train": TRAIN, "attacked": DEFAULTS, "control": MEMORISING},
        processes=chosen.processes,
        stored_after=1,
        go_on=chosen.go_on,
    )
    (chosen.out / "trees.md").write_text(page(plan, found), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--seeds", type=int, default=5)
    made.add_argument("--processes", type=int, default=1)
    made.add_argument("--go-on", action="store_true", help="keep the outcomes that OUT/trees.json has")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
