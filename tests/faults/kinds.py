"""Whole jobs of every kind, small: what they say, and what their parties bring."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.job.unaligned import METHODS
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.policy import Policy

TWO, THREE = "{active: clinic, passive: lab}", "{active: clinic, passive: lab, coordinator: notary}"
FOUR = "{active: clinic, passive: [lab, shop], coordinator: notary}"
SEVERAL = "{active: clinic, passive: [lab, shop]}"
TRAIN = "bottom: [4], active_bottom: [2], top: [2], epochs: 1, batch_size: 16"
SPLIT = f"train: {{{TRAIN}}}\nevaluate: {{test_fraction: 0.3}}\n"
LOGISTIC = "align: {protocol: apsi, obfuscation: {size: 30}}\ntrain: {algorithm: logistic, iterations: 2, key_bits: 2048, "
ON_PSI = "align: {protocol: psi}\ntrain: {algorithm: logistic, iterations: 1, key_bits: 2048, least_rows: 0, "
LINKAGE = (
    "align: {protocol: linkage, keys: {u: {kind: number, low: -9, high: 9, reach: 3}}, encoding: {epsilon: 0.2, delta: 0.1}, "
    "candidates: 3, noise: {sigma: 0.4}}\n"
)
LINKED = (
    "train: {algorithm: candidates, bottom: [3], active_bottom: [2], top: [2], merge_hidden: [2], epochs: 1, batch_size: 9}\n"
)
HIDDEN = "align: {protocol: psu}\ntrain: {algorithm: hidden, epochs: 2"
TREES = "align: {protocol: psu}\ntrain: {algorithm: trees, trees: 2, depth: 2, bins: 3, least_rows: 2}\n"

KINDS = {
    "psu": f"parties: {TWO}\nalign: {{protocol: psu}}\n",
    "psi": f"parties: {TWO}\nalign: {{protocol: psi}}\n",
    "apsi": f"parties: {TWO}\nalign: {{protocol: apsi, obfuscation: {{size: 30}}}}\n",
    "dummies": f"parties: {TWO}\nalign: {{protocol: psu, dummies: 8}}\n",
    "psu, several": f"parties: {SEVERAL}\nalign: {{protocol: psu}}\n",
    "psi, several": f"parties: {SEVERAL}\nalign: {{protocol: psi}}\n",
    "psi-pairs, several": f"parties: {SEVERAL}\nalign: {{protocol: psi-pairs}}\n",
    "linkage": f"parties: {THREE}\n{LINKAGE}",
    "linked": f"parties: {THREE}\n{LINKAGE}{LINKED}evaluate: {{share_with_passive: true, validation_fraction: 0.2}}\n",
    "split": f"parties: {TWO}\n{SPLIT}",
    "told": f"parties: {TWO}\n{SPLIT.replace('0.3', '0.3, share_with_passive: true')}",
    "split, several": f"parties: {SEVERAL}\n{SPLIT}",
    "validation": f"parties: {TWO}\n{SPLIT.replace('0.3', '0.2, validation_fraction: 0.2')}",
    "matched": f"parties: {TWO}\n{SPLIT.replace('0.3', '0.9, matched: true')}",
    "last rows": f"parties: {TWO}\nalign: {{protocol: psi}}\n{SPLIT.replace('test_fraction: 0.3', 'hold_out: {last: 0.3}')}",
    **{
        f"unaligned, {name}": f"parties: {TWO}\nalign: {{protocol: psi}}\ntrain: {{{TRAIN.replace('epochs: 1', 'epochs: 2')}, "
        f"unaligned: {{method: {name}}}}}\nevaluate: {{test_fraction: 0.3}}\n"
        for name in METHODS.own
        if name != "none"
    },
    "sweep": f"parties: {TWO}\n{SPLIT.replace('0.3', '0.2, validation_fraction: 0.2')}"
    "sweep: {by: halving, eta: 2, over: {learning_rate: [0.001, 0.01, 0.1]}}\n".replace("epochs: 1", "epochs: 2"),
    "upsi": f"parties: {TWO}\nalign: {{protocol: upsi}}\n",
    "two-party": f"parties: {TWO}\n{LOGISTIC}flow: two-party}}\n",
    "coordinator-open-scores": f"parties: {THREE}\n{LOGISTIC}flow: coordinator-open-scores}}\n",
    "coordinator": f"parties: {THREE}\n{LOGISTIC}flow: coordinator, loss: taylor}}\n",
    "labels apart": f"parties: {THREE}\n{ON_PSI}flow: coordinator, loss: taylor, labels: passive}}\n"
    "evaluate: {test_fraction: 0}\n",
    "hidden": f"parties: {THREE}\n{HIDDEN}}}\n",
    "hidden, audited": f"parties: {THREE}\n{HIDDEN.replace('epochs: 2', 'epochs: 3, dealer_audit: 0.5')}}}\n",
    "hidden, no coordinator": f"parties: {TWO}\n{HIDDEN}, randomness: parties}}\n",
    "hidden, several": f"parties: {FOUR}\n{HIDDEN}}}\n",
    "trees": f"parties: {THREE}\n{TREES}",
    "trees, several": f"parties: {FOUR}\n{TREES}",
    "statistics": f"parties: {THREE}\nalign: {{protocol: psu}}\nstatistics: {{bins: 4, correlations: true}}\n",
}
"""Kind → the job."""

SERVES = {
    "service": (f"parties: {TWO}\n{SPLIT}serve: {{to: active}}\n", "clinic", False),
    "service of the passive party": (f"parties: {TWO}\n{SPLIT}serve: {{to: passive}}\n", "lab", False),
    "service, several": (f"parties: {SEVERAL}\n{SPLIT}serve: {{to: active}}\n", "clinic", False),
    "service, hidden": (f"parties: {THREE}\n{HIDDEN.replace('psu', 'psi')}}}\nserve: {{to: active}}\n", "clinic", False),
    "service, no coordinator": (
        f"parties: {TWO}\n{HIDDEN.replace('psu', 'psi')}, randomness: parties}}\nserve: {{to: active}}\n",
        "clinic",
        False,
    ),
    "new records": (f"parties: {TWO}\n{SPLIT}serve: {{to: active}}\n", "clinic", True),
    "new records of the passive party": (f"parties: {TWO}\n{SPLIT}serve: {{to: passive}}\n", "lab", True),
}
"""Kind of predictions → the job that trains the model, who asks it, and whether for new records."""

ALL = (*KINDS, *SERVES)

SLOW = {
    kind: 0.05 if "diffusion" in kind or "jpl" in kind else 0.3
    for kind in KINDS
    if any(word in KINDS[kind] for word in ("logistic", "diffusion", "jpl", "matched: true"))
}
"""Kinds that take seconds, and how often they are drawn."""

WEIGHTS = [SLOW.get(kind, 1.0) for kind in ALL]
"""How often a kind is drawn."""

ROLES = {"clinic": "active", "lab": "passive", "shop": "passive", "notary": "coordinator"}
ROWS = {"clinic": range(40), "lab": range(12, 52), "shop": range(6, 46)}
TIMES = 20
"""How many times as many rows a matched measurement has: it counts none in small cells."""


def job_of(kind: str) -> Job:
    """The job of a kind; of predictions the one that trains."""
    return parse(f"name: trial\n{KINDS.get(kind) or SERVES[kind][0]}", Job, source="job")


Tables = Mapping[tuple[str, bool, int], Path]
"""(Party, whether labels stand in its table, how many times as many rows it has) → that table."""


def tables(folder: Path) -> Tables:
    """All tables, written to ``folder``."""
    chance = random.Random("tables")
    made = {}
    for (name, rows), times in product(ROWS.items(), (1, TIMES)):
        cells = [
            f"p{row},{chance.random():.4f},{chance.random():.4f},{row // 2},{row % 2}"
            for row in range(rows.start * times, rows.stop * times)
        ]
        for labelled in (True, False):
            path = made[name, labelled, times] = folder / f"{name}-{labelled}-{times}.csv"
            lines = ["id,x,y,g,label", *cells] if labelled else ["id,x,y,g", *(line.rpartition(",")[0] for line in cells)]
            path.write_text("\n".join(lines) + "\n")
    return made


def settings_of(job: Job, name: str, of: Tables, folder: Path) -> Settings:
    """What ``name`` brings to ``job``, with its state in ``folder``."""
    role: Any = ROLES[name]
    apart = getattr(job.train, "labels", "active") == "passive"
    data = None
    if name in ROWS:
        labelled = role == "active" if not apart else role == "passive"
        more: dict[str, Any] = {}
        if job.align.keys:
            more["keys"] = {"u": "x"}
        if role == "active":
            more |= {"order": "x"} if job.evaluate.hold_out else {}
            more |= {"group": "g"} if job.train and "heuristic" in job.canonical() else {}
        data = Data(path=of[name, labelled, TIMES if job.evaluate.matched else 1], label="label" if labelled else None, **more)
    return Settings(
        name=name,
        role=role,
        data=data,
        insecure_loopback=True,
        device="cpu",
        policy=Policy(everyone=Limits(min_own_rows=1, min_peer_rows=1, least_rows=2, unaligned=tuple(METHODS.own))),
        group_threads=1,
        state_dir=folder,
    )
