"""Training in shares is plaintext training on the records that all parties own, whatever the alignment."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tests.thorough import every
from tests.training.hidden.conftest import plain_inputs, weights_of
from tests.training.hidden.plain import forward
from vfl_node.crypto.shares.machine import Counter
from vfl_node.training.hidden.computation import compute
from vfl_node.training.hidden.config import Hidden
from vfl_node.transport.channel import run
from vfl_node.transport.generated.vfl.v1.shares_pb2 import Corrections

pytestmark = pytest.mark.usefixtures("silent")

PROTOCOLS = [("psu", 0), ("psi", 0), ("apsi", 0), ("psu", 30)]
MODELS: list[tuple[dict[str, Any], float]] = [
    ({}, 1e-4),
    ({"loss": "taylor"}, 1e-4),
    ({"task": "regression", "learning_rate": 0.1}, 1e-4),
    ({"classes": 3}, 1e-4),
    ({"weight_decay": 0.05, "momentum": 0.0}, 1e-4),
    ({"layers": (5,)}, 1e-3),
    ({"layers": (4, 3), "task": "regression", "learning_rate": 0.05}, 1e-3),
    ({"layers": (4, 3, 3), "classes": 3}, 1e-3),
]


def over_for(world: Any, train: dict[str, Any], *given: Any, **more: Any) -> Any:
    return world(*given, classes=train.get("classes", 2), numbers=train.get("task") == "regression", **more)


def off(results: Any, reference: Any) -> float:
    return max(float(np.abs(ours - plain).max()) for ours, plain in zip(weights_of(results), reference, strict=True))


def moved(results: Any, first: Any) -> float:
    return max(float(np.abs(ours - of).max()) for ours, of in zip(weights_of(results), first, strict=True))


@pytest.mark.parametrize(("model", "alignment"), every(5, list(product(MODELS, PROTOCOLS))), ids=str)
def test_weights_are_those_of_plaintext(world: Any, attempt: Any, model: tuple[dict[str, Any], float], alignment: Any) -> None:
    (train, error), (protocol, dummies) = model, alignment
    over = over_for(world, train, 2, protocol, dummies=dummies)
    of = attempt(train | ({"metrics_by": "none"} if dummies else {}))
    results = of(over)
    assert off(results, of.reference(over)) < error
    assert moved(results, [0 * each for each in weights_of(results)]) > 0.05


@pytest.mark.parametrize(
    ("protocol", "model"), every(2, list(product(["psu", "psi"], [MODELS[0], MODELS[2], MODELS[5]]))), ids=str
)
def test_weights_of_three_parties(world: Any, attempt: Any, model: tuple[dict[str, Any], float], protocol: str) -> None:
    train, error = model
    over = over_for(world, train, 3, protocol)
    of = attempt(train)
    assert off(of(over), of.reference(over)) < error


@pytest.mark.parametrize("seed", every(2, range(5)))
@pytest.mark.parametrize("train", [{}, {"task": "regression", "learning_rate": 0.1}], ids=["logistic", "linear"])
def test_weights_of_other_tables_secrets_and_splits(world: Any, attempt: Any, train: dict[str, Any], seed: int) -> None:
    over = over_for(world, train, seed=seed)
    of = attempt(train, secret=str(seed))
    assert off(of(over), of.reference(over)) < 1e-4


def test_rows_outside_of_the_intersection_move_nothing(world: Any, attempt: Any) -> None:
    """A label or a cell of a record that one party lacks could be anything; of one that all own it could not."""
    over = world()
    whole = weights_of(attempt()(over))
    table, view = over.data["clinic"]
    for shared in (False, True):
        labels = table.labels.copy()
        rows = view.rows[view.owned & (over.both == shared)]
        labels[rows] = 1 - labels[rows]
        over.data["clinic"] = type(table)(table.ids, table.columns, labels), view
        found = weights_of(attempt()(over))
        assert (max(np.abs(a - b).max() for a, b in zip(found, whole, strict=True)) < 1e-5) != shared
        over.data["clinic"] = table, view


@pytest.mark.parametrize("seed", every(2, range(3)))
def test_the_model_ranks_as_plaintext_does(world: Any, attempt: Any, seed: int) -> None:
    over = world(people=1600, seed=seed)
    of = attempt({"batch_size": 128, "learning_rate": 0.2}, secret=str(seed))
    results = of(over)
    plan, train = of.plan(over), Hidden.section_of(of.job(over))
    x, y = plain_inputs(over, train, plan)
    tested = plan.testing[over.both[plan.testing]]

    def auc(weights: Any) -> float:
        return float(roc_auc_score(y[tested, 0], forward(plan.form, weights, x[tested])[0][:, 0]))

    ours = auc(weights_of(results))
    assert ours > 0.8
    assert abs(ours - auc(of.reference(over))) < 5e-4
    assert abs(ours - auc(of.reference(over, true_sigmoid=True))) < 2e-3
    assert abs(ours - results[0].results.metrics["auc"]) < 4e-3  # from 256 bins


def test_a_batch_has_as_many_shared_records_as_the_job_says(world: Any, attempt: Any) -> None:
    for protocol, rows in (("psu", 45), ("psi", 24), ("apsi", 24)):
        over, of = world(2, protocol), attempt({"batch_size": 24})
        section = of(over)[0].section
        assert (section.batch_rows, round(section.divisor)) == (rows, 24), protocol
    guessed = attempt({"batch_size": 24, "shared_fraction": 0.5})
    assert guessed(world(2, "apsi"))[0].section.batch_rows == 48
    whole = attempt({"batch_size": 4096})
    over = world()
    results = whole(over)
    assert results[0].section.batch_rows == results[0].rows[0] < len(over)
    assert results[0].section.divisor == pytest.approx(results[0].rows[0] * over.both.mean(), rel=0.01)  # of two digits
    assert off(results, whole.reference(over)) < 1e-4


DECLARED: list[dict[str, Any]] = [{}, {"loss": "taylor"}, {"layers": (4,)}, {"reveal": "none", "metrics_by": "none"}]


@pytest.mark.parametrize(("train", "parties"), every(3, list(product(DECLARED, [2, 3]))))
def test_what_is_sent_is_what_operations_declare(world: Any, attempt: Any, train: dict[str, Any], parties: int) -> None:
    over, of = world(parties), attempt(train)
    results = of(over)
    counter = Counter(parties)

    async def after(*of: Any) -> None: ...

    run(compute(counter, of.plan(over), None, None, 0, after))
    for place, (name, result) in enumerate(zip(over.data, results, strict=True)):
        assert result.section.rounds == counter.cost.rounds
        assert result.section.bytes == counter.cost.opened[place]
        assert result.section.dealer_bytes == counter.cost.dealt[place]
        assert sum(len(each.values) for each in of.sent(Corrections, receiver=name)) == counter.cost.dealt[place]
    assert of.coordination.result().section.dealer_bytes == sum(counter.cost.dealt.values())
