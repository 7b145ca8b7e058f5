"""The contract of predictions: a model is served only if its trainer names what predicts by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from vfl_node.errors import UsageError
from vfl_node.job.training import TRAINERS, TrainerConfig, TrainerParts
from vfl_node.training.predictor import predictor_of


class Unserved(TrainerConfig):
    """Says nothing of predictions."""

    parts: ClassVar[TrainerParts] = TrainerParts(implementation="", report_section="")


class Broken(TrainerConfig):
    """Names what is not there."""

    parts: ClassVar[TrainerParts] = replace(Unserved.parts, serving="vfl_node.training.predictor:Nothing")


def test_a_trainer_can_serve_if_it_names_what_predicts() -> None:
    assert {name for name in TRAINERS if TRAINERS[name].parts.serving} == {"split", "logistic", "linear", "hidden", "trees"}


@pytest.mark.parametrize("config", [None, Unserved(algorithm="test"), Broken(algorithm="test")])
def test_what_cannot_predict_is_refused(config: TrainerConfig | None) -> None:
    with pytest.raises(UsageError) as caught:
        predictor_of(config)
    assert caught.value.code == "E_EXTENSION"


def test_split_networks_predict(trial: Any) -> None:
    predictor = predictor_of(trial.job("train: {}").train)
    assert predictor.defended == {"embeddings"}
