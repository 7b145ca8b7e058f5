"""Train a lender's and a credit bureau's regression with the exact and the Taylor loss, and measure both.

Beside the product's runs: the same regression in plaintext, 3,000 iterations of it, and the
lender's own. All are measured on the 27,000 people that the lender does not know.

    python examples/credit_scoring/make_data.py DEFAULT_CREDIT_FOLDER DATA
    python -m experiments.credit_scoring.run --data DATA --out OUT
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from experiments.asymmetric_mnist.comparison import changed, compared, markdown, references
from experiments.asymmetric_mnist.halves import tables_of
from vfl_node.job import load_job
from vfl_node.process.logs import configure_logs

JOB = Path(__file__).parents[2] / "examples" / "credit_scoring" / "job.yaml"


def main(chosen: argparse.Namespace) -> None:
    """Run both losses and print a table."""
    configure_logs(quiet=True)
    job = load_job(JOB)
    files = {name: chosen.data / f"{name}.csv" for name in ("lender", "bureau")}
    others = tables_of(job, files | {"lender": chosen.data / "others.csv"})
    results = []
    for loss in ("exact", "taylor"):
        trial = changed(job, loss=loss, iterations=chosen.iterations)
        results += [
            compared(trial, files, others, chosen.out / loss, threads=chosen.threads),
            *references(trial, files, others),
        ]
    (chosen.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(markdown(results))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that make_data.py wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="worker processes of each party")
    main(parser.parse_args())
