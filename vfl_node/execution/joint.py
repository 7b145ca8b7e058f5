"""The joint attack at the end of ``vfl-node run``, exactly: between two organisations nobody has what it needs.

Each party's received rows, columns and records are at hand on this machine, so the attack
(:mod:`vfl_node.privacy.attacks.joint`) runs as the peer would run it, and its success is known. The figure goes into the report
of the party that it aims at. Nothing is sent for it. In a job between organisations a passive party estimates the attack, from
its own columns alone (:func:`estimate_joint`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.configuration.registry import load
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.execution.cautions import membership_cautions
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.known_rows import TrialParty
from vfl_node.job import Job
from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks import joint
from vfl_node.privacy.silent import attempt
from vfl_node.report import envelope, page
from vfl_node.report.meters import add_joint
from vfl_node.report.verdict import leaks_of
from vfl_node.settings.protection import Protection
from vfl_node.training.boosted_tree import design
from vfl_node.training.section import JointAttack


def runs_joint(job: Job) -> bool:
    """Whether the joint attack has something to find in a job, and this machine has the library that it needs."""
    train = job.train
    return bool(train and train.traits.recorded and job.align.spec.synthetic_rows_at and joint.available())


def has_enough_rows(folders: Iterable[JobFolder]) -> bool:
    """Whether enough rows were received for the attack, as the passive parties' folders have them; else no table is read."""
    return any(int((np.load(folder.received, mmap_mode="r")["steps"] > 0).sum()) >= joint.LEAST for folder in folders)


def report_joint(job: Job, parties: Mapping[str, TrialParty], out: Mapping[str, Path]) -> None:
    """Run the attack of every two parties that met, and put its figures into the reports.

    Args:
        job: the job, which has ended, and of which :func:`runs_joint`.
        parties: name → what each data party has.
        out: name → folder of its report.
    """
    views = {name: _view(job, name, party) for name, party in parties.items()}
    active, found = job.parties.active, dict[str, list[JointAttack]]()
    for name in job.parties.passive:
        records = np.load(parties[name].folder.received)
        records = records[records["steps"] > 0]
        last, mean = records["embedding"], records["gradient"] / records["steps"][:, None]
        for attacker, target, received in ((active, name, last), (name, active, mean)):
            if not parties[target].settings.protection.membership:
                continue
            judged = _attack(parties[attacker], views[attacker], views[target], records["position"], received)
            found.setdefault(target, []).extend([judged] if judged else [])
    for name, attacks in found.items():
        if attacks:
            _add(job, out[name], max(attacks, key=lambda attack: abs(attack.value - 0.5)))


def _view(job: Job, name: str, party: TrialParty) -> Alignment:
    loaded = party.folder.load_alignment(job.parties.others(name))
    assert loaded is not None
    return loaded[0]


def _attack(
    attacker: TrialParty, own: Alignment, target: Alignment, positions: NDArray[np.int64], received: NDArray[np.float32]
) -> JointAttack | None:
    """The attack on the rows at ``positions`` that the attacker owns; None where there is nothing to tell apart."""
    mine = own.owned[positions]
    rows, synthetic = own.rows[positions[mine]], ~target.owned[positions[mine]]
    if len(rows) == 0 or synthetic.all() or not synthetic.any():
        return None
    cells, categorical = design(attacker.table, rows)
    if attacker.table.labels is not None:
        cells, categorical = np.column_stack([cells, attacker.table.labels]), [*categorical, False]
    draws, shown = Randomness(bytes(32)), received[mine].astype(np.float64)
    scores = attempt(lambda: joint.scores(cells[rows], shown, draws, categorical=np.array(categorical, dtype=bool)))
    value = None if scores is None else auc(synthetic, scores)
    return None if value is None else JointAttack(value=value, estimate=False, judged=len(rows))


def _add(job: Job, folder: Path, attack: JointAttack) -> None:
    """Put the figure into the report in ``folder``, with a warning where it is large."""
    document: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    training = document["training"]
    training["joint"] = attack.model_dump(mode="json")
    training["warnings"] = [*training["warnings"], *membership_cautions(attack)]
    report = envelope.Report.model_validate(document)
    if report.meters and report.meters.membership:
        meters = report.meters.model_copy(update={"membership": add_joint(report.meters.membership, attack)})
        verdict = report.verdict and report.verdict.model_copy(update={"leaks": leaks_of(job, report.party, meters)})
        report = report.model_copy(update={"meters": meters, "verdict": verdict})
    page.write(report, folder)


def estimate_joint(job: Job, table: Table, protection: Protection, models: Mapping[str, str]) -> JointAttack | None:
    """The estimate for a passive party with this ``table``; None where it makes no row up, or its owner wants no attacks.

    It does not depend on which rows are shared. Where the job hides how many records there are (``align.padding``) there is
    none, as the peer waits and sees how long it takes, which depends on their number up to 2,048.
    """
    train, possible = job.train, "passive" in job.align.spec.synthetic_rows_at
    if not (train and train.parts.estimated and possible and protection.membership) or job.align.padding:
        return None
    estimate = load(train.parts.estimated, what=f"the estimate of the joint attack of trainer {train.algorithm!r}")
    found: JointAttack | None = estimate(table, train, models)
    return found
