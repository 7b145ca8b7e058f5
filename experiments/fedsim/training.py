"""One training over candidates by the product's own halves, over channels in memory."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.sessions import session
from experiments.fedsim.data import ACTIVE, COORDINATOR, PASSIVE, Case
from experiments.fedsim.linkage import Linkage
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Job
from vfl_node.session.session import Session
from vfl_node.settings.protection import NO_TREE, Compare
from vfl_node.training.candidates.trainer import LinkedTrainer
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport.memory import memory_network, run_together

Settings = Mapping[str, Any]

EVALUATE: Settings = {"test_fraction": 0.2, "validation_fraction": 0.1}
"""As in the paper: 70 % of the rows are trained on, and the epoch that is best on 10 % is kept."""

TRAIN: Settings = {"epochs": 30, "batch_size": 128, "patience": 30}
"""The rest are the product's defaults for ``linked``, which are those of FedSim's code; all epochs are run."""


def job_of(case: Case, align: Settings, settings: Settings) -> Job:
    """The job, as a user could submit it."""
    return Job.model_validate(
        {
            "name": "fedsim",
            "parties": {"active": ACTIVE, "passive": [PASSIVE], "coordinator": COORDINATOR},
            "align": align,
            "train": {"algorithm": "candidates", "task": case.task, **TRAIN, **settings},
            "evaluate": {**EVALUATE, "metrics": list(case.metrics)},
        }
    )


def train(case: Case, linkage: Linkage, job: Job, seed: int, compare: Compare = NO_TREE) -> Mapping[str, Trained]:
    """Party → its result.

    Trainings of a seed have the same rows held out and the same batches. Seconds of epochs are the processor's, for both
    parties together. ``compare`` says whether the active party trains a boosted tree beside. Raises VflError.
    """
    tables = {ACTIVE: case.active, PASSIVE: case.passive}
    network = memory_network(*tables)
    sessions = {
        party: session(
            party,
            network[party],
            Randomness(hashlib.sha256(f"fedsim {seed} {party}".encode()).digest()),
            job=job,
            compare=compare,
            clock=time.process_time,
        )
        for party in tables
    }

    async def training(own: Session) -> Trained:
        data = TrainingData(linkage.views[own.name], tables[own.name])
        return await LinkedTrainer().run(own, data, MemoryCheckpoints(), None)

    results = run_together(*((training(own), own.peers.values()) for own in sessions.values()))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return dict(zip(sessions, results, strict=True))
