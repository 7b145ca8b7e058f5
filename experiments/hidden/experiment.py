"""Training in shares over a union beside the same model in the clear on the intersection, and beside FLORIST.

Rows, owners and test rows are those of :mod:`experiments.florist.experiment`, so everything of a seed is paired: a quarter of
the records is tested on, with real columns of both; of the others each party lacks a record with chance α = β. All columns are
the passive party's, the labels the active one's. A union has the records that at least one of them has.

*hidden*: the product's own trainer and dealer over memory channels, with the weights that it opens. *psi*: the same first
weights and the same settings in ordinary numbers, on the shared records alone, in batches of their own. *same batches*:
likewise, but in the batches of the union without the rows that are not shared, so that nothing but the arithmetic differs.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.sessions import session
from experiments.florist import experiment as florist
from experiments.florist.data import Records
from experiments.florist.experiment import ACTIVE, PASSIVE, Drawn, Trial, randomness_of, records_of
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.ring import WEIGHT_FRACTION, decode
from vfl_node.crypto.shares.sines import PERIOD
from vfl_node.data.tables import Table
from vfl_node.errors import PeerLost
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks import ATTACKS
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.limits import Limits
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.hidden import alone, frequent
from vfl_node.training.hidden.brought import HiddenPlan
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.inputs import first_parts
from vfl_node.training.hidden.rows import RowEncoder
from vfl_node.training.hidden.section import HiddenSection
from vfl_node.training.hidden.terms import HiddenProgram
from vfl_node.training.hidden.trainer import HiddenTrainer
from vfl_node.training.schedule import Schedule
from vfl_node.training.shares.dealing import Dealing
from vfl_node.training.trainer import Trained, Trainer, TrainingData
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms
from vfl_node.transport.memory import memory_network, run_together

DEALER = "notary"

TRAIN: dict[str, Any] = {
    **{"algorithm": "hidden", "epsilon": None, "layers": [16], "batch_size": 256},
    **{"metrics_by": "none", "reveal": "owners"},
}
"""All else but the number of epochs is the default: a learning rate of .1, momentum .9. Rare columns stay, as in the clear."""

EPOCHS, STEPS = 10, 100
"""So many epochs; where the shared records make few batches, as many more as so many steps take."""

ATTACKED: dict[str, int] = {"rows": 4000, "epochs": 10}
"""Size of trainings that are attacked: every pair of rows can be compared, as in docs/experiments."""

Floats = NDArray[np.float64]


def train_of(common: int) -> dict[str, Any]:
    """The section of a job whose parties share so many records, which psu tells them."""
    batches = max(1, common // TRAIN["batch_size"])
    return {**TRAIN, "epochs": max(EPOCHS, math.ceil(STEPS / batches))}


def job_of(data: str, train: dict[str, Any], protocol: str = "psu") -> Job:
    """The job that a user would submit."""
    dealer = {"coordinator": DEALER} if train["algorithm"] == "hidden" else {}
    return Job.model_validate(
        {
            "name": data.replace("_", "-"),
            "parties": {"active": ACTIVE, "passive": PASSIVE, **dealer},
            "align": {"protocol": protocol},
            "train": train,
            "evaluate": {"test_fraction": 0.0, "metrics": ["auc"]},
        }
    )


@dataclass(frozen=True, eq=False)
class Union:
    """What an alignment by psu ends in.

    Attributes:
        tables: party → its records.
        views: party → its view of the shared order.
        both: bool[m], which rows both own.
        labels: float64[m, 1], true ones.
        values: float64[m, d + 1], the passive party's columns as it encodes them, and ones; of rows that both own alone.
        tested: the same of the rows that are tested on.
        truth: labels of these.
    """

    tables: dict[str, Table]
    views: dict[str, Alignment]
    both: NDArray[np.bool_]
    labels: Floats
    values: Floats
    tested: Floats
    truth: NDArray[np.float32]

    @classmethod
    def from_records(cls, records: Records, drawn: Drawn) -> Union:
        """The records that one of the parties has or both have."""
        some = np.logical_or(*drawn.owns.values())
        rows, owns = drawn.trained[some], {name: owned[some] for name, owned in drawn.owns.items()}
        both = np.logical_and(*owns.values())
        tables, views = {}, {}
        for name, other in ((ACTIVE, PASSIVE), (PASSIVE, ACTIVE)):
            mine = owns[name]
            tables[name] = records.table(rows[mine], records.columns if name == PASSIVE else (), labelled=name == ACTIVE)
            facts = PeerFacts(int(owns[other].sum()), intersection=int(both.sum()), missing=int((~owns[other]).sum()))
            where = np.where(mine, np.cumsum(mine) - 1, NOT_MINE)
            views[name] = Alignment(ALIGNMENTS["psu"], "curve25519", where, int(mine.sum()), {other: facts}, union=len(rows))
        found = frequent.find(tables[PASSIVE], 0)
        features = [feature for features in found.entering.values() for feature in features]
        scaling = Hidden.model_validate(TRAIN).scaling
        encoder = RowEncoder.fit(tables[PASSIVE], features, found, scaling, bins=False, bounded=False)

        def encoded(table: Table) -> Floats:
            return encoder.transform(table, intercept=True)

        shared = encoded(records.table(rows[both], records.columns, labelled=False))
        values = np.full((len(rows), shared.shape[1]), np.nan)
        values[both] = shared
        tested = encoded(records.table(drawn.tested, records.columns, labelled=False))
        labels = records.labels[rows][:, None].astype(np.float64)
        return cls(tables, views, both, labels, values, tested, records.labels[drawn.tested])

    def auc_of(self, weights: list[Floats]) -> float | None:
        """On the test rows."""
        return auc(self.truth == 1, alone.scores(self.tested, weights)[:, 0])


def hidden(shared: Path, *, data: str, seed: int, ratio: float) -> dict[str, Any]:
    """Train over the union in shares, and on the intersection in the clear.

    Args:
        shared: folder of the shared data sets.
        data: name of the records.
        seed: of everything that is drawn.
        ratio: α = β.

    Returns:
        JSON. ``auc``: training → test AUC. ``apart``: largest difference of a weight from that of *same batches*. ``beyond``:
        share of test scores at which the sum of sines is no sigmoid. ``bytes``: who sent → how many. The rest: sizes.
    """
    randomness, records = randomness_of(data, seed), records_of(data, shared)
    union = Union.from_records(records, Drawn.draw(randomness, len(records), alpha=ratio, beta=ratio))
    job = job_of(data, train_of(int(union.both.sum())))
    train = Hidden.section_of(job)
    began = time.process_time()
    plan, results = train_together(job, union, randomness)
    seconds = time.process_time() - began
    opened = opened_weights(results)
    first = first_weights(plan, randomness)

    (m,) = union.both.shape
    same = [batch[union.both[batch]] for epoch in range(plan.epochs) for batch in plan.batches(epoch)]
    twin = alone.descend(union.values, union.labels, first, same, plan.divisor, plan.descent, train)
    own = np.flatnonzero(union.both)
    schedule, size = Schedule(randomness.derive("psi").bytes(32), len(own), 0), min(train.batch, len(own))
    batches = [own[batch] for epoch in range(plan.epochs) for batch in schedule.batches(0, epoch, np.arange(len(own)), size)]
    psi = alone.descend(
        union.values, union.labels, first, [batch for batch in batches if len(batch) == size], size, plan.descent, train
    )

    active, passive = (result.section for result in results)
    assert isinstance(active, HiddenSection)
    assert isinstance(passive, HiddenSection)
    return {
        "auc": {"hidden": union.auc_of(opened), "psi": union.auc_of(psi), "same batches": union.auc_of(twin)},
        "apart": max(float(np.abs(one - other).max()) for one, other in zip(opened, twin, strict=True)),
        "beyond": float((np.abs(alone.scores(union.tested, opened)) > PERIOD / 2).mean()),
        "union": m,
        "shared": len(own),
        "columns": union.values.shape[1] - 1,
        "steps": len(same),
        "batch": plan.batch_rows,
        "bytes": {
            ACTIVE: active.bytes,
            PASSIVE: passive.bytes,
            DEALER: (active.dealer_bytes or 0) + (passive.dealer_bytes or 0),
        },
        "cpu s": round(seconds, 1),
    }


def train_together(job: Job, union: Union, randomness: Randomness) -> tuple[HiddenPlan, list[Trained]]:
    """Both parties and the dealer in this process. Raises what a party met first."""
    said, results = run_in_memory(HiddenTrainer(), job, union.tables, union.views, randomness)
    return HiddenProgram(job).plan(said), results


def run_in_memory(
    trainer: Trainer, job: Job, tables: Mapping[str, Table], views: Mapping[str, Alignment], randomness: Randomness
) -> tuple[DealingTerms, list[Trained]]:
    """What the dealer was told, and what each data party has. Raises what a party met first."""
    network = memory_network(*job.parties.all)
    with tempfile.TemporaryDirectory() as scratch:
        sessions = {}
        for name in job.parties.all:
            folder = Path(scratch, name)
            folder.mkdir()
            peers, own = {peer: network[name][peer] for peer in job.parties.peers_of(name)}, randomness.derive(name)
            memories = {peer: MemoryOfOneRun(own.derive(f"memory of {peer}")) for peer in job.parties.others(name)}
            sessions[name] = session(name, peers, own, job=job, folder=folder, limits=Limits(least_rows=0), memories=memories)
        protocols: list[tuple[Any, Any]] = []
        for name, view in views.items():
            run = trainer.run(sessions[name], TrainingData(view, tables[name]), MemoryCheckpoints(), None)
            protocols.append((run, list(sessions[name].peers.values())))
        dealing = trainer.coordination(sessions[DEALER])
        assert isinstance(dealing, Dealing)
        protocols += [(dealing.serve(channel), [channel]) for channel in sessions[DEALER].peers.values()]
        results = run_together(*protocols)
    failed = [result for result in results if isinstance(result, Exception)]
    for error in sorted(failed, key=lambda error: isinstance(error, PeerLost)):
        raise error
    return dealing._said[ACTIVE], results[:2]


def first_weights(plan: HiddenPlan, randomness: Randomness) -> list[Floats]:
    """The sum of what both parties drew, their columns in one matrix."""
    drawn = [
        first_parts(plan.form, randomness.derive(name).derive("first weights"), bounded=False).weights
        for name in (ACTIVE, PASSIVE)
    ]
    active, passive, *rest = (one + other for one, other in zip(*drawn, strict=True))
    return [decode(weights, WEIGHT_FRACTION) for weights in (np.concatenate([passive, active]), *rest)]


def opened_weights(results: list[Trained]) -> list[Floats]:
    """What the owners got, likewise."""
    active, passive = (result.weights for result in results)
    first = np.concatenate([passive["weight"].numpy().T, active["bias"].numpy()[None]])
    return [first, *(active[f"layer {index}"].numpy() for index in range(sum(name.startswith("layer ") for name in active)))]


def union_in_the_open(shared: Path, *, data: str, seed: int, ratio: float) -> dict[str, Any]:
    """Test AUC of FLORIST over the same rows, without and with the shift in training; of its network on shared rows alone."""
    each: dict[str, Any] = {"alpha": ratio, "beta": ratio}
    ways: dict[str, dict[str, Any]] = {"FLORIST": {}, "FLORIST-tr": {"calibration": "train"}, "partial": {"real_only": True}}
    found = {name: florist.run(Trial(data, seed, **each, **way), shared) for name, way in ways.items()}
    return {name: outcome["test"]["plain"]["auc"] for name, outcome in found.items()}


def leaks(shared: Path, *, data: str, seed: int, ratio: float) -> dict[str, Any]:
    """What the open trainings tell.

    Returns:
        ``membership``: attack → AUC of the active party on which rows the passive one lacks, over the union. ``labels``: AUC of
        the passive party on the labels of the rows that the active one has, over the union and over the intersection.
    """
    each: dict[str, Any] = {
        "alpha": ratio,
        "beta": ratio,
        "attacked": (ATTACKED["epochs"],),
        "attacks": tuple(ATTACKS),
        **ATTACKED,
    }
    labels = {}
    for name, real_only in (("FLORIST", False), ("psi", True)):
        training = florist.Training(Trial(data, seed, real_only=real_only, **each), shared)
        for _ in training.steps():
            pass
        labels[name] = training.labels_read()
        if not real_only:
            membership = training.attack(ATTACKED["epochs"])
    return {"membership": membership, "labels": labels}
