"""Predictions between parties by regressions that were trained under encryption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.training.additive import Asking, errors_of
from tests.training.linear.conftest import linear, numbers
from tests.training.logistic.conftest import Attempt, Shared, logistic, shared
from tests.training.logistic.several import among
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.configuration.models import validate
from vfl_node.errors import UsageError
from vfl_node.job import Align, Evaluate, Job, Serve
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.training.additive.half import AdditiveHalf
from vfl_node.training.glm import plain
from vfl_node.training.glm.predictor import GlmPredictor
from vfl_node.training.predictor import StoredModel
from vfl_node.training.targets import TargetScale

CLEAR = {"flow": "coordinator-open-scores"}
KINDS: dict[str, tuple[Any, Any]] = {
    "two classes": (lambda: shared(60, 60, protocol="psi"), lambda: logistic()),
    "classes": (lambda: shared(60, 60, protocol="psi", classes=3), lambda: logistic(classes=3, **CLEAR)),
    "blind": (lambda: shared(60, 60, protocol="psi"), lambda: logistic(flow="coordinator", loss="taylor")),
    "numbers": (lambda: numbers(rows=60, genuine=60, protocol="psi"), lambda: linear()),
    "three parties": (lambda: among(shared(60, 60, protocol="psi", lab=4), "lab", "insurer"), lambda: logistic(**CLEAR)),
}


def asking(over: Shared, train: Any, test_fraction: float = 0.3) -> tuple[Asking, Any]:
    """The model's parties, and what each has after training."""
    passive = tuple(name for name in over.data if name != "clinic")
    of = Attempt(train, Evaluate(test_fraction=test_fraction, metrics=("rmse",) if train.task == "regression" else ("auc",)))
    seeds = tuple(f"the secret of {name}".encode().ljust(32) for name in over.data)
    made = replace(of, passive=passive, seeds=seeds, hub=(of.hub[0],) * len(over.data))
    results = made(over)
    job = Job.model_construct(
        name="trained", parties=made.parties, align=Align(protocol="psi"), train=train, serve=Serve(to="both", batch_size=8)
    )
    models = {}
    for name, result in zip(over.data, results, strict=True):
        assert result.servable is not None
        models[name] = StoredModel(job, result.weights, result.encoder, result.servable.state)
    data = {
        name: (table, replace(view, peers={peer: replace(facts, missing=0) for peer, facts in view.peers.items()}))
        for name, (table, view) in over.data.items()
    }
    return Asking(data, models, GlmPredictor()), dict(zip(over.data, results, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_every_asker_gets_what_the_model_says(kind: str) -> None:
    table, train = KINDS[kind]
    asked, results = asking(table(), train())
    parts = [
        asked.predictor.open_half(asked.models[name]).columns(table)[view.rows] @ results[name].weights["weight"].numpy().T
        for name, (table, view) in asked.data.items()
    ]
    z = sum(parts) + results["clinic"].weights["bias"].numpy()
    unit = results["clinic"].weights.get("target")
    expected = plain.probabilities(z) if unit is None else TargetScale(*unit.tolist()).undo(z)
    for to in ("active", asked.parties.role_or_name(list(asked.data)[-1])):
        request, positions = asked.all_rows(to)
        assert errors_of(asked.talk(to, request)) == {}
        assert request.answered is not None
        answered = request.answered.reshape(len(positions), -1)
        np.testing.assert_allclose(answered, expected[positions], rtol=1e-9)
        np.testing.assert_allclose(request.answered, asked.together(positions), rtol=1e-9)
        assert np.ptp(answered) > 0.05


@pytest.mark.parametrize("width", [1, 3])
def test_a_part_has_the_same_bits_in_every_batch(width: int) -> None:
    """Whatever the weights are. All rows in one product would have other last bits in other batches."""
    rng = np.random.default_rng(0)
    columns, weight = rng.normal(size=(300, 37)), rng.normal(size=(width, 37)).T
    half, order = AdditiveHalf(lambda table: columns, weight), rng.permutation(300)
    view = Alignment(ALIGNMENTS["psi"], "curve25519", order, 300, {"lab": PeerFacts(300, intersection=300, missing=0)})
    together = half.part(columns, view, np.arange(300))
    np.testing.assert_allclose(together, columns[order] @ weight, rtol=0, atol=1e-12)
    for size in (1, 2, 7, 16, 299):
        parts = [half.part(columns, view, np.arange(300)[at : at + size]) for at in range(0, 300, size)]
        assert (np.concatenate(parts) == together).all()


def test_scores_of_rows_held_out_have_been_told_already() -> None:
    _, results = asking(shared(60, 60, protocol="psi"), logistic())
    assert {name: len(of.servable.tested) for name, of in results.items()} == {"clinic": 0, "lab": 18}
    assert (results["lab"].servable.tested == results["lab"].held_out).all()
    _, trained = asking(shared(60, 60, protocol="psi"), logistic(), test_fraction=0)
    assert len(trained["lab"].servable.tested) == 60


def test_rows_under_dummies_are_not_served() -> None:
    asked, _ = asking(shared(60, 40), logistic())
    view = shared(60, 40).clinic_view
    asked.data = {**asked.data, "clinic": (asked.data["clinic"][0], view)}
    request, _ = asked.all_rows("active")
    error = errors_of(asked.talk("active", request))["clinic"]
    assert isinstance(error, UsageError)
    assert error.code == "E_PREDICT"


def test_nobody_is_served_where_the_passive_party_has_the_labels() -> None:
    document = {
        "name": "logistic",
        "parties": {"active": "a", "passive": "b", "coordinator": "c"},
        "align": {"protocol": "psi"},
        "train": {"algorithm": "logistic", "flow": "coordinator", "loss": "taylor"},
        "evaluate": {"test_fraction": 0},
        "serve": {"to": "both"},
    }
    validate(document, Job, source="job")
    with pytest.raises(UsageError, match="serve needs labels: active"):
        validate(document | {"train": {**document["train"], "labels": "passive"}}, Job, source="job")  # type: ignore[dict-item]
