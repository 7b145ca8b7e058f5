"""Two tables of real patients, known to each other by nothing: aligned by union, then trained."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.sessions import limits_from, session
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.engines.threads import Threads
from vfl_node.job import Align, Evaluate, Job
from vfl_node.report import envelope
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.protection import Protection
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_channels, run_together
from vfl_node.transport.pipe import Traffic

CLINIC_MEASURES = ("mean texture", "mean smoothness", "mean symmetry", "mean fractal dimension")


@pytest.fixture
def clinic_and_lab(federation: Callable[..., Any]) -> Any:
    """The breast-cancer table: the clinic holds the diagnosis and four measures, the lab the other 26."""
    patients = pytest.importorskip("sklearn.datasets").load_breast_cancer()
    columns = dict(zip(patients.feature_names, patients.data.T, strict=True))
    clinic = {name: columns.pop(name) for name in CLINIC_MEASURES}
    rng = np.random.default_rng(0)
    holds = rng.random((2, len(patients.target))) < 0.9
    return federation(clinic, columns, 1 - patients.target, holds[0], holds[1] | ~holds[0])


@pytest.fixture
def aligned(tmp_path: Path) -> Callable[[str, Table, Table], tuple[Alignment, Alignment]]:
    """Runs an alignment protocol on two tables: what each party has then."""

    def run(protocol: str, clinic: Table, lab: Table) -> tuple[Alignment, Alignment]:
        def side(channel: Channel, name: str, table: Table) -> tuple[Coroutine[Any, Any, Alignment], Channel]:
            seed = Randomness(name.encode().ljust(32))
            own = session(
                name,
                {channel.peer: channel},
                seed,
                align=Align.model_validate({"protocol": protocol}),
                folder=tmp_path / name,
                memories={channel.peer: MemoryOfOneRun(seed.derive("memory"))},
                workers=Threads(1),
                limits=limits_from(1),
            )
            return align(own, OwnRecords(table.ids)), channel

        a, b = memory_channels("clinic", "lab")
        ours, theirs = run_together(side(a, "clinic", clinic), side(b, "lab", lab))
        return ours, theirs

    return run


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_the_lab_helps_the_clinic(clinic_and_lab: Any, run: Any, aligned: Any, protocol: str) -> None:
    parties = clinic_and_lab
    views = aligned(protocol, parties.clinic, parties.lab)
    assert views[0].peer.intersection == parties.clinic_view.peer.intersection
    found = type(parties)(parties.clinic, parties.lab, *views, parties.people[: len(views[0])])
    train = Train(bottom=(32, 16), active_bottom=(8,), top=(16,), epochs=8, batch_size=32, learning_rate=3e-3,
                  missing=Missing(calibration="test"))  # fmt: skip
    active, passive = run(train=train, evaluate=Evaluate(repeats=4))(found)
    assert active.results.metrics["auc"] > active.results.alone.metrics["auc"] + 0.05
    least = 0 if protocol == "psu" else -0.01  # alone it learns from a tenth of records more than the two share
    assert active.results.alone.gains["auc"]["low"] > least
    assert active.results.metrics["auc"] > 0.93
    assert passive.results is None
    share = active.results.population.real_share
    assert share == (1.0 if protocol == "psi" else pytest.approx(views[0].peer.intersection / len(parties.clinic)))


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("protocol", ["psu", pytest.param("psi", marks=pytest.mark.slow)])
def test_both_parties_reports_say_the_same_of_each(
    synthetic: Callable[..., Any], run: Any, aligned: Any, protocol: str, told: bool
) -> None:
    """Each report words what the peer learnt; it must be what the peer's own says."""
    parties = synthetic(60)
    views = aligned(protocol, parties.clinic, parties.lab)
    found = type(parties)(parties.clinic, parties.lab, *views, parties.people[: len(views[0])])
    both = run(evaluate=Evaluate(share_with_passive=told))
    job = Job.model_validate(
        {
            "name": "trial",
            "parties": {"active": "clinic", "passive": "lab"},
            "align": {"protocol": protocol},
            "train": both.train.model_dump(),
            "evaluate": both.evaluate.model_dump(),
        }
    )
    clinic, lab = (
        envelope.build(
            job=job,
            job_id="trial-1",
            party=party,
            alignment=view,
            align_seconds=0.0,
            traffic={"align": Traffic()},
            training=result,
            records=len(view),
            protection=Protection(),
            started="2026-03-01T10:00:00+00:00",
            finished="2026-03-01T10:00:01+00:00",
            versions={},
        )
        for party, view, result in zip(("clinic", "lab"), views, both(found), strict=True)
    )
    assert clinic.learnt == lab.learnt
    figures = [round(epoch.auc, 3) if told else None for epoch in clinic.training.epochs]
    assert [epoch.auc for epoch in lab.training.epochs] == figures
    assert any("can be read from the gradients almost surely" in entry.text for entry in lab.learnt["lab"])
