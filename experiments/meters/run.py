"""Do the meters of labels keep up with an attacker? Defence by table by what is known, after one training and after ten.

An attacker outside of the product (attacker.py) has what a passive party has, own columns included, and tries many ways with
scikit-learn; the best counts. Beside it stands the meter of the active party's report, which lacks these columns. Ten trainings
are ten repeats of one job, each with other rows held out.

    python -m experiments.meters.run --data SHARED_DATA_FOLDER --out docs/experiments --processes 2

It writes ``meters.json``, every outcome by seed, and the page ``meters.md``. ``--small`` runs one seed of the two tables that
are made up, with two repeats; ``--go-on`` keeps outcomes that are stored.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.fedads.data import ACTIVE, PASSIVE
from experiments.fedads.training import Done, train
from experiments.inference.experiment import Found, Work, interval, mean, table
from experiments.meters.attacker import Floats, Taken, blind, figure, informed, score_together
from experiments.meters.data import TABLES, TRAINED, Problem, values
from experiments.stored import complete
from vfl_node.privacy.labels.meter import ADDED_UP
from vfl_node.privacy.labels.words import describe_known
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

NAME = "meters"

DEFENCES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "dp 1.2": {"name": "dp", "max_grad_norm": 1.0, "noise_multiplier": 1.2},
    "isotropic 4": {"name": "isotropic", "noise": 4.0},
    "maxnorm": {"name": "maxnorm"},
    "marvell 8": {"name": "marvell", "power": 8.0},
    "mixpro .3": {"name": "mixpro", "goal": 0.3, "share": 0.6},
    "randomised-labels 1": {"name": "randomised-labels", "epsilon": 1.0},
}
"""Name → entry of ``defences`` of the active node."""

TARGET_RANGE = [-8.0, 8.0]
"""Range of made-up numbers, where a defence wants to know it."""

OF_TWO_CLASSES = ("marvell 8",)
"""Defences that a job with other labels refuses."""

EPOCHS, REPEATS = 10, 10

WITHIN = 0.02
"""How far a meter may be below the attacker."""


def meters(shared: Path, *, data: str, defence: str, seed: int, repeats: int) -> Any:
    """One job.

    Returns:
        ``metric`` of the joint model, and ``attacker`` and ``meter``: ``blind``, ``informed`` and ``together`` (all repeats, of
        an attacker that knows no label) → figure.
    """
    problem = TABLES[data](shared, seed)
    settings: dict[str, Any] = {"epochs": EPOCHS}
    settings |= {"classes": problem.classes} if problem.classes else {"task": "regression"}
    entry = dict(DEFENCES[defence])
    if not problem.classes and entry.get("name") == "randomised-labels":
        entry["target_range"] = TARGET_RANGE
    done = train(
        problem.cut,
        seed,
        settings=settings,
        defences=[entry] if entry else [],
        recorded=True,
        repeats=repeats,
        metrics=[problem.metric],
    )
    taken = _collect(done, repeats)
    columns, labels = values(problem.cut.tables[PASSIVE]), np.asarray(problem.cut.tables[ACTIVE].labels, dtype=np.float64)
    return {
        "metric": round(float(done.results.metrics[problem.metric] or 0.0), 5),
        "attacker": {name: round(value, 4) for name, value in _attack(problem, taken, columns, labels, seed).items()},
        "meter": {name: round(value, 4) for name, value in _read_meters(done).items()},
    }


def _attack(problem: Problem, taken: Sequence[Taken], columns: Any, labels: Any, seed: int) -> dict[str, float]:
    first, classes = taken[0], problem.classes
    scores = [blind(training, columns[training.rows], classes) for training in taken]
    own, true = columns[first.rows], labels[first.rows]
    return {
        "blind": max(figure(true, score, classes) for score in scores[0].values()),
        "informed": informed(first, own, true, classes, seed),
        "together": score_together(scores, [training.rows for training in taken], labels, classes),
    }


def _read_meters(done: Done) -> dict[str, float]:
    """Meters of the first repeat, the largest of all epochs, as the report has it; and of all repeats."""
    every = done.trained[ACTIVE].audits.labels
    known = [(name, value) for epoch in done.labels for name, value in epoch.items() if value is not None]
    return {
        "blind": max(value for name, value in known if describe_known(name) == "nothing"),
        "informed": max(value for _, value in known),
        "together": max(
            every.get(ADDED_UP) or 0.0, *(value or 0.0 for name, value in every.items() if describe_known(name) == "nothing")
        ),
    }


def _collect(done: Done, repeats: int) -> list[Taken]:
    """What the passive party has, of each repeat; rows of its table are shared positions here."""
    sent: dict[Any, list[Floats]] = {kind: [] for kind in (training_pb2.Embedding, training_pb2.Gradient)}
    for kind, found in sent.items():
        sender = PASSIVE if kind is training_pb2.Embedding else ACTIVE
        for message in done.recorder.messages(kind, sender=sender):
            found.append(codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape)).double().numpy())
    gradients = sent[training_pb2.Gradient]
    of_epoch = len(gradients) // (repeats * EPOCHS)
    apart = (len(sent[training_pb2.Embedding]) - len(gradients)) // repeats  # embeddings of rows held out, at the end of each
    trainings = []
    for repeat in range(repeats):
        epochs = []
        for epoch in range(EPOCHS):
            first = (repeat * EPOCHS + epoch) * of_epoch
            steps = range(first, first + of_epoch)
            rows = np.concatenate([done.steps[step] for step in steps])
            order = np.argsort(rows)
            number = np.concatenate([np.full(len(done.steps[step]), step) for step in steps])
            grads = np.concatenate([gradients[step] * len(done.steps[step]) for step in steps])
            embedded = np.concatenate([sent[training_pb2.Embedding][step + repeat * apart] for step in steps])
            epochs.append((rows[order], grads[order], embedded[order], number[order]))
        rows, *_ = epochs[0]
        stacked = (np.stack([epoch[part] for epoch in epochs]) for part in (1, 2, 3))
        trainings.append(Taken(rows, *stacked))
    return trainings


def works(seeds: int, *, small: bool) -> list[Work]:
    """Everything that has to be run, all of a seed together."""
    every = []
    for seed in range(1 if small else seeds):
        for data in ("four classes", "numbers") if small else TABLES:
            for defence in ("none", "dp 1.2") if small else DEFENCES:
                if defence not in OF_TWO_CLASSES or data in ("adult", "default_credit"):
                    arguments = {"data": data, "defence": defence, "seed": seed, "repeats": 2 if small else REPEATS}
                    every.append(Work(meters, arguments))
    return every


ABOUT = f"""\
# Do the meters of labels keep up?

Each line is a job of split training under one defence of gradients. *attacker*: the best of many attacks by a passive party,
made outside of the product with scikit-learn; it has its own columns besides. *meter*: the figure that the active party reads
in its report. *none*: no label is known; *16*: those of 16 rows (of each class); *ten*: no label is known, and there were ten
trainings on almost the same rows. Figures are as in a report: .5 is chance and 1 is all, whatever labels are. {TRAINED:,} rows,
{EPOCHS} epochs, a top of one layer; means over seeds. *cost* is what the defence takes of the joint model's AUC (accuracy, R²),
paired by seed, with its 95 % interval. Three seeds, may be luck.
"""


def page(found: Found, seeds: int, *, small: bool) -> list[str]:
    """The whole page."""
    outcomes: dict[tuple[str, str], list[Any]] = {}
    for work in works(seeds, small=small):
        if work.name in found:
            outcomes.setdefault((work.arguments["data"], work.arguments["defence"]), []).append(found[work.name])
    lines = [*ABOUT.splitlines(), "", f"Seeds: {max(map(len, outcomes.values()))}.", ""]
    gaps = []
    for data in dict.fromkeys(data for data, _ in outcomes):
        rows = []
        for (source, defence), values_ in outcomes.items():
            if source != data:
                continue
            cells = []
            for kind in ("blind", "informed", "together"):
                attacker, meter = (mean([one[who][kind] for one in values_]) for who in ("attacker", "meter"))
                cells.append(f"{attacker:.3f} : {meter:.3f}")
                gaps.append((attacker - meter, f"{data}, {defence}, {kind}"))
            plain = outcomes[data, "none"]
            loss = [one["metric"] - other["metric"] for one, other in zip(plain, values_, strict=False)]
            rows.append([defence, *cells, interval(loss) if defence != "none" else "0"])
        lines += [f"## {data}", "", *table(["defence", "none, attacker : meter", "16", "ten", "cost"], rows), ""]
    worst, where = max(gaps)
    lines += [f"The meter is at most {worst:.3f} below the attacker ({where}); {WITHIN:g} was the aim.", ""]
    return lines


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("shared"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--go-on", action="store_true")
    given = parser.parse_args()
    todo = works(given.seeds, small=given.small)
    given.out.mkdir(parents=True, exist_ok=True)
    found = complete(
        given.out / f"{NAME}.json",
        todo,
        given.data,
        every=todo,
        head={"epochs": EPOCHS, "rows": TRAINED},
        processes=given.processes,
        stored_after=1,
        go_on=given.go_on,
    )
    (given.out / f"{NAME}.md").write_text("\n".join(page(found, given.seeds, small=given.small)))


if __name__ == "__main__":
    main()
