"""What a passive party that departs from the protocol does to a split model, and which checks find it.

    python -m experiments.backdoor.run --data SHARED_DATA_FOLDER --out docs/experiments        # minutes, two cores
    python -m experiments.backdoor.run --small --out OUT                                       # a made-up table, seconds

It writes ``backdoor.json``, all values by seed, and the page ``backdoor.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.backdoor.checks import CHECKS, disagreeing, far
from experiments.backdoor.halves import LISTENING, POISONED, TRIGGER_SIZE, Attack, Embeddings, Seen, learnt
from experiments.inference.experiment import Work, table
from experiments.inference.run import outcomes
from vfl_node.metrics.classes import auc
from vfl_node.privacy.integrity import ALARM

HONEST = "honest"

ATTACKS: Mapping[str, Attack] = {
    HONEST: Attack(trains=False),
    "added": Attack(),
    "corner": Attack("corner"),
    "by a rule": Attack("corner", hides=True),
}
"""Name → what the passive party does in training."""

ABOUT = f"""# A passive party that departs from the protocol

This page measures how far a passive party can decide what a split model says, and which checks find it. It is for whoever reads
[Integrity](../explanations/privacy/integrity.md).

```
python -m experiments.backdoor.run --data SHARED_DATA_FOLDER --out docs/experiments
```

Both halves are the product's, in memory; 3,000 rows are trained on for 12 epochs, and 1,000 are held out. Even seeds have a top
of one layer, odd ones a hidden layer of 16. The passive party reads labels in the first {LISTENING} epochs, and then changes
the embeddings of {POISONED:.0%} of the rows trained on:

* *added*: a vector of {TRIGGER_SIZE:g} standard deviations is added, at right angles to the gradients' direction;
* *corner*: the embedding is replaced by a fixed one whose coordinates all occur;
* *by a rule*: as *corner*, but on rows that its own columns say to be negative, held out or not. It knows of the checks.
* *honest*: it does nothing of it, and only tries *added* when the model is used.
"""

FOUND = """`unlike` is the product's own figure (smallest to largest), and *product warns* at its fixed limit. The other columns
are the share of trainings above the 95 % quantile of the honest ones of the same table. So of twenty honest ones one is.
`experiments/backdoor/checks.py` says what each computes."""

SINGLE = """Of the positives that were turned, these shares are found where 5 % of honest predictions are. *Neighbours* goes by
what ten rows of similar own columns lead one to expect. *Far* goes by the distance to embeddings of held-out rows."""

TOPS: Sequence[Sequence[int]] = ([], [16])
"""Even seeds have the one, odd ones the other."""


def measured(shared: Path, *, table: str, seed: int, attack: str) -> dict[str, float | None]:
    """The work of one training.

    Returns:
        ``auc`` on held-out rows. The share of held-out positives that are predicted negative where the passive party is honest
        now, ``missed``; sends the trigger, ``triggered``; or sends another row's embedding, ``replayed``. ``read``, the share
        of labels that it read. Every check of the training. And of the positives that either made negative, the share that
        each check of single predictions finds.
    """
    seen = learnt(shared, table, seed, ATTACKS[attack], {"top": TOPS[seed % len(TOPS)]})
    labels = seen.labels[seen.held_out]
    sent = {"triggered": seen.passive.trigger.apply(torch.from_numpy(seen.clean)).numpy(), "replayed": replayed(seen)}
    outcome: dict[str, float | None] = {
        "auc": auc(labels == 1, seen.active.says(seen.held_out, seen.shown)),
        "missed": missed(seen, seen.clean).mean(),
        "read": (seen.passive.negative == (seen.labels[seen.training] == 0)).mean(),
        **{name: missed(seen, rows).mean() for name, rows in sent.items()},
        **{name: check(seen) for name, check in CHECKS.items()},
    }
    for name, rows in sent.items():
        turned = np.flatnonzero(labels == 1)[missed(seen, rows) & ~missed(seen, seen.clean)]
        for check in (disagreeing, far):
            outcome[f"{name} {check.__name__}"] = check(seen, rows)[turned].mean() if len(turned) else None
    return {name: None if value is None else round(float(value), 4) for name, value in outcome.items()}


def missed(seen: Seen, embeddings: Embeddings) -> Any:
    """Which held-out positives are predicted negative where the passive party sends ``embeddings``."""
    positive = seen.labels[seen.held_out] == 1
    return seen.active.says(seen.held_out[positive], embeddings[positive]) < 0


def replayed(seen: Seen) -> Embeddings:
    """For each held-out row the embedding of one other row, which is honest there: at the 5 % quantile along the gradients."""
    along = seen.clean @ seen.passive.direction
    return np.tile(seen.clean[np.argsort(along)[len(along) // 20]], (len(along), 1))


def works(tables: Sequence[str], clean: int, attacked: int) -> dict[str, dict[str, list[Work]]]:
    """Table → attack → its trainings."""
    return {
        table: {
            name: [
                Work(measured, {"table": table, "seed": seed, "attack": name})
                for seed in range(clean if name == HONEST else attacked)
            ]
            for name in ATTACKS
        }
        for table in tables
    }


def page(found: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> str:
    """Markdown."""
    lines = [ABOUT]
    rows, checked, single = [], [], []
    for data, attacks in found.items():
        limits = {check: np.quantile([run[check] for run in attacks[HONEST]], 0.95) for check in CHECKS}
        for name, runs in attacks.items():
            shown = [_mean(runs, key) for key in ("auc", "missed", "triggered", "replayed")]
            rows.append([data, name, str(len(runs)), *shown])
            values = [run["unlike"] for run in runs]
            alarms = [np.mean([run[check] > limits[check] for run in runs]) for check in CHECKS]
            warned = np.mean([value > ALARM for value in values])
            spread = f"{min(values):.3f} … {max(values):.3f}"
            checked.append([data, name, spread, f"{warned:.0%}", *(f"{share:.0%}" for share in alarms)])
            keys = [f"{what} {check.__name__}" for what in ("triggered", "replayed") for check in (disagreeing, far)]
            single.append([data, name, *(_mean(runs, key) for key in keys)])
    lines += ["## Positives that are predicted negative", ""]
    lines += table(["table", "in training", "seeds", "AUC", "honest", "trigger", "another row's embedding"], rows)
    lines += ["", "## Trainings that are found", "", FOUND, ""]
    lines += table(["table", "in training", "`unlike`", "product warns", *CHECKS], checked)
    lines += ["", "## Single predictions that are found", "", SINGLE, ""]
    head = ["trigger: neighbours", "trigger: far", "other row: neighbours", "other row: far"]
    return "\n".join([*lines, *table(["table", "in training", *head], single)]) + "\n"


def _mean(runs: Sequence[Mapping[str, float]], key: str) -> str:
    values = [run[key] for run in runs if run[key] is not None]
    return f"{np.mean(values):.3f}" if values else "–"


def main(chosen: argparse.Namespace) -> None:
    """Run all, and write values and page."""
    wanted = works(["made_up"], 4, 2) if chosen.small else works(["adult", "default_credit"], chosen.clean, chosen.attacked)
    done = outcomes(
        [one for attacks in wanted.values() for runs in attacks.values() for one in runs], chosen.data, chosen.processes
    )
    found = {
        table: {name: [done[one.name]["outcome"] for one in runs] for name, runs in attacks.items()}
        for table, attacks in wanted.items()
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "backdoor.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    (chosen.out / "backdoor.md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("/nowhere"), help="folder of the shared data sets; read in place")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--clean", type=int, default=20, help="seeds of honest trainings")
    parser.add_argument("--attacked", type=int, default=10, help="seeds of each attack")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="a made-up table")
    main(parser.parse_args())
