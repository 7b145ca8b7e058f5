"""What a job may say of training in shares."""

from __future__ import annotations

from typing import Any

import pytest

from vfl_node.configuration.models import validate
from vfl_node.errors import UsageError
from vfl_node.job import Job
from vfl_node.training.hidden.config import Hidden


def job(train: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    parties = {"active": "a", "passive": "b", "coordinator": "c"}
    return {"name": "hidden", "parties": parties, "train": {"algorithm": "hidden", **(train or {})}, **rest}


def section(train: dict[str, Any] | None = None, **rest: Any) -> Hidden:
    return Hidden.section_of(validate(job(train, **rest), Job, source="job"))


def test_a_job_needs_no_more_than_its_algorithm() -> None:
    train = section()
    assert (train.epsilon, train.columns, train.reveal) == (1.0, "plain", "none")
    assert (train.layers, train.loss, train.epochs, train.batch_size) == ((), "exact", None, None)
    assert (train.learning_rate, train.momentum, train.weight_decay) == (None, None, 0.0)
    assert (train.metrics_by, train.bins, train.shared_fraction) == ("histogram", 256, None)
    assert (train.form_loss, train.outputs, train.coordinated) == ("exact", 1, True)
    assert section({"task": "regression"}).form_loss == "robust"
    assert section({"task": "regression", "epsilon": None}).form_loss == "squares"
    assert section({"classes": 5}).outputs == 5
    assert section({"metrics_by": "none"}, align={"protocol": "psu", "dummies": 9}).metrics_by == "none"


TWO = {"active": "a", "passive": "b"}
LINKAGE = {
    "protocol": "linkage",
    "keys": {"u": {"kind": "number", "low": 0, "high": 1, "reach": 0.1}},
    "noise": {"sigma": 0.1},
}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (job(parties=TWO), "this training needs a third party: name it in parties.coordinator"),
        (job({"missing": {}}), "unknown key 'train.missing'"),
        (job({"layers": [4], "loss": "taylor", "epsilon": None}), "loss: taylor is good for small scores alone"),
        (job({"layers": [4]}), "hidden layers have no bound on what the model tells of single records: say epsilon: null"),
        (job({"loss": "taylor"}), "loss: taylor has no bound on what the model tells of single records: say epsilon: null"),
        (job({"batch_size": 512}), "with epsilon each step takes all rows, as noise is dealt for each: leave batch_size out"),
        (job({"epsilon": 0}), "train.epsilon"),
        (job({"layers": [4, 4, 4, 4]}), "train.layers"),
        (job({"layers": [0]}), "train.layers"),
        (job({"task": "regression", "loss": "taylor"}), "loss is for task: classification"),
        (job({"task": "regression", "classes": 3}), "classes is for task: classification"),
        (job({"loss": "squares"}), "train.loss"),
        (job({"learning_rate": float("nan")}), "train.learning_rate"),
        (job({"learning_rate": 0}), "train.learning_rate"),
        (job({"momentum": 1}), "train.momentum"),
        (job({"weight_decay": float("inf")}), "train.weight_decay"),
        (job({"shared_fraction": 0}), "train.shared_fraction"),
        (job({"bins": 100}), "train.bins"),
        (job(evaluate={"repeats": 2}), "evaluate.repeats must be 1 with hidden"),
        (job(evaluate={"validation_fraction": 0.1}), "evaluate.validation_fraction must be 0 with hidden"),
        (job(evaluate={"matched": True}), "evaluate.matched"),
        (job(evaluate={"contributions": True}), "evaluate.contributions"),
        (job(evaluate={"hold_out": {"last": 0.2}}), "evaluate.hold_out"),
        (job(align={"protocol": "psu", "dummies": 9}), "train.metrics_by must be none with align.dummies"),
        (job(align=LINKAGE), "train.algorithm: hidden does not train on that"),
        (
            job(align={"protocol": "apsi", "obfuscation": {"fraction": 0.5}}, evaluate={"share_with_passive": True}),
            "evaluate.share_with_passive must be false with apsi",
        ),
    ],
)
def test_what_a_job_cannot_have(document: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate(document, Job, source="job")
    assert said in caught.value.message


def test_it_stands_among_what_a_coordinator_is_for() -> None:
    with pytest.raises(UsageError, match=r"takes part in .*train\.algorithm: hidden with randomness: coordinator and "):
        validate(job() | {"train": {"algorithm": "split"}}, Job, source="job")
