"""What a second and a third party add: adult's columns over three parties.

The bank has the labels. Each run is a job of the same three parties, over the same people: with a seed it has the same keys and
the same split, so results of a seed are paired. A party that is left out has a constant instead of its columns. *One table* is
the model that the bank would have alone if it had all columns, with the same kind of network.

    python -m experiments.several_parties.run --data SHARED_DATA_FOLDER --out docs/experiments

It writes ``several_parties.json``, all values by seed, and the page ``several_parties.md``; about 10 minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.several_parties.data import ACTIVE, COLUMNS, PASSIVE, Columns, Person, read_people, write_tables
from vfl_node import run
from vfl_node.training.intervals import student_t

SEEDS, PEOPLE = 10, 4_000

JOB: Mapping[str, Any] = {
    "parties": {"active": ACTIVE, "passive": list(PASSIVE)},
    "align": {"protocol": "psi"},
    "train": {"epochs": 20, "batch_size": 128},
    "evaluate": {"test_fraction": 0.3, "contributions": True},
}

EVERYTHING = tuple(name for names in COLUMNS.values() for name in names)

RUNS: Mapping[str, Columns] = {
    "bank, employer and census": COLUMNS,
    "bank and employer": {**COLUMNS, "census": ()},
    "bank and census": {**COLUMNS, "employer": ()},
}
"""Model → the columns of each party."""

ONE_TABLE: Columns = {"bank": EVERYTHING, "employer": (), "census": ()}

MODELS = ("bank alone", "bank and employer", "bank and census", "bank, employer and census", "one table")

PAIRS = (
    ("bank and employer", "bank alone"),
    ("bank and census", "bank alone"),
    ("bank, employer and census", "bank and employer"),
    ("bank, employer and census", "bank and census"),
    ("bank, employer and census", "one table"),
)

Scores = dict[str, float]


def measured(people: Sequence[Person], seed: int, folder: Path, job: Mapping[str, Any] = JOB) -> dict[str, Scores]:
    """``auc`` (model → AUC on the same held-out people) and ``without`` (party → how much lower it is without its columns)."""

    def trained(columns: Columns) -> Any:
        files = write_tables(people, columns, folder)
        passive = {party: files[party] for party in PASSIVE}
        return run(job, active=files[ACTIVE], passive=passive, seed=seed, progress=False)

    results = {model: trained(columns) for model, columns in RUNS.items()}
    whole = results["bank, employer and census"]
    return {
        "auc": {
            **{model: result.metrics["auc"] for model, result in results.items()},
            "bank alone": whole.local_metrics["auc"],
            "one table": trained(ONE_TABLE).local_metrics["auc"],
        },
        "without": {
            party: contribution["auc"]["mean"]
            for party, contribution in whole.report.figures["training"]["split"]["contributions"].items()
        },
    }


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over seeds (Student's t)."""
    half = student_t(0.95, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.4f} [{np.mean(values) - half:+.4f}, {np.mean(values) + half:+.4f}]"


def page(results: Sequence[Mapping[str, Scores]]) -> str:
    """The page with its tables."""
    lines = ["| columns of | AUC |", "|---|---|"]
    for model in MODELS:
        values = [result["auc"][model] for result in results]
        lines.append(f"| {model} | {np.mean(values):.4f} ± {np.std(values, ddof=1):.4f} |")
    lines += ["", "| difference | AUC |", "|---|---|"]
    for one, other in PAIRS:
        lines.append(f"| {one} − {other} | {interval([result['auc'][one] - result['auc'][other] for result in results])} |")
    lines += ["", "| without the columns of | AUC falls by |", "|---|---|"]
    for party in COLUMNS:
        lines.append(f"| {party} | {interval([result['without'][party] for result in results])} |")
    return ABOUT + "\n".join(lines) + "\n"


ABOUT = """\
# One, two and three parties

The columns of `adult` are divided over three parties (experiments/several_parties/data.py). A bank has the labels (income
above 50,000 dollars), age, working hours, race and country. An employer has class of work, education and occupation. A census
office has marital status, relationship, sex, capital gain and loss. There are 4,000 people, aligned by `psi`. The tables have
the AUC on the three tenths that each run holds out, ten seeds: mean ± standard deviation. Paired differences have the 95 %
interval of their mean (Student's t).

    python -m experiments.several_parties.run --data SHARED_DATA_FOLDER --out docs/experiments

All runs of a seed hold out the same people. They are jobs of the same three parties, and a party that is left out has a
constant instead of its columns. *Bank alone* is what its report compares with. *One table* is the network that the bank would
train alone if it had all columns, which three organisations cannot do. The last table is what the report of the three says of
each party (`evaluate.contributions`): how much lower the AUC is if that party's part of the rows is permuted.

"""


def main(chosen: argparse.Namespace) -> None:
    """Run all seeds, and write values and page."""
    people = read_people(chosen.data, chosen.people)
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(chosen.seeds):
            results.append(measured(people, seed, Path(scratch)))
            print(seed, {model: round(auc, 4) for model, auc in results[-1]["auc"].items()}, flush=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"people": chosen.people, "seeds": results}, indent=2, sort_keys=True)
    (chosen.out / "several_parties.json").write_text(text + "\n", encoding="utf-8")
    (chosen.out / "several_parties.md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    main(parser.parse_args())
