"""What a job may say of training over candidates, and what it tells in the report."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from vfl_node.configuration.models import validate
from vfl_node.errors import UsageError
from vfl_node.job import Evaluate, Job
from vfl_node.job.costs import Beside, TableShape
from vfl_node.models import architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.counts import weights
from vfl_node.models.schema import InputSchema
from vfl_node.settings.defences import read_params
from vfl_node.settings.protection import FeatureAuditSettings, Protection
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.methods import METHODS
from vfl_node.training.candidates.network import ActiveNetwork, LinearCut
from vfl_node.training.candidates.trainer import LinkedTrainer
from vfl_node.training.words import ReportedTraining
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_channels


def job(train: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    keys = {"u": {"kind": "number", "low": 0, "high": 1, "reach": 0.05}}
    align = {"protocol": "linkage", "keys": keys, "candidates": 20, "noise": {"sigma": 0.4}}
    return {
        "name": "linked",
        "parties": {"active": "a", "passive": "b", "coordinator": "c"},
        "train": {"algorithm": "candidates", **(train or {})},
        **rest,
        "align": {**align, **rest.get("align", {})},
    }


def test_a_job_needs_no_more_than_its_algorithm() -> None:
    section = validate(job(), Job, source="job").train
    assert isinstance(section, Linked)
    assert (section.method, section.cut, section.optimizer, section.merge) == ("fedsim", "linear", "lamb", "conv")
    assert (section.pair_outputs, section.similarity_hidden, section.channels, section.kernel) == (10, 10, 8, 7)
    assert (section.top, section.merge_hidden, section.dropout) == ((100,), (400,), 0.3)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (job(serve={"to": "active"}), "serve keeps a trained model"),
        (job(parties={"active": "a", "passive": ["b", "d"], "coordinator": "c"}), "parties.passive"),
        (job({"method": "exact"}), "align.equal_only: true"),
        (job({"method": "exact"}, align={"equal_only": True}), "align.candidates: 1"),
        (job({"method": "nearest"}), "method"),
        (job({"merge": "max"}), "merge"),
        (job({"cut": "relu"}), "cut"),
        (job({"method": "top1", "kernel": 3}), "kernel changes nothing"),
        (job({"merge": "mean", "channels": 3}), "channels changes nothing"),
        (job({"method": "feature", "merge": "mean"}), "merge changes nothing"),
        (job({"missing": {"labels": "majority"}}), "missing"),
        (job({"unaligned": {"method": "none"}}), "unaligned"),
        (job({"batch_norm": True}), "batch_norm"),
        (job({"patience": 3}), "evaluate.validation_fraction"),
        (job({"task": "regression", "classes": 3}), "classes"),
        (job(evaluate={"matched": True}), "evaluate.matched"),
        (job(evaluate={"contributions": True}), "evaluate.contributions"),
        (job(evaluate={"hold_out": {"last": 0.2}}), "evaluate.hold_out"),
        (job() | {"train": {"algorithm": "split"}}, "candidates"),
    ],
)
def test_what_does_not_go_together_is_refused_and_named(document: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        validate(document, Job, source="job")
    assert said in refused.value.message


def test_exact_goes_with_one_candidate_of_equal_keys() -> None:
    found = validate(job({"method": "exact"}, align={"equal_only": True, "candidates": 1}), Job, source="job")
    assert found.train.how.equal


@pytest.mark.parametrize(
    ("number", "protection", "named"),
    [
        (0, Protection(defences=(read_params({"name": "noise", "sigma": 0.1}),)), "the defence 'noise'"),
        (1, Protection(defences=(read_params({"name": "noise", "sigma": 0.1}),)), "the defence 'noise'"),
        (1, Protection(max_feature_gain=0.1), "attacks.columns"),
        (0, Protection(max_label_auc=0.6), "attacks.labels"),
    ],
)
def test_settings_that_would_protect_nothing_refuse_the_job(
    linked: Any, linked_run: Any, number: int, protection: Protection, named: str
) -> None:
    protections = (protection, protection)
    both, channels = linked_run(protections=protections), memory_channels("clinic", "lab")
    session = both.session(("clinic", "lab")[number], channels[number], number, linked(20, 10, 2))
    with pytest.raises(UsageError) as refused:
        LinkedTrainer().prepare(session)
    assert refused.value.code == "E_CONFIG"
    assert refused.value.message.startswith(named)
    LinkedTrainer().prepare(linked_run().session("clinic", channels[0], 0, linked(20, 10, 2)))


SIMILARITIES = {
    "fedsim": "It is the longer the more the record counts",
    "mean": "All candidates of a row count alike",
    "top1": "Where it is 0 the record has the largest similarity of none",
    "feature": "Each candidate has its own residual, which depends on its similarity",
}
"""Method → what the ledger says that gradients tell of similarities."""


def test_the_owner_of_an_audit_that_does_not_run_is_told(linked: Any, linked_run: Any, small: Any) -> None:
    train, linkage = small.model_copy(update={"epochs": 1}), linked(60, 40, 3)
    asked = (Protection(), Protection(features=FeatureAuditSettings(columns="all")))
    warnings = [of.warnings for of in linked_run(train=train, protections=asked)(linkage)]
    assert [len(of) for of in warnings] == [1, 1]
    assert "no audit.labels" in warnings[0][0]
    assert "no audit.features" in warnings[1][0]
    asked = (Protection(labels=False), Protection())
    assert [of.warnings for of in linked_run(train=train, protections=asked)(linkage)] == [(), ()]


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.equal])
def test_both_ledgers_say_the_same_and_what_is_told(linked: Any, linked_run: Any, small: Any, method: str) -> None:
    layers = {} if METHODS[method].gates else {"pair_outputs": 10, "channels": 8, "kernel": 7, "merge_hidden": (400,)}
    train = small.model_copy(update={"method": method, "epochs": 1, **layers})
    both = linked_run(train=train, evaluate=Evaluate(metrics=("rmse",), validation_fraction=0.1))
    ours, theirs = both(linked(100, 60, 4))
    assert ours.disclosures == theirs.disclosures
    told = {entry.what: entry for entry in ours.disclosures["clinic"]}
    assert told["linked embeddings"].count == ours.section.embeddings
    assert "Over many batches that shows which of all candidates are." in told["linked embeddings"].text
    assert "noise does not prevent it" in told["linked embeddings"].text
    told = {entry.what: entry for entry in ours.disclosures["lab"]}
    assert "summed over the rows" in told["linked gradients"].text
    assert told["linked gradients"].count == sum(of.tensor.shape[0] for of in both.sent(training_pb2.Gradient))
    assert SIMILARITIES[method] in told["linked gradients"].text
    assert told["figures"].count == 0


def test_the_page_says_what_was_done(linked: Any, linked_run: Any, small: Any) -> None:
    evaluate = Evaluate(metrics=("rmse",), test_fraction=0)  # so that no row is held out
    ours, _ = linked_run(train=small.model_copy(update={"epochs": 1}), evaluate=evaluate)(linked(100, 60, 4))
    of = ReportedTraining(small, "clinic", "active", "lab", "clinic", "lab", "notary", 1, ours.steps, 1)
    terms = {term.title: term.values for term in ours.section.words(of).terms}
    assert terms["Candidates"][0][0] == "fedsim"
    assert terms["Embeddings sent"] == ((ours.section.embeddings, " for "), (ours.section.places, " candidates"))
    assert terms["Weight and similarity"] == ((f"rank correlation {ours.section.spearman:.2f} on the rows measured on",),)


def test_columns_behind_keys_are_in_no_encoder_and_no_weights(linked: Any, linked_run: Any, small: Any) -> None:
    """A table's keys are no columns of it; what is kept has nothing else."""
    ours, theirs = linked_run(train=small)(linked(100, 60, 4))
    names = [[column["name"] for column in json.loads(of.encoder)["columns"]] for of in (ours, theirs)]
    assert names == [["x0"], ["z", "kind"]]
    assert ours.weights["bottom.cut.weight"].shape == (8, 1)
    assert theirs.weights["bottom.hidden.layers.0.weight"].shape == (16, 1 + small.embedding_size)
    assert not any("key" in name for of in (ours, theirs) for name in of.weights)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"merge": "mean"},
        {"method": "feature", "task": "classification", "classes": 3},
        {"merge_hidden": (), "top": ()},
        {"method": "top1"},
    ],
)
def test_weights_are_counted_as_they_are_built(said: dict[str, Any]) -> None:
    train, table = Linked(algorithm="candidates", bottom=(20, 10), active_bottom=(6,), **said), TableShape(100, 3, (4,))
    schema, beside = InputSchema(3, (4,)), Beside(5)
    assert train.make_plan(1, beside).parameters("passive", table) == weights(lambda: LinearCut(schema, train.bottom, train))
    joint = weights(lambda: ActiveNetwork(train, schema, np.ones((1, 5), np.float32)))
    alone = weights(lambda: build_classifier(architecture_of("mlp"), train, schema, []))
    assert train.make_plan(1, beside).parameters("active", table) == joint + alone


def test_steps_are_counted() -> None:
    assert Linked(algorithm="candidates").make_plan().steps(Evaluate(test_fraction=0.2), 1000) == 30 * (800 // 128)
