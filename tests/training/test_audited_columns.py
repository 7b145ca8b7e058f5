"""A training whose passive party tries to rebuild its own columns from what it sends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.thorough import THOROUGH, examples
from tests.training.conftest import synthetic
from tests.training.test_resume import Fatal, KilledError
from vfl_node.errors import PolicyError, UsageError
from vfl_node.job import Evaluate
from vfl_node.settings.protection import FeatureAuditSettings, Protection
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.network import journal

COLUMNS = FeatureAuditSettings(columns=("z0", "colour"), known_share=0.2)


REPEATS = examples(2, fewer=1)


@pytest.fixture(scope="module")
def parties() -> Any:
    return synthetic(900)


def audited(run: Any, limit: float | None = None, features: FeatureAuditSettings = COLUMNS, **more: Any) -> Any:
    lab = Protection(membership=False, features=features, max_feature_gain=limit)
    evaluate = Evaluate(test_fraction=0.25, repeats=REPEATS)
    return run(evaluate=evaluate, protections=(Protection(membership=False), lab), **more)


def test_a_passive_party_sees_how_well_its_columns_are_rebuilt_and_no_message_changes(run: Any, parties: Any) -> None:
    seen, unseen = audited(run), run(evaluate=Evaluate(test_fraction=0.25, repeats=REPEATS))
    clinic, lab = seen(parties)
    unseen(parties)
    assert [message.SerializeToString() for message in seen.transcript] == [
        message.SerializeToString() for message in unseen.transcript
    ]
    assert clinic.audits.features is None
    assert set(lab.audits.features) == {"z0", "colour"}
    assert lab.audits.features["z0"]["worst"] > 0.3  # of its variance
    assert lab.audits.features["colour"]["worst"] > lab.audits.features["colour"]["constant"] + 0.1
    assert all(found["held_out"] is not None for found in lab.audits.features.values())
    assert [set(epoch.rebuilt["z0"]) for epoch in lab.epochs] == [{"constant", "static", "adaptive", "stacked"}] * 3
    assert not any(epoch.rebuilt for epoch in clinic.epochs)


def test_training_stops_where_a_column_is_rebuilt_too_well_and_the_peer_learns_no_name(run: Any, parties: Any) -> None:
    stopped = audited(run, limit=0.05).raw(parties)[1]
    assert isinstance(stopped, PolicyError)
    assert (stopped.code, stopped.peer_code) == ("E_LEAK", "E_STOPPED")
    assert stopped.for_peer == "stopped by lab's policy"
    assert not any(word in stopped.message for word in COLUMNS.columns)  # a message is logged


def test_all_columns_that_vary_are_tried(run: Any, parties: Any) -> None:
    train = run().train.model_copy(update={"epochs": 1})
    _, lab = audited(run, train=train, features=FeatureAuditSettings(columns="all", known_share=0.2))(parties)
    assert set(lab.audits.features) == set(parties.lab.columns)


def test_too_few_known_rows_are_refused_before_anything_is_sent(run: Any, parties: Any) -> None:
    made = audited(run, features=FeatureAuditSettings(columns="all", known_share=0.01))
    _, refused = made.raw(parties)
    assert isinstance(refused, UsageError)
    assert "known_share" in refused.message
    assert not [message for message in made.transcript if type(message).__name__ == "Embedding"]


@pytest.mark.parametrize("at", ["r000-e000001", *(["r001-e000001"] if THOROUGH else [])])
def test_an_audit_of_columns_goes_on_after_a_kill_with_the_same_bits(
    run: Any, parties: Any, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)
    train = run().train.model_copy(update={"batch_size": 50, "epochs": 2})
    features = COLUMNS.model_copy(update={"columns": ("colour",)})
    _, expected = audited(run, train=train, features=features)(parties)
    kept = MemoryCheckpoints(100), Fatal(at)
    killed = audited(run, train=train, features=features, checkpoints=kept)
    assert isinstance(killed.raw(parties)[1], KilledError)
    _, lab = audited(run, train=train, features=features, checkpoints=kept, pins=killed.pins, resume_from=at)(parties)
    assert lab.audits.features == expected.audits.features
    assert [epoch.rebuilt for epoch in lab.epochs] == [epoch.rebuilt for epoch in expected.epochs]
