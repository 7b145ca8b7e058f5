"""What a run adds to what a trainer reports, and what it refuses before and after it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.inputs import check_named_columns
from vfl_node.execution.train import _check_settings, missing_results
from vfl_node.job.training import TrainerConfig, Traits
from vfl_node.roles import Role
from vfl_node.session.session import OwnMachine
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import FeatureAuditSettings, Protection
from vfl_node.training.section import TrainerSection
from vfl_node.training.split.section import MatchedMetrics, SplitSection, Strategies
from vfl_node.training.trainer import Trained


class OnDevice(TrainerConfig):
    """Computes on the device, and has no defences."""


class Defended(TrainerConfig):
    """Computes with the same result on every machine, and has defences."""

    traits: ClassVar[Traits] = Traits(on_device=False, defended=frozenset({"embeddings"}))


def run_at(folder: Path, device: str, *sigmas: float) -> Any:
    defences = tuple(read_params({"name": "noise", "sigma": sigma}) for sigma in sigmas)
    policy = SimpleNamespace(protection=Protection(defences=defences))
    session = SimpleNamespace(machine=OwnMachine(device_name=device), policy=policy)
    return SimpleNamespace(session=session, folder=JobFolder(folder))


@pytest.mark.parametrize(("train", "code"), [(OnDevice, "E_DEVICE"), (Defended, "E_DEFENCES")])
def test_a_job_goes_on_with_the_settings_that_its_training_depends_on(
    tmp_path: Path, train: type[TrainerConfig], code: str
) -> None:
    config = train(algorithm="test")
    begun, other_device, other_defences = (run_at(tmp_path, *of) for of in (("cpu", 1.0), ("meta", 1.0), ("cpu", 2.0)))
    _check_settings(begun, config)
    free, pinned = (other_device, other_defences) if train is Defended else (other_defences, other_device)
    _check_settings(free, config)
    with pytest.raises(StateError) as caught:
        _check_settings(pinned, config)
    assert caught.value.code == code


def test_a_job_goes_on_with_the_columns_that_it_began_to_audit(tmp_path: Path) -> None:
    """A checkpoint has decoders of these columns."""
    config = Defended(algorithm="test")

    def attempt(features: FeatureAuditSettings | None) -> None:
        run = run_at(tmp_path, "cpu")
        run.session.policy.protection = Protection(features=features, max_feature_gain=0.1 if features else None)
        _check_settings(run, config)

    begun = FeatureAuditSettings(columns=("income", "age"))
    attempt(begun)
    attempt(begun)
    for other in (None, FeatureAuditSettings(columns="all"), FeatureAuditSettings(columns=("income", "age"), known_share=0.1)):
        with pytest.raises(StateError, match=r"another audit\.features") as caught:
            attempt(other)
        assert caught.value.code == "E_DEFENCES"
        assert not any(word in f"{caught.value.for_peer}{caught.value.message}" for word in ("income", "age ", "0.1"))


def a_table(rows: int) -> Table:
    ids = Identifiers.from_items(str(row).encode() for row in range(rows))
    return Table(ids, {"age": NumericColumn(np.arange(float(rows))), "same": NumericColumn(np.ones(rows))}, None)


def test_a_table_too_small_for_an_audit_of_columns_is_refused_before_alignment() -> None:
    protection = Protection(features=FeatureAuditSettings(columns=("age",), known_share=0.1))

    def check(rows: int, *, whole: bool = True) -> None:
        train = Defended(algorithm="test")
        check_named_columns(a_table(rows), protection, party="lab", role="passive", train=train, whole=whole)

    check(500)
    check(499, whole=False)
    with pytest.raises(UsageError, match="49 of this party's rows"):
        check(499)


@pytest.mark.parametrize("setting", ["fbs", "audit"])
def test_settings_that_name_columns_are_held_against_the_table_before_alignment(setting: str) -> None:
    table, config = a_table(1000), Defended(algorithm="test")

    def check(column: str, train: TrainerConfig, role: Role = "passive") -> None:
        defences = (read_params({"name": "fbs", "columns": [column]}),) if setting == "fbs" else ()
        features = FeatureAuditSettings(columns=(column,)) if setting == "audit" else None
        check_named_columns(table, Protection(defences=defences, features=features), party="lab", role=role, train=train)

    check("age", config)
    check("nowhere", config, role="active")
    check("nowhere", OnDevice(algorithm="test"))
    for column, code in (("nowhere", "E_COLUMN"), ("same", "E_CONFIG")):
        with pytest.raises(UsageError, match=column) as caught:
            check(column, config)
        assert caught.value.code == code
        assert column not in (caught.value.for_peer or "")


def trained(section: TrainerSection) -> Trained:
    return Trained((), 1, (1, 1), "cpu", {}, section)


def test_what_a_trainer_promised_and_did_not_give_is_a_warning(trial: Any) -> None:
    plain, asks = trial.job("train: {}"), trial.job("train: {}\nserve: {to: both}\nevaluate: {matched: true}")
    assert missing_results(plain, "active", trained(TrainerSection())) == ()
    served, matched = missing_results(asks, "active", trained(TrainerSection()))
    assert "predictions (serve)" in served
    assert "evaluate.matched" in matched
    assert missing_results(asks, "passive", trained(TrainerSection())) == (served,)
    used = Strategies(labels=None, features=None, calibration="none")
    counted = SplitSection(strategies=used, held_out=None, matched_metrics=MatchedMetrics(rows=7))
    assert missing_results(asks, "active", trained(counted)) == (served,)
