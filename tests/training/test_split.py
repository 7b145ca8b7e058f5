"""The training loop: same bits again, what crosses the wire, what goes wrong and how it is said."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from tests.thorough import every
from vfl_node.errors import DataError, ProtocolError, StateError, UsageError
from vfl_node.job import Evaluate
from vfl_node.job.evaluate import METRICS
from vfl_node.metrics.classes import auc
from vfl_node.training import messages
from vfl_node.training.split import base_rates
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.summary import Population, Summary
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2

Make = Callable[..., Any]


def same(ours: Any, theirs: Any) -> bool:
    """Whether two results have the same bits."""
    weights = ours.weights.keys() == theirs.weights.keys() and all(
        torch.equal(ours.weights[name], theirs.weights[name]) for name in ours.weights
    )
    figures = ("epochs", "steps", "results", "encoder")
    return weights and all(getattr(ours, name) == getattr(theirs, name) for name in figures)


def tensors(transcript: list[Any], kind: type) -> list[torch.Tensor]:
    return [
        codec.decode(message.tensor, dtype=torch.float32, shape=tuple(message.tensor.shape))
        for message in transcript
        if isinstance(message, kind)
    ]


@pytest.mark.parametrize("model", ["mlp", pytest.param("wide_deep", marks=pytest.mark.slow)])
def test_the_same_randomness_gives_the_same_bits_and_other_randomness_does_not(synthetic: Make, run: Any, model: str) -> None:
    parties = synthetic(200)
    train = run().train.model_copy(update={"model": model})
    first, again = run(train=train), run(train=train)
    results = first(parties)
    for ours, theirs in zip(results, again(parties), strict=True):
        assert same(ours, theirs)
    assert first.transcript == again.transcript
    for other in (run(train=train, clinic_seed=b"x" * 32), run(train=train, lab_seed=b"x" * 32)):
        assert not same(other(parties)[0], results[0])


def test_training_leaves_the_global_generators_alone(synthetic: Make, run: Any) -> None:
    before, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()
    run()(synthetic(100))
    assert torch.equal(before, torch.get_rng_state())
    assert (numpys == np.random.get_state()[1]).all()


def test_the_result_tells_what_was_done(synthetic: Make, run: Any) -> None:
    parties = synthetic(1000)
    both = run()
    active, passive = both(parties)
    training, testing = both.schedule(parties).split(0, 0.2)
    assert len(active.epochs) == len(passive.epochs) == 3
    assert active.steps == passive.steps == 3 * -(-len(training) // 64)
    assert active.device == "cpu"
    owned = parties.clinic_view.owned
    share = parties.clinic_view.peer.intersection / parties.clinic_view.ours
    assert active.results.population == Population("owned", int(owned[testing].sum()), share)
    assert active.results.metrics.keys() == active.results.alone.metrics.keys() == {"auc", "ace", "nll", "accuracy"}
    for intervals in (active.results.intervals, active.results.alone.intervals, active.results.alone.gains):
        assert {name: of["method"] for name, of in intervals.items()} == {
            "auc": "delong",
            "ace": "bootstrap",
            "nll": "bootstrap",
            "accuracy": "bootstrap",
        }
    assert active.results.intervals["auc"]["mean"] == active.results.metrics["auc"]
    assert active.results.alone.gains["nll"]["mean"] == pytest.approx(
        active.results.metrics["nll"] - active.results.alone.metrics["nll"]
    )
    assert active.results.repeats == {name: [value] for name, value in active.results.metrics.items()}
    assert active.results.alone.repeats == {name: [value] for name, value in active.results.alone.metrics.items()}
    assert active.results.metrics["auc"] > 0.75
    assert active.results.curve
    assert active.results.alone.curve
    assert active.results.curve != active.results.alone.curve
    for result, table in ((active, parties.clinic), (passive, parties.lab)):
        assert [column.name for column in result.columns] == list(table.columns)
        assert {column.kind: column.transform for column in result.columns} == {"numeric": "standard", "categorical": None}
    assert all(epoch.bytes > len(training) * 8 * 4 * 2 and epoch.seconds == 1 for epoch in active.epochs)
    assert set(active.weights) > {"top.output.weight", "bottom.layers.0.weight"}
    assert set(passive.weights) == {
        f"bottom.{name}"
        for name in ("categories.0.weight", "layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias")
    }


@pytest.mark.parametrize("evaluate", [Evaluate(repeats=2), Evaluate(test_fraction=0)], ids=["repeats", "nothing held out"])
def test_what_is_learnt_is_counted_as_it_crosses(synthetic: Make, run: Any, evaluate: Evaluate) -> None:
    parties = synthetic(100)
    both = run(evaluate=evaluate)
    active, passive = both(parties)

    def crossed(kind: type) -> int:
        return sum(message.tensor.shape[0] for message in both.transcript if isinstance(message, kind))

    assert {entry.what: entry.count for entry in active.disclosures["clinic"]} == {
        "embeddings": crossed(training_pb2.Embedding),
        "membership": parties.lab_view.missing,
    }
    assert {entry.what: entry.count for entry in passive.disclosures["lab"]} == {
        "gradients": crossed(training_pb2.Gradient),
        "membership": parties.clinic_view.missing,
        "figures": 0,
    }
    assert "a copied row has a twin" in active.disclosures["clinic"][1].text
    assert "not the synthetic class" in passive.disclosures["lab"][1].text


def test_where_nothing_is_filled_in_nothing_is_said_of_it(synthetic: Make, run: Any) -> None:
    active, passive = run()(synthetic(100, (1.0, 1.0)))
    said = " ".join(entry.text for entry in active.disclosures["clinic"] + passive.disclosures["lab"])
    assert "embedding" in said
    assert "the label of every row trained on can be read from the gradients almost surely" in said
    for word in ("synthetic", "twin", "lacks", "holds"):
        assert word not in said


def test_each_knows_of_the_other_what_the_other_learnt(synthetic: Make, run: Any) -> None:
    for share, metrics, told in ((False, ("auc", "nll"), 0), (True, ("auc", "nll"), 3 * 2 + 2), (True, ("nll",), 3 + 1)):
        active, passive = run(evaluate=Evaluate(share_with_passive=share, metrics=metrics))(synthetic(100))
        assert list(active.disclosures) == ["clinic", "lab"]
        assert list(passive.disclosures) == ["lab", "clinic"]
        assert active.disclosures == passive.disclosures
        assert {entry.what: entry.count for entry in active.disclosures["lab"]}["figures"] == told


def test_where_rows_stand_for_no_record_nobody_knows_what_the_other_lacks(synthetic: Make, run: Any) -> None:
    parties = synthetic(100)
    clinic, lab = (
        dataclasses.replace(view, peers={name: dataclasses.replace(facts, intersection=None, missing=None)})
        for view in (parties.clinic_view, parties.lab_view)
        for name, facts in view.peers.items()
    )
    for result in run()(dataclasses.replace(parties, clinic_view=clinic, lab_view=lab)):
        for entries in result.disclosures.values():
            assert {entry.what: entry.count for entry in entries}["membership"] is None


@pytest.mark.parametrize("owned", [(1.0, 0.5), (0.5, 1.0)])
def test_each_is_told_only_of_rows_that_its_peer_lacks(synthetic: Make, run: Any, owned: tuple[float, float]) -> None:
    active, passive = run()(synthetic(100, owned))
    assert any("twin" in entry.text for entry in active.disclosures["clinic"]) == (owned[1] < 1)
    assert any("synthetic" in entry.text for entry in passive.disclosures["lab"]) == (owned[0] < 1)


def test_the_passive_party_is_told_loss_and_metrics_only_if_the_job_says_so(synthetic: Make, run: Any) -> None:
    parties = synthetic(200)
    silent, telling = run(), run(evaluate=Evaluate(share_with_passive=True))
    active, passive = silent(parties)
    assert passive.results is None
    assert all(epoch.loss is epoch.auc is None for epoch in passive.epochs)
    assert not any(isinstance(message, training_pb2.Shared) for message in silent.transcript)
    active, passive = telling(parties)
    assert passive.results.metrics == {name: round(value, 3) for name, value in active.results.metrics.items()}
    figures = [(round(epoch.loss, 3), round(epoch.auc, 3)) for epoch in active.epochs]
    assert [(epoch.loss, epoch.auc) for epoch in passive.epochs] == figures
    assert passive.results.alone is None
    shared = [message for message in telling.transcript if isinstance(message, training_pb2.Shared)]
    assert json.loads(shared[0].json).keys() == {"epochs", "metrics"}


def test_rows_on_the_wire_look_alike_whether_real_or_synthetic(synthetic: Make, run: Any) -> None:
    parties = synthetic(1000, (0.6, 0.6))
    both = run()
    both.train = both.train.model_copy(update={"bottom": (32, 32), "top": (32,)})
    both(parties)
    training, testing = both.schedule(parties).split(0, 0.2)
    steps = [batch for epoch in range(3) for batch in both.schedule(parties).batches(0, epoch, training, 64)]
    embeddings, gradients = tensors(both.transcript, training_pb2.Embedding), tensors(both.transcript, training_pb2.Gradient)
    assert len(gradients) == len(steps)
    assert sum(len(h) for h in embeddings[len(steps) :]) == len(testing)  # evaluation goes through every test row
    for batch, h, g in zip(steps, embeddings, gradients, strict=False):
        assert h.shape == g.shape == (len(batch), 32)
    positions = np.concatenate(steps)
    labels = parties.clinic.labels[parties.clinic_view.rows]
    real_row, labelled = parties.lab_view.owned, parties.clinic_view.owned
    for rows, real, made_up in (
        (torch.cat(embeddings[: len(steps)]), real_row, ~real_row),
        (torch.cat(gradients), labelled & (labels == 0), ~labelled),  # the synthetic label is 0
    ):
        assert rows.isfinite().all()
        norms = rows.norm(dim=1)
        assert (norms > 0).all()
        real, made_up = norms[real[positions]], norms[made_up[positions]]
        for quantile in (0.01, 0.5, 0.99):
            assert 0.5 < made_up.quantile(quantile) / real.quantile(quantile) < 2


@pytest.mark.parametrize("model", ["mlp", "wide_deep"])
def test_a_gradient_tells_the_label_used_as_the_documentation_says(synthetic: Make, run: Any, model: str) -> None:
    """No defence is built in: unit gradients lie along one direction, one class at either end of it."""
    parties = synthetic(1000, positives=0.1)
    both = run()
    both.train = both.train.model_copy(update={"model": model, "epochs": 1, "bottom": (32, 32), "top": (32,)})
    both(parties)
    training, _ = both.schedule(parties).split(0, 0.2)
    order = np.concatenate(both.schedule(parties).batches(0, 0, training, 64))
    unit = torch.nn.functional.normalize(torch.cat(tensors(both.transcript, training_pb2.Gradient)))
    along = unit @ torch.linalg.svd(unit, full_matrices=False).Vh[0]
    if (along > 0).float().mean() > 0.5:
        along = -along
    owned = parties.clinic_view.owned[order]
    used = np.where(owned, parties.clinic.labels[parties.clinic_view.rows[order]], 0)
    assert auc(used.astype(np.float32), along.double().numpy()) > 0.99


def test_a_synthetic_row_is_an_embedding_of_the_same_real_row_every_time(synthetic: Make, run: Any) -> None:
    """With a learning rate too small to change a float, each position's embedding never moves."""
    parties = synthetic(200, (0.6, 0.6))
    both = run()
    both.train = both.train.model_copy(update={"learning_rate": 1e-30, "optimizer": "sgd"})
    both(parties)
    schedule = both.schedule(parties)
    training, _ = schedule.split(0, 0.2)
    sent = tensors(both.transcript, training_pb2.Embedding)
    per_epoch = -(-len(training) // 64)
    seen = []
    for epoch in range(3):
        order = np.concatenate(schedule.batches(0, epoch, training, 64))
        seen.append(torch.cat(sent[epoch * per_epoch : (epoch + 1) * per_epoch])[np.argsort(order)])
    torch.testing.assert_close(seen[0], seen[1])
    torch.testing.assert_close(seen[0], seen[2])
    lacking = ~parties.lab_view.owned[training]
    distances = torch.cdist(seen[0][lacking], seen[0][~lacking])
    assert (distances.min(dim=1).values < 1e-5).float().mean() > 0.5  # twins of rows trained on; others are of test rows


def test_the_schedule_does_not_depend_on_who_owns_what(synthetic: Make, run: Any) -> None:
    orders = []
    for seed in (0, 1):
        parties = synthetic(300, (1.0, 0.5), seed=seed)
        both = run()
        both(parties)
        orders.append(
            (len(parties.people), parties.lab_view.owned.tolist(), both.checkpoints[0].load("r000-e000003").meta["schedule"])
        )
    (size, owned, schedule), (other_size, other_owned, other_schedule) = orders
    assert size == other_size
    assert owned != other_owned
    assert schedule == other_schedule


def test_repeats_start_from_new_weights_and_give_intervals(synthetic: Make, run: Any) -> None:
    parties = synthetic()
    active, passive = run(evaluate=Evaluate(repeats=3))(parties)
    once, _ = run()(parties)
    averaged = dict.fromkeys(("results", "steps"))
    assert same(dataclasses.replace(active, **averaged), dataclasses.replace(once, **averaged))
    assert active.results.population == once.results.population
    for of in (active.results, active.results.alone):
        assert {name: len(values) for name, values in of.repeats.items()} == dict.fromkeys(of.metrics, 3)
        assert {name: np.mean(values) for name, values in of.repeats.items()} == pytest.approx(of.metrics)
    assert active.results.repeats["auc"][0] == once.results.metrics["auc"]
    assert active.results.confusion == once.results.confusion
    assert active.steps == passive.steps == 3 * once.steps
    for intervals in (active.results.intervals, active.results.alone.intervals, active.results.alone.gains):
        assert intervals.keys() == {"auc", "ace", "nll", "accuracy"}
        assert all(of["low"] <= of["mean"] <= of["high"] and of["method"] == "repeats" for of in intervals.values())
    assert active.results.metrics["auc"] == pytest.approx(active.results.intervals["auc"]["mean"])
    assert active.results.alone.gains["auc"]["mean"] == pytest.approx(
        active.results.metrics["auc"] - active.results.alone.metrics["auc"]
    )


def test_every_metric_at_a_threshold_beside_the_constant(synthetic: Make, run: Any) -> None:
    parties = synthetic()
    told = Evaluate(metrics=METRICS["classification"], threshold=0.3, share_with_passive=True)
    both = run(evaluate=told)
    active, passive = both(parties)
    view, table = parties.clinic_view, parties.clinic
    training, testing = (rows[view.owned[rows]] for rows in both.schedule(parties).split(0, 0.2))
    labels, rate = table.labels[view.rows[testing]], table.labels[view.rows[training]].mean()
    constant = -np.where(labels == 1, np.log(rate), np.log1p(-rate)).mean()
    assert active.results.constant["nll"] == pytest.approx(constant)
    for of in (active.results, active.results.alone):
        values, ((right, false_alarms), (missed, hits)) = of.metrics, of.confusion
        assert [right + false_alarms, missed + hits] == [np.count_nonzero(labels == label) for label in (0, 1)]
        assert values["accuracy"] == pytest.approx((right + hits) / len(labels))
        assert values["f1"] == pytest.approx(2 * hits / (2 * hits + false_alarms + missed))
    assert active.results.confusion != run(evaluate=told.model_copy(update={"threshold": 0.5}))(parties)[0].results.confusion
    assert set(active.results.intervals) == set(METRICS["classification"])
    assert passive.results == Summary({name: round(value, 3) for name, value in active.results.metrics.items()})


def test_metrics_of_several_classes(synthetic: Make, run: Any) -> None:
    names = ("auc", "pr_auc", "accuracy", "f1", "ace", "nll")
    parties = synthetic()
    labels = parties.clinic.labels * (1 + np.arange(len(parties.clinic)) % 2)
    parties = dataclasses.replace(parties, clinic=dataclasses.replace(parties.clinic, labels=labels))
    active, _ = run(train=run().train.model_copy(update={"classes": 3}), evaluate=Evaluate(metrics=names))(parties)
    assert all(value is not None for value in active.results.metrics.values())
    assert np.shape(active.results.confusion) == (3, 3)
    assert active.results.metrics["accuracy"] == pytest.approx(
        np.trace(active.results.confusion) / np.sum(active.results.confusion)
    )
    assert set(active.results.intervals) == set(names)
    assert 0 < active.results.constant["nll"] < np.log(3)


def test_without_a_test_fraction_the_training_rows_are_evaluated(synthetic: Make, run: Any) -> None:
    parties = synthetic()
    active, _ = run(evaluate=Evaluate(test_fraction=0))(parties)
    assert active.results.population.rows == parties.clinic_view.ours


def test_an_active_party_without_features_has_no_local_model(synthetic: Make, run: Any) -> None:
    parties = synthetic(active_features=False)
    active, _ = run(evaluate=Evaluate(repeats=2))(parties)
    assert active.results.alone is None
    assert active.results.metrics["auc"] > 0.5
    assert not any(name.startswith("bottom") for name in active.weights)


def test_one_class_among_the_test_rows_leaves_auc_undefined(federation: Make, run: Any) -> None:
    n = 40
    columns = {"x": np.linspace(-1, 1, n)}
    parties = federation(columns, {"z": np.linspace(1, 0, n)}, np.zeros(n), np.ones(n, bool), np.ones(n, bool))
    active, _ = run()(parties)
    assert active.results.metrics["auc"] is None
    assert active.results.metrics["nll"] is not None
    shared, passive = run(evaluate=Evaluate(share_with_passive=True))(parties)
    assert passive.results.metrics["auc"] is None
    assert passive.results.metrics["nll"] == round(shared.results.metrics["nll"], 3)


def test_no_owned_test_row_leaves_every_metric_undefined(federation: Make, run: Any) -> None:
    n = 30
    parties = federation(
        {"x": np.linspace(-1, 1, n)}, {"z": np.linspace(1, 0, n)}, np.arange(n) % 2, np.ones(n, bool), np.ones(n, bool)
    )
    _, testing = run().schedule(parties).split(0, 0.2)
    owned = np.ones(n, bool)
    owned[parties.people[testing]] = False
    parties = federation({"x": np.linspace(-1, 1, n)}, {"z": np.linspace(1, 0, n)}, np.arange(n) % 2, owned, np.ones(n, bool))
    active, _ = run()(parties)
    assert set(active.results.metrics.values()) == {None}
    assert set(active.results.alone.metrics.values()) == {None}
    assert active.results.population.rows == 0


# What goes wrong.


def failure(results: list[Any], kind: type) -> Any:
    found = [result for result in results if isinstance(result, kind)]
    assert found, results
    return found[0]


def test_a_passive_party_without_columns_is_told_so(federation: Make, run: Any) -> None:
    n = 20
    parties = federation({"x": np.linspace(0, 1, n)}, {}, np.arange(n) % 2, np.ones(n, bool), np.ones(n, bool))
    assert failure(run().raw(parties), DataError).code == "E_NO_FEATURES"


def test_an_active_party_without_labels_is_told_so(synthetic: Make, run: Any) -> None:
    parties = synthetic(50)
    parties = dataclasses.replace(parties, clinic=dataclasses.replace(parties.clinic, labels=None))
    assert failure(run().raw(parties), DataError).code == "E_NO_LABEL"


@pytest.mark.parametrize("people", [0, 1])
def test_no_row_to_train_on_is_an_error(federation: Make, run: Any, people: int) -> None:
    everyone = np.ones(people, bool)
    parties = federation({"x": np.ones(people)}, {"z": np.ones(people)}, np.zeros(people), everyone, everyone)
    assert failure(run().raw(parties), DataError).code == "E_EMPTY"


def test_an_active_party_that_owns_no_training_row_is_told_so(federation: Make, run: Any) -> None:
    n = 30
    columns = {"x": np.linspace(-1, 1, n)}, {"z": np.linspace(1, 0, n)}, np.arange(n) % 2
    probe = federation(*columns, np.ones(n, bool), np.ones(n, bool))
    _, testing = run().schedule(probe).split(0, 0.2)
    owned = np.zeros(n, bool)
    owned[probe.people[testing]] = True
    assert failure(run().raw(federation(*columns, owned, np.ones(n, bool))), DataError).code == "E_EMPTY"


def test_a_passive_party_that_owns_no_training_row_still_trains(federation: Make, run: Any) -> None:
    n = 30
    columns = {"x": np.linspace(-1, 1, n)}, {"z": np.linspace(1, 0, n)}, np.arange(n) % 2
    probe = federation(*columns, np.ones(n, bool), np.ones(n, bool))
    _, testing = run().schedule(probe).split(0, 0.2)
    owned = np.zeros(n, bool)
    owned[probe.people[testing]] = True
    active, _ = run()(federation(*columns, np.ones(n, bool), owned))
    assert active.results.metrics["nll"] is not None


def test_divergence_is_said_with_a_hint(synthetic: Make, run: Any) -> None:
    both = run()
    both.train = both.train.model_copy(update={"learning_rate": 1e20, "optimizer": "sgd"})
    for parties in (synthetic(150), synthetic(150, active_features=False)):
        error = failure(both.raw(parties), DataError)
        assert error.code == "E_DIVERGED"
        assert "learning_rate" in error.hint


class Changed:
    """Replaces the ``number``-th message of a type on its way out."""

    def __init__(self, kind: type, number: int, change: Callable[[Any], None]) -> None:
        self.kind, self.left, self.change = kind, number, change

    def __call__(self, message: Any) -> None:
        if isinstance(message, self.kind):
            if self.left == 0:
                self.change(message)
            self.left -= 1


def _reshape(message: Any) -> None:
    message.tensor.shape[:] = [message.tensor.shape[0] // 2, message.tensor.shape[1] * 2]


def _next_step(message: Any) -> None:
    message.step += 1


def _retype(message: Any) -> None:
    message.tensor.dtype = "float64"


WRONG = list(product([training_pb2.Embedding, training_pb2.Gradient], [_reshape, _next_step, _retype]))


@pytest.mark.parametrize(("kind", "change"), every(2, WRONG))
def test_a_wrong_step_shape_or_type_is_refused(synthetic: Make, run: Any, kind: type, change: Callable[[Any], None]) -> None:
    both = run()
    both.tamper = Changed(kind, 3, change)
    failure(both.raw(synthetic(100)), ProtocolError)


def told(epochs: int, of_epoch: str, auc: str = "1") -> str:
    """Figures of ``epochs`` epochs, with that AUC each, as JSON."""
    return f'{{"epochs": [{", ".join(epochs * [f"""{{"loss": 1, "auc": {of_epoch}}}"""])}], "metrics": {{"auc": {auc}}}}}'


WRONG_FIGURES = [
    "",
    "[]",
    "{}",
    "[" * 100_000,
    told(1, "0.5"),
    told(1, "0.5", auc='"1"'),
    told(3, "0.5", auc='"1"'),
    told(3, '"1"'),
    told(3, "true"),
    told(3, "NaN"),
    told(3, "Infinity"),
    told(3, "1" * 400),
]


@pytest.mark.parametrize("text", every(2, WRONG_FIGURES))
def test_figures_that_are_not_loss_and_metrics_are_refused(synthetic: Make, run: Any, text: str) -> None:
    both = run(evaluate=Evaluate(share_with_passive=True, metrics=("auc",)))
    both.tamper = Changed(training_pb2.Shared, 0, lambda message: setattr(message, "json", text))
    failure(both.raw(synthetic(60)), ProtocolError)


def test_another_share_in_a_later_attempt_is_refused(synthetic: Make, run: Any) -> None:
    parties, first = synthetic(60), run()
    first(parties)
    run(pins=first.pins)(parties)
    for changed in ({"clinic_seed": b"x" * 32}, {"lab_seed": b"x" * 32}):
        assert failure(run(pins=first.pins, **changed).raw(parties), StateError).code == "E_REPLAY"


@pytest.mark.parametrize(("model", "width"), [("mlp", 8), ("wide_deep", 9)])
def test_a_batch_that_no_message_holds_is_refused_before_anything_is_trained(
    synthetic: Make, run: Any, monkeypatch: pytest.MonkeyPatch, model: str, width: int
) -> None:
    parties = synthetic(200)
    monkeypatch.setattr(messages, "MAX_FRAME_BYTES", messages.FRAME_HEAD_BYTES + 4 * width * 50)
    both = run()
    both.train = both.train.model_copy(update={"model": model, "batch_size": 50})
    both(parties)  # just fits
    monkeypatch.setattr(base_rates, "train_local", lambda *_, **__: pytest.fail("the local model was trained"))
    both = run()
    both.train = both.train.model_copy(update={"model": model, "batch_size": 51})
    for error in both.raw(parties):
        assert isinstance(error, UsageError)
        assert error.code == "E_SIZE"
        assert f"51 rows at a cut layer of width {width}" in error.message
        assert "at most 50" in error.hint


def test_a_batch_size_above_the_number_of_rows_counts_as_that_number(synthetic: Make, run: Any) -> None:
    both = run()
    both.train = both.train.model_copy(update={"batch_size": 1_000_000, "bottom": (16, 32)})
    both(synthetic(60))


def test_missing_rows_without_a_strategy_are_refused(synthetic: Make, run: Any) -> None:
    both = run()
    both.train = both.train.model_copy(update={"missing": Missing(labels="none", features="none")})
    assert isinstance(both.raw(synthetic())[0], Exception)
    both(synthetic(100, (1.0, 1.0)))  # nothing is missing
