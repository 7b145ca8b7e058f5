"""Train on obfuscated sets of growing size, and see that loss, AUC and weights are those of the plain intersection.

For each security number ξ the active party shows the passive one a set of m = ⌈|I|^(1−ξ)·n_s^ξ⌉
records that holds the |I| shared ones: those alone for ξ = 0, all of the passive party's for 1.
Dummies take part under encryption and change nothing.

Every ξ is a whole run of the product, and its figures are kept in OUT/xi-ξ.json: what is there is
not computed again. Its weights must be those of plaintext regression on the shared records to
10^-6; all ξ begin with the same ones (see comparison.py). In nodes of their own (--nodes) parties
draw their secrets themselves, so their start is not known and only cost is measured.

A column that is 0 in nearly all shared records is normally left out at the passive party
(train.least_rows). How many are depends on the set, and this is about equal curves: here all stay.

    python experiments/asymmetric_mnist/make_data.py MNIST_FOLDER DATA --full
    python -m experiments.asymmetric_mnist.run --data DATA --out OUT --full
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.asymmetric_mnist import curves
from experiments.asymmetric_mnist.comparison import Run, check, gathered, run
from experiments.asymmetric_mnist.halves import Model, shared_rows, tables_of
from experiments.asymmetric_mnist.plaintext import Plaintext
from vfl_node.execution.private import trial_settings
from vfl_node.job import Job
from vfl_node.metrics import classes as metrics
from vfl_node.node.federation import LocalFederation
from vfl_node.privacy.attacks import residuals
from vfl_node.privacy.attacks.residuals import Round
from vfl_node.process.files import write_whole
from vfl_node.process.logs import configure_logs
from vfl_node.terminal import ShownProgress
from vfl_node.training.logistic.config import Logistic

STRONG = 1  # its place behind the weak party
FULL_SIZE, FULL_ITERATIONS = (10_000, 60_000), 30


class Experiment:
    """All runs over one pair of tables.

    Args:
        files: party → CSV file.
        out: where results are kept.
        chosen: the command's options.
    """

    def __init__(self, files: Mapping[str, Path], out: Path, chosen: argparse.Namespace) -> None:
        self._files, self._out, self._chosen = files, out, chosen
        self._tables = tables_of(self.job(0, 1), files)
        self._inputs = {name: table.digest().hex() for name, table in self._tables.items()}
        self.genuine = len(shared_rows(self._tables)["weak"])
        self.strong = len(self._tables["strong"])

    def job(self, xi: float, size: int) -> Job:
        """The job with an obfuscated set of ``size`` records."""
        chosen = self._chosen
        parties = {"active": "weak", "passive": "strong"}
        return Job.model_validate(
            {
                "name": f"mnist-xi-{round(100 * xi):03d}",
                "parties": parties if chosen.flow == "two-party" else parties | {"coordinator": "coordinator"},
                "align": {"protocol": "apsi", "obfuscation": {"size": size}},
                "train": {
                    "algorithm": "logistic",
                    "flow": chosen.flow,
                    "loss": "taylor" if chosen.flow == "coordinator" else "exact",
                    "scaling": "unit",
                    "learning_rate": chosen.learning_rate,
                    "iterations": chosen.iterations,
                    "tolerance": 1e-12 if chosen.flow == "coordinator" else 0,  # else it would not compute the loss
                    "least_rows": 0,
                    "key_bits": chosen.key_bits,
                },
                "evaluate": {"test_fraction": 0, "metrics": ["auc"]},
            }
        )

    def result(self, xi: float) -> dict[str, Any]:
        """The figures for ``xi``: as kept, or from a new run."""
        size = math.ceil(self.genuine ** (1 - xi) * self.strong**xi * (1 - 1e-12))
        job, path = self.job(xi, size), self._out / f"xi-{xi:g}.json"
        about = {"job": job.digest(), "inputs": self._inputs, "nodes": self._chosen.nodes}
        if path.exists():
            kept: dict[str, Any] = json.loads(path.read_text())
            if kept["about"] != about:
                raise SystemExit(f"{path} is of another experiment: choose another --out")
            return kept
        found = self._run(job, self._out / f"xi-{xi:g}")
        result = {"about": about, "xi": xi, "size": size, "genuine": self.genuine} | self._figures(job, found)
        write_whole(path, (json.dumps(result, indent=2) + "\n").encode())
        return result

    def spread(self, xis: list[float]) -> float:
        """The largest difference between any weight of two ξ."""
        models = [Model.load({"weak": self._out / f"xi-{xi:g}", "strong": self._out / f"xi-{xi:g}" / "strong"}) for xi in xis]
        return max(model.distance(models[0]) for model in models)

    def _run(self, job: Job, folder: Path) -> Run:
        chosen = self._chosen
        with ShownProgress(job.name) as shown:
            if not chosen.nodes:
                return run(job, self._files, folder, threads=chosen.threads, on_view=shown.update)
            started = time.monotonic()
            settings = trial_settings(job, self._files, threads=chosen.threads)
            with LocalFederation(job, settings, logs=folder / "logs") as nodes:
                nodes.run(folder, shown.update)
            return gathered(job, {"weak": folder, "strong": folder / "strong"}, time.monotonic() - started)

    def _figures(self, job: Job, found: Run) -> dict[str, Any]:
        assert isinstance(job.train, Logistic)
        figures = {
            "losses": [iteration["loss"] for iteration in found.iterations],
            "aucs": [iteration["auc"] for iteration in found.iterations],
            "seconds": found.iteration_median("seconds"),
            "bytes": found.iteration_median("bytes"),
            "seconds_in_all": found.seconds,
            "seconds_of_alignment": found.report["alignment"]["seconds"],
            "trained": found.model.measure(self._tables, job.train.loss),
            "difference": None,
            "detection": None,
        }
        if not self._chosen.nodes:
            start = Plaintext.from_job(job, self._tables, found.dropped)
            plaintext, losses = start.advance(len(found.iterations))
            figures["difference"] = check(found.model.distance(plaintext.model), f"{job.name}: weights and those of plaintext")
            figures["detection"] = self._detection(start, found.report["alignment"]["rows"])
            check(float(np.abs(np.subtract(figures["losses"], losses)).max()), f"{job.name}: losses and those of plaintext")
        return figures

    def _detection(self, start: Plaintext, size: int) -> float | None:
        """AUC at which the strong party's own gradients tell its genuine rows from dummies; None if there are none.

        The dummies are not the run's but others, as random as they; a dummy changes no gradient.
        """
        strong = self._tables["strong"]
        genuine = shared_rows(self._tables)["strong"]
        others = np.setdiff1d(np.arange(len(strong)), genuine)
        dummies = np.random.default_rng(size).permutation(others)[: size - len(genuine)]
        if not len(dummies):
            return None
        rows = np.concatenate([genuine, dummies])
        columns = start.encoders["strong"].transform(strong).values[rows][:, start.kept[STRONG]]
        rounds = [Round(np.arange(size), gradient[:, 0]) for gradient in start.gradients(STRONG)]
        return metrics.auc(np.arange(size) < len(genuine), residuals.scores(columns, rounds))


def table(results: list[dict[str, Any]]) -> str:
    """The results in Markdown."""
    cost = ["s an iteration", "MB an iteration", "s in all", "of it aligning"]
    names = ["ξ", "m", "\\|I\\|/m", *cost, "max \\|Δθ\\|", "loss", "AUC", "AUC of telling dummies"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for result in results:
        difference = "–" if result["difference"] is None else f"{result['difference']:.1e}"
        detection = "–" if result["detection"] is None else f"{result['detection']:.3f}"
        lines.append(
            f"| {result['xi']:g} | {result['size']:,} | {result['genuine'] / result['size']:.3f} | {result['seconds']:.3g} | "
            f"{result['bytes'] / 1e6:.3g} | {result['seconds_in_all']:.0f} | {result['seconds_of_alignment']:.0f} | "
            f"{difference} | {result['trained']['loss']:.6f} | {result['trained']['auc']:.6f} | {detection} |"
        )
    return "\n".join(lines) + "\n"


def main(chosen: argparse.Namespace) -> None:
    """Run what is not there yet; print a table and draw the curves."""
    configure_logs(quiet=True)
    chosen.out.mkdir(parents=True, exist_ok=True)
    experiment = Experiment({name: chosen.data / f"{name}.csv" for name in ("weak", "strong")}, chosen.out, chosen)
    if chosen.full and (experiment.genuine, experiment.strong) != FULL_SIZE:
        raise SystemExit(f"{chosen.data} is not of the full size: make_data.py --full")
    results = [experiment.result(xi) for xi in chosen.xi]
    if not chosen.nodes:
        weights = check(experiment.spread(chosen.xi), "weights of two ξ")
        losses = check(float(np.ptp([result["losses"] for result in results], axis=0).max()), "losses of two ξ")
        print(f"largest difference between two ξ: of a weight {weights:.1e}, of a loss {losses:.1e}\n")
    print(table(results))
    (chosen.out / "curves.svg").write_text(curves.drawing(results), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with weak.csv and strong.csv")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--full", action="store_true", help=f"the paper's size, {FULL_ITERATIONS} iterations")
    parser.add_argument("--xi", type=float, nargs="+", default=[0, 0.25, 0.5, 0.75, 1])
    parser.add_argument("--iterations", type=int, default=0, help=f"5, or {FULL_ITERATIONS} with --full")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--key-bits", type=int, choices=(2048, 3072, 4096), default=2048)
    parser.add_argument("--flow", choices=("two-party", "coordinator", "coordinator-open-scores"), default="two-party")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--in-process", dest="nodes", action="store_false", default=False, help="all parties in this process (the default)"
    )
    where.add_argument("--nodes", action="store_true", help="a process each, over mutual TLS")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="worker processes of each party")
    options = parser.parse_args()
    options.iterations = options.iterations or (FULL_ITERATIONS if options.full else 5)
    main(options)
