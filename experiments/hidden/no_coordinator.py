"""What two parties without a coordinator lose in accuracy: batches of whole blocks, and noise that each of them draws in full.

    python -m experiments.hidden.no_coordinator --data SHARED_DATA_FOLDER --out docs/experiments    13 minutes of two cores
    python -m experiments.hidden.no_coordinator --out OUT                                           on made-up loans alone

It writes ``hidden-no-coordinator.json``, every outcome by seed, and the page ``hidden-no-coordinator.md``. A table whose file
is not there is left out, and the command says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.hidden.emulated import BATCHES, EPSILONS, PROTOCOLS, blocks, noise
from experiments.inference.experiment import Work
from experiments.stored import complete
from experiments.trees.run import MADE_UP, present
from vfl_node.process.logs import configure_logs
from vfl_node.training.intervals import NORMAL

ABOUT = Path(__file__).with_name("no_coordinator.txt")
NAME = "hidden-no-coordinator"
WAYS = ("none", "dealer", "parties", "slower", "known")


@dataclass(frozen=True)
class Plan:
    """Which trainings there are.

    Attributes:
        names: of the tables.
        seeds: of each training.
    """

    names: Sequence[str]
    seeds: int

    def works(self, data: str, protocol: str) -> list[tuple[Work, Work]]:
        """What each seed tells of blocks, and of noise."""
        each = [{"data": data, "protocol": protocol, "seed": seed} for seed in range(self.seeds)]
        return [(Work(blocks, arguments), Work(noise, arguments)) for arguments in each]

    @property
    def every(self) -> list[Work]:
        """All of them."""
        return [work for data in self.names for protocol in PROTOCOLS for pair in self.works(data, protocol) for work in pair]


def areas_of_batches(plan: Plan, found: Mapping[str, Any], data: str, protocol: str, batch: int) -> dict[str, NDArray[Any]]:
    """Way to make batches → AUC by seed."""
    each = [found[one.name][str(batch)] for one, _ in plan.works(data, protocol)]
    return {way: np.array([areas[way] for areas in each]) for way in each[0]}


def figures_of_noise(
    plan: Plan, found: Mapping[str, Any], data: str, protocol: str, epsilon: float, metric: str
) -> dict[str, NDArray[Any]]:
    """Way to train → AUC or loss by seed."""
    each = [found[other.name][str(epsilon)] for _, other in plan.works(data, protocol)]
    return {way: np.array([figures[way][metric] for figures in each]) for way in WAYS}


def page(plan: Plan, found: Mapping[str, Any]) -> str:
    """The page, of stored outcomes."""
    rows: dict[str, list[str]] = {"blocks": [], "auc": [], "loss": [], "measured": []}
    for data, protocol in ((data, protocol) for data in plan.names for protocol in PROTOCOLS):
        for batch in BATCHES:
            areas = areas_of_batches(plan, found, data, protocol, batch)
            apart = [("again", "rows"), ("blocks", "rows"), ("filled", "rows"), ("blocks", "filled")]
            cells = [f"{areas['rows'].mean():.4f}", *(difference(areas[one], areas[other]) for one, other in apart)]
            rows["blocks"].append(f"| {data}, {protocol} | {batch:,} | {' | '.join(cells)} |")
        for epsilon in EPSILONS:
            each = [found[other.name][str(epsilon)] for _, other in plan.works(data, protocol)]
            head = f"| {data}, {protocol} | {each[0]['shared']:,} | {epsilon:g}"
            for metric in ("auc", "loss"):
                of_way = figures_of_noise(plan, found, data, protocol, epsilon, metric)
                means = [f"{of_way[way].mean():.4f}" for way in ("none", "dealer", "parties")]
                apart = [("parties", "dealer"), ("slower", "parties"), ("known", "parties")]
                cells = [*means, *(difference(of_way[one], of_way[other]) for one, other in apart)]
                if metric == "auc":
                    cells += [_descent(*each[0][way]["descent"]) for way in ("dealer", "slower", "known")]
                rows[metric].append(f"{head} | {' | '.join(cells)} |")
            measured = [[one["measured"][draws] for one in each if one["measured"][draws]] for draws in ("1", "2")]
            noised = [np.mean(squares, axis=0) for squares in measured]
            wide = [f"{NORMAL * square**0.5:.4f}" for square in (noised[0][0], noised[1][0], noised[1][1])]
            rows["measured"].append(f"{head} | {' | '.join(wide)} |")
    text = ABOUT.read_text(encoding="utf-8")
    return text.format(seeds=plan.seeds, **{name: "\n".join(lines) for name, lines in rows.items()})


def difference(one: NDArray[Any], other: NDArray[Any]) -> str:
    """Mean of the difference by seed, and its standard error."""
    gap = one - other
    return f"{gap.mean():+.4f} ± {gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else 0:.4f}"


def _descent(steps: int, momentum: float, rate: float) -> str:
    return f"{steps}, {momentum:g}, {rate:g}"


def main(chosen: argparse.Namespace) -> None:
    """Run all, and write values and page."""
    configure_logs(quiet=True)
    plan = Plan([name for name in present(chosen.data) if name != MADE_UP], chosen.seeds)
    chosen.out.mkdir(parents=True, exist_ok=True)
    found = complete(
        chosen.out / f"{NAME}.json",
        plan.every,
        chosen.data,
        every=plan.every,
        head={"seeds": plan.seeds},
        processes=chosen.processes,
        stored_after=50,
        go_on=chosen.go_on,
    )
    (chosen.out / f"{NAME}.md").write_text(page(plan, found), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--seeds", type=int, default=50)
    made.add_argument("--processes", type=int, default=2)
    made.add_argument("--go-on", action="store_true", help="keep the outcomes that OUT has")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
