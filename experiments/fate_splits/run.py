"""Regressions over FATE's splits, where both parties have the same rows: every flow and loss beside plaintext.

PSI aligns: nothing is obfuscated, the symmetric case. Everything is measured on the rows held out.

    python experiments/fate_splits/make_data.py SHARED_DATA_FOLDER DATA
    python -m experiments.fate_splits.run --data DATA --out OUT
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from experiments.asymmetric_mnist.comparison import changed, compared, markdown, references
from experiments.asymmetric_mnist.halves import tables_of
from vfl_node.job import Job
from vfl_node.process.logs import configure_logs

TRAIN = {
    "breast": {"classes": 2, "learning_rate": 0.5, "iterations": 30},
    "vehicle": {"classes": 4, "learning_rate": 0.5, "iterations": 100},
    "epsilon": {"classes": 2, "learning_rate": 0.2, "iterations": 20},
}
"""Data set → what is particular to it. The Taylor loss diverges at rates much above these, the exact one would not."""

RUNS = (("two-party", "exact"), ("two-party", "taylor"), ("coordinator", "taylor"))


def job_of(name: str) -> Job:
    """The job over data set ``name``."""
    return Job.model_validate(
        {
            "name": name,
            "parties": {"active": "guest", "passive": "host"},
            "align": {"protocol": "psi"},
            "train": {"algorithm": "logistic", "key_bits": 2048, **TRAIN[name]},
            "evaluate": {"test_fraction": 0, "metrics": ["auc", "accuracy"]},
        }
    )


def main(chosen: argparse.Namespace) -> None:
    """Run the chosen data sets; print a table of each."""
    configure_logs(quiet=True)
    results = {}
    for name in chosen.names:
        job = changed(job_of(name), **({"iterations": chosen.iterations} if chosen.iterations else {}))
        train, test = (
            {party: chosen.data / name / part / f"{party}.csv" for party in ("guest", "host")} for part in ("train", "test")
        )
        held_out, out = tables_of(job, test), chosen.out / name
        lines = [
            compared(changed(job, flow=flow, loss=loss), train, held_out, out / f"{flow}-{loss}", threads=chosen.threads)
            for flow, loss in RUNS
        ]
        results[name] = [
            *lines,
            *(line for loss in ("exact", "taylor") for line in references(changed(job, loss=loss), train, held_out)),
        ]
        print(f"{name}\n\n{markdown(results[name])}")
        (chosen.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that make_data.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", nargs="+", choices=list(TRAIN), default=list(TRAIN))
    parser.add_argument("--iterations", type=int, help="instead of each data set's own number")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="worker processes of each party")
    main(parser.parse_args())
