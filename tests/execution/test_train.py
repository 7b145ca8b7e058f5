"""What a run adds to what a trainer reports, and what it refuses before and after it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import StateError, UsageError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.train import _check_columns, _check_settings, missing_results
from vfl_node.privacy.defences.registry import read_params
from vfl_node.protection import FeatureAuditSettings, Protection
from vfl_node.trainers import TrainerConfig
from vfl_node.training.section import TrainerSection
from vfl_node.training.split.section import MatchedMetrics, SplitSection, Strategies
from vfl_node.training.trainer import Trained


class OnDevice(TrainerConfig):
    """Computes on the device, and has no defences."""


class Defended(TrainerConfig):
    """Computes with the same result on every machine, and has defences."""

    on_device: ClassVar[bool] = False
    defended: ClassVar[frozenset[str]] = frozenset({"embeddings"})


def run_at(folder: Path, device: str, *sigmas: float) -> Any:
    defences = tuple(read_params({"name": "noise", "sigma": sigma}) for sigma in sigmas)
    session = SimpleNamespace(device=torch.device(device), protection=Protection(defences=defences))
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


@pytest.mark.parametrize("setting", ["fbs", "audit"])
def test_settings_that_name_columns_are_held_against_the_table_before_alignment(setting: str) -> None:
    ids = Identifiers.of(str(row).encode() for row in range(4))
    table = Table(ids, {"age": NumericColumn(np.arange(4.0)), "same": NumericColumn(np.ones(4))}, None)

    def run_of(column: str, role: str = "passive") -> Any:
        defences = (read_params({"name": "fbs", "columns": [column]}),) if setting == "fbs" else ()
        features = FeatureAuditSettings(columns=(column,)) if setting == "audit" else None
        protection = Protection(defences=defences, features=features)
        session = SimpleNamespace(name="lab", role=role, protection=protection)
        return SimpleNamespace(session=session, data=SimpleNamespace(table=table))

    config = Defended(algorithm="test")
    _check_columns(run_of("age"), config)
    _check_columns(run_of("nowhere", role="active"), config)
    _check_columns(run_of("nowhere"), OnDevice(algorithm="test"))
    for column, code in (("nowhere", "E_COLUMN"), ("same", "E_CONFIG")):
        with pytest.raises(UsageError, match=column) as caught:
            _check_columns(run_of(column), config)
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
