"""The estimate of the joint attack, from the columns of one party alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.florist.experiment import ACTIVE, PASSIVE, Training, Trial
from tests.privacy.trees import few_trees as few_trees
from vfl_node.configuration.models import parse
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, Column, NumericColumn, Table
from vfl_node.execution.joint import estimate_joint
from vfl_node.job import Job
from vfl_node.privacy.attacks import joint
from vfl_node.settings.protection import Protection
from vfl_node.training.section import JointAttack
from vfl_node.training.split.config import Train
from vfl_node.training.split.joint_estimate import estimate

pytest.importorskip("sklearn")

N = 500
JOB = (
    "{name: j, parties: {active: a, passive: p}, align: {protocol: psu}, train: {bottom: [16], missing: {features: smoothed}}}"
)


def job(text: str = JOB) -> Job:
    return parse(text, Job, source="job.yaml")


def table(dependence: float, rows: int = N) -> Table:
    rng = np.random.default_rng(3)
    common: NDArray[np.float64] = rng.normal(size=(rows, 1))
    x = dependence * common + rng.normal(size=(rows, 4))
    columns: dict[str, Column] = {f"x{place}": NumericColumn(x[:, place]) for place in range(4)}
    kind = (dependence * common[:, 0] + rng.normal(size=rows) > 0).astype(np.int64)
    return Table(
        Identifiers.from_items(b"%d" % row for row in range(rows)), columns | {"kind": CategoricalColumn(kind, ("a", "b"))}
    )


def estimated(table: Table) -> JointAttack | None:
    return estimate(table, Train.section_of(job()), {})


def test_columns_that_tell_of_each_other_give_a_high_figure_and_independent_ones_chance() -> None:
    """At chance an AUC of 500 rows deviates by .028, with trees fitted by .035; the largest of five lies 1.2 of these above."""
    dependent, independent = estimated(table(2.0)), estimated(table(0.0))
    assert dependent is not None
    assert independent is not None
    assert dependent.value > 0.68
    assert independent.value == pytest.approx(0.54, abs=0.08)
    assert dependent.estimate
    assert dependent.judged == N
    few = table(2.0, rows=joint.LEAST)
    assert estimated(few) == estimated(few)


def test_there_is_none_of_few_rows_of_a_single_column_or_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimated(table(2.0, rows=joint.LEAST - 1)) is None
    whole = table(2.0)
    assert estimated(Table(whole.ids, {"x0": whole.columns["x0"]})) is None
    monkeypatch.setattr(joint, "available", lambda: False)
    assert estimated(whole) is None


@pytest.mark.parametrize(
    ("text", "protection"),
    [
        (JOB.replace("psu", "psi"), Protection()),
        (JOB.replace("psu", "psu, padding: 10"), Protection()),
        (JOB, Protection(membership=False)),
    ],
    ids=["no row is made up", "hidden sizes", "switched off"],
)
def test_there_is_none_where_it_says_nothing_or_is_not_wanted(text: str, protection: Protection) -> None:
    assert estimate_joint(job(text), table(2.0), protection, {}) is None


@pytest.mark.slow
@pytest.mark.data
def test_against_the_true_attack_it_is_on_average_not_much_lower(shared_data: Path) -> None:
    """Tables of every kind. Of six, two seeds each, the difference was between −.15 and +.33, on average 0."""
    differences, ratios = [], {"alpha": 0.3, "beta": 0.2, "rows": 6000, "epochs": 4, "attacked": (4,), "joint": True}
    for data in ("adult", "default_credit", "continuous", "made_up"):
        training = Training(Trial(data, 0, features="smoothed", **ratios), shared_data)
        for _ in training.steps():
            pass
        guess = estimate(training._tables[PASSIVE], training._trial.train, {})
        assert guess is not None
        differences.append(guess.value - (training.joint(ACTIVE) or 0))
    assert np.mean(differences) > -0.1
