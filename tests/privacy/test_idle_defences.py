"""Which defences change something: what a report says of them, and what it warns of."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from vfl_node.privacy.defences.idle import effective, idle_defences, idle_feature_audit, idle_label_limit
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import FeatureAuditSettings, Protection

NOISE, NONE = {"name": "noise", "sigma": 1}, {"name": "noise", "sigma": 0}
SPLIT = {"embeddings", "gradients"}


@pytest.mark.parametrize(
    ("role", "defended", "activity", "defences", "idle"),
    [
        ("passive", SPLIT, "training", [NOISE], ""),
        ("active", SPLIT, "training", [NOISE], ""),
        ("active", SPLIT, "training", [], ""),
        ("active", SPLIT, "training", [NOISE, NONE], "noise"),
        ("passive", SPLIT, "training", [NONE], "noise"),
        ("passive", set(), "training", [NOISE], "noise"),
        ("active", set(), "training", [NOISE, {"name": "noise", "sigma": 2}], "noise, noise"),
        ("passive", set(), "training", [], ""),
        ("passive", {"embeddings"}, "predictions", [NOISE], ""),
        ("active", {"embeddings"}, "predictions", [NOISE], "noise"),
    ],
)
def test_a_defence_that_changed_nothing_is_a_warning(
    role: str, defended: set[str], activity: Literal["training", "predictions"], defences: list[dict[str, Any]], idle: str
) -> None:
    warnings = idle_defences([read_params(entry) for entry in defences], role, defended, activity)
    assert len(warnings) == bool(idle)
    assert all(warning.endswith(f"in {activity}: {idle}.") for warning in warnings)


def test_in_predictions_a_defence_of_the_training_protects_only_a_model_that_had_it() -> None:
    fbs = {"name": "fbs", "columns": ["age"]}
    both = [read_params(entry) for entry in (fbs, NOISE)]
    assert idle_defences(both, "passive", SPLIT, "training") == ()
    (warning,) = idle_defences(both, "passive", {"embeddings"}, "predictions")
    assert warning.endswith("if the model was trained with them, and else not: fbs.")
    assert "age" not in warning
    assert idle_defences([read_params(NOISE)], "passive", {"embeddings"}, "predictions") == ()


@pytest.mark.parametrize(
    ("role", "defended", "activity", "warned"),
    [
        ("passive", SPLIT, "training", False),
        ("passive", set(), "training", True),
        ("passive", {"embeddings"}, "predictions", True),
        ("active", SPLIT, "training", True),
    ],
)
def test_columns_that_nobody_tried_to_rebuild_are_a_warning(
    role: str, defended: set[str], activity: Literal["training", "predictions"], warned: bool
) -> None:
    chosen = FeatureAuditSettings(columns="all")
    assert bool(idle_feature_audit(chosen, role, defended, activity)) == warned
    assert idle_feature_audit(None, role, defended, activity) == ()


def test_noise_of_standard_deviation_0_is_not_effective() -> None:
    at_work, idle = read_params(NOISE), read_params(NONE)
    assert effective([idle, at_work], "gradients") == (at_work,)


def test_a_limit_on_labels_that_nothing_could_keep_is_said() -> None:
    limited = Protection(max_label_auc=0.8)
    (text,) = idle_label_limit(limited, "active", {})
    assert "attacks.labels stopped nothing" in text
    assert idle_label_limit(limited, "active", {"norm": 0.6}) == ()
    assert idle_label_limit(Protection(), "active", {}) == ()
    assert idle_label_limit(limited, "coordinator", {}) == ()
