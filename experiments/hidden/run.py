"""Training in shares beside FLORIST and beside the same model in the clear, by the share of records that both parties have.

    python -m experiments.hidden.run --data SHARED_DATA_FOLDER --out docs/experiments    40 minutes of one core
    python -m experiments.hidden.run --small --out OUT                                   on a made-up table, in a minute

It writes ``hidden.json``, every outcome by seed, the page ``hidden.md`` and its figure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.hidden.experiment import ATTACKED, EPOCHS, STEPS, TRAIN
from experiments.hidden.page import FIGURE, Results, figure, page
from experiments.hidden.works import Plan
from experiments.stored import complete
from vfl_node.process.logs import configure_logs


def main(chosen: argparse.Namespace) -> None:
    """Run what is wanted, and write values, page and figure."""
    configure_logs(quiet=True)
    plan = Plan(chosen.seeds, chosen.small)
    chosen.out.mkdir(parents=True, exist_ok=True)
    head = {"seeds": plan.seeds, "train": TRAIN, "epochs": EPOCHS, "steps": STEPS, "attacked": ATTACKED}
    found = complete(
        chosen.out / "hidden.json",
        plan.works,
        chosen.data,
        every=plan.works,
        head=head,
        processes=chosen.processes,
        stored_after=10,
        go_on=chosen.go_on,
    )
    results = Results(plan, found)
    (chosen.out / "hidden.md").write_text(page(results), encoding="utf-8")
    (chosen.out / FIGURE).write_text(figure(results), encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--processes", type=int, default=1)
    made.add_argument("--go-on", action="store_true", help="keep the outcomes that OUT/hidden.json has")
    made.add_argument("--small", action="store_true", help="a made-up table")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
