"""Predictions between parties by opened weights: they are the model's own, and no more is sent than their batches need."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.sessions import session
from tests.training.additive import Asking, errors_of
from tests.training.hidden.conftest import HUB, Attempt, World, plain_inputs, weights_of
from tests.training.hidden.plain import forward
from tests.training.predicting import Request, Shown
from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import LinearEncoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import DataError, PolicyError, ProtocolError, StateError, UsageError
from vfl_node.job import Job, Parties, Predict, Serve
from vfl_node.training.additive.sides import PartOfScores, SumOfScores
from vfl_node.training.glm.plain import probabilities
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.opened import HiddenPredictor, opened
from vfl_node.training.hidden.trainer import HiddenTrainer
from vfl_node.training.serving import Predicted, Served, StoredModel, check_known, predictor_of
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import Trained
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import prediction_pb2, training_pb2

BATCH = 8
SERVE = Serve(to="both", batch_size=BATCH)


class Asked(Asking):
    """A trained model whose parties ask each other for predictions."""

    def __init__(self, over: World, of: Attempt, results: tuple[Trained, ...]) -> None:
        self.over, self.of, self.results = over, of, results
        self.trained = of.job(over).model_copy(update={"serve": SERVE})
        models = {}
        for name, result in zip(over.data, results, strict=True):
            assert result.servable is not None
            models[name] = StoredModel(self.trained, result.weights, result.encoder, result.servable.state)
        super().__init__(over.data, models, HiddenPredictor())

    @property
    def scoring(self) -> SumOfScores:
        table, view = self.over.data["clinic"]
        return SumOfScores(self.models["clinic"], opened(self.models["clinic"]), view, table)

    def by_hand(self) -> np.ndarray:
        """What the weights say of all shared rows, computed in the plain."""
        plan, train = self.of.plan(self.over), Hidden.of(self.trained)
        x, _ = plain_inputs(self.over, train, plan)
        z = forward(plan.form, weights_of(self.results), x)[0]
        unit = self.results[0].weights.get("target")
        if unit is not None:
            return TargetScale(*unit.tolist()).original(z[:, 0])
        return probabilities(z)[:, 0] if z.shape[1] == 1 else probabilities(z)


def trained(world: Any, attempt: Any, parties: int = 2, train: dict[str, Any] | None = None, **people: Any) -> Asked:
    over, of = world(parties, "psi", **people), attempt(train or {})
    return Asked(over, of, of(over))


def new_records(asked: Asked, records: int, shared: int | None = None, seed: int = 5) -> dict[str, tuple[Table, Alignment]]:
    """Each party's table of new records, in an order of its own, and its view of those that are shared; None: all are.

    A column of 0 and 1 has such values again.
    """
    rng, data, order = np.random.default_rng(seed), {}, np.arange(records if shared is None else shared)
    for name, (table, view) in asked.data.items():
        own = rng.permutation(records)
        columns = {
            column: NumericColumn(rng.integers(0, 2, records).astype(float) if column == "flag" else rng.normal(size=records))
            for column in table.columns
        }
        ids = Identifiers.of(f"new {number}".encode() for number in own)
        facts = {peer: replace(of, records=records, intersection=len(order), missing=0) for peer, of in view.peers.items()}
        data[name] = Table(ids, columns), Alignment("psi", "curve25519", np.argsort(own)[order], records, facts)
    return data


KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "regression": ({}, {}),
    "network": ({"hidden": [4, 3]}, {}),
    "classes": ({"classes": 3, "hidden": [2]}, {"classes": 3}),
    "numbers": ({"task": "regression"}, {"numbers": True}),
}


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_asker_gets_what_the_model_says(world: Any, attempt: Any, kind: str, parties: int) -> None:
    train, people = KINDS[kind]
    asked = trained(world, attempt, parties, train, **people)
    expected = asked.by_hand()
    unit = np.ptp(expected)
    for to in ("active", asked.parties.called(list(asked.over.data)[-1])):
        request, positions = asked.all_rows(to)
        results = asked.talk(to, request)
        assert errors_of(results) == {}
        assert request.answered is not None
        assert np.abs(request.answered - asked.together(positions)).max() < 1e-9 * max(1.0, unit)
        assert np.abs(request.answered - expected[positions]).max() < 1e-4 * unit  # columns have 18 fractional bits
        served = results[asked.name(to)]
        assert (served.requests, served.batches) == (1, -(-len(asked.over) // BATCH))


def test_parts_of_other_rows_give_other_predictions(world: Any, attempt: Any) -> None:
    """The negative control: each party's part counts."""
    asked = trained(world, attempt, 3, {"hidden": [4]})
    positions = np.arange(len(asked.over))
    right = asked.together(positions)
    for name, (table, view) in asked.data.items():
        other = {**asked.data, name: (table, replace(view, rows=view.rows[::-1].copy()))}
        assert np.abs(asked.together(positions, other) - right).max() > 0.05


def test_whole_batches_travel_whichever_row_is_wanted(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, train={"hidden": [4]})
    sizes, said = set(), {}
    table, view = asked.over.data["clinic"]
    for row in view.rows[:6]:
        request = Request(Table(Identifiers.of(table.ids.take(np.array([row]))), {}))
        assert errors_of(asked.talk("active", request)) == {}
        (ask, _) = asked.sent(prediction_pb2.PredictionAsk, "clinic")
        (number,) = ask.batches
        parts = asked.parts("lab")
        assert parts.shape == (BATCH, 4)
        assert (said.setdefault(number, parts) == parts).all()  # asked again, the same bits
        sizes.add(tuple((entry.kind, len(entry.frame.body)) for entry in asked.recorder.entries))
    assert len(sizes) == 1


def test_a_part_has_the_same_bits_in_every_batch(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, train={"hidden": [7]}, people=300)
    table, view = asked.over.data["lab"]
    half = opened(asked.models["lab"])
    columns, positions = half.columns(table), np.arange(len(view))
    together = half.part(columns, view, positions)
    for size in (1, 2, 3, 8, 50):
        parts = [half.part(columns, view, positions[at : at + size]) for at in range(0, len(view), size)]
        assert (np.concatenate(parts) == together).all()
    assert len(view) > 100


def test_the_peer_of_a_passive_asker_hears_nothing_but_parts(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, 3)
    request, _ = asked.all_rows("insurer")
    assert errors_of(asked.talk("insurer", request)) == {}
    for sender, receiver in permutations(asked.over.data, 2):
        kinds = {of.kind for of in asked.recorder.entries if (of.sender, of.receiver) == (sender, receiver)} - {"PhaseEnd"}
        if "clinic" not in (sender, receiver):
            assert kinds == set()
        elif receiver == "clinic":
            assert kinds == {"Embedding"} | ({"PredictionAsk"} if sender == "insurer" else {"PredictionTerms"})
        else:
            assert kinds == ({"PredictionTerms", "Probabilities"} if receiver == "insurer" else {"PredictionAsk"})
    assert HUB not in {of.sender for of in asked.recorder.entries}


@pytest.mark.parametrize("to", ["active", "passive"])
def test_new_records_are_predicted_by_their_own_columns(world: Any, attempt: Any, to: str) -> None:
    """Other values under other ids, in another order, of a part of the rows."""
    asked = trained(world, attempt, train={"hidden": [4]})
    data = new_records(asked, 40, shared=30)
    results = asked.once(to, data)
    assert errors_of(results) == {}
    own_name = asked.name(to)
    predicted = results[own_name]
    assert isinstance(predicted, Predicted)
    assert [of for name, of in results.items() if name != own_name] == [None]
    expected = asked.together(np.argsort(data[own_name][1].rows), data)
    assert predicted.shared == 30
    assert (predicted.rows == np.sort(data[own_name][1].rows)).all()
    assert np.abs(predicted.probabilities - expected).max() < 1e-9
    assert np.ptp(expected) > 0.05


@pytest.mark.parametrize("protocol", ["psu", "apsi"])
def test_rows_that_somebody_may_lack_are_not_served(world: Any, attempt: Any, protocol: str) -> None:
    over, of = world(2, protocol), attempt()
    asked = Asked(over, of, of(over))
    request, _ = asked.all_rows("active")
    errors = errors_of(asked.talk("active", request))
    assert {error.code for error in errors.values()} == {"E_PREDICT"}  # type: ignore[attr-defined]
    assert asked.recorder.entries == []


@pytest.mark.parametrize("missing", [0, 1, None])
def test_known_records_are_served_only_if_no_party_lacks_any(world: Any, attempt: Any, missing: int | None) -> None:
    """The same model and rows each time; what differs is what the parties know of each other."""
    asked = trained(world, attempt)
    asked.data = {
        name: (table, replace(view, peers={peer: replace(of, missing=missing) for peer, of in view.peers.items()}))
        for name, (table, view) in asked.data.items()
    }
    request, _ = asked.all_rows("active")
    errors = errors_of(asked.talk("active", request))
    assert sorted(errors) == ([] if missing == 0 else ["clinic", "lab"])
    assert all(isinstance(error, UsageError) and error.code == "E_PREDICT" for error in errors.values())
    assert (request.answered is None) == (missing != 0)


@pytest.mark.parametrize("align", [{"protocol": "psu"}, {"protocol": "apsi", "obfuscation": {"size": 100}}])
def test_a_job_for_known_records_is_refused_where_the_alignment_hides_who_is_shared(align: dict[str, Any]) -> None:
    parties = {"active": "a", "passive": "b", "coordinator": "c"}
    document = {"name": "hidden", "parties": parties, "align": align, "serve": {"to": "both"}}
    with pytest.raises(UsageError, match="predicts no known records") as caught:
        check_known(Job.model_validate(document | {"train": {"algorithm": "hidden"}}))
    assert caught.value.code == "E_PREDICT"
    assert "--align" in str(caught.value.hint)
    check_known(Job.model_validate(document | {"train": {"algorithm": "hidden"}, "align": {"protocol": "psi"}}))
    check_known(Job.model_validate(document | {"parties": {"active": "a", "passive": "b"}, "train": {"algorithm": "split"}}))


@pytest.mark.parametrize(("to", "guarded"), [("active", "lab"), ("passive", "lab"), ("passive", "clinic")])
def test_each_owner_bounds_the_rows_that_are_told(world: Any, attempt: Any, to: str, guarded: str) -> None:
    asked = trained(world, attempt)
    request, _ = asked.all_rows(to)
    shown = {name: Shown() for name in asked.over.data} | {guarded: Shown(most=len(asked.over) - 1)}
    errors = errors_of(asked.talk(to, request, shown=shown))
    if to == "passive" and guarded == "lab":  # its own owner refuses, and the service goes on
        assert errors == {}
        assert isinstance(request.failed, PolicyError)
    else:
        assert isinstance(errors[guarded], PolicyError)
    sent = asked.sent(training_pb2.Embedding, "lab") if guarded == "lab" else asked.sent(prediction_pb2.Probabilities, "clinic")
    assert sent == []
    assert request.answered is None


def test_what_is_told_is_counted(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt)
    table, view = asked.over.data["clinic"]
    shown = {name: Shown() for name in asked.over.data}
    results = asked.talk("active", Request(Table(Identifiers.of(table.ids.take(view.rows[:1])), {})), shown=shown)
    assert (len(shown["lab"].kept), len(shown["clinic"].kept)) == (BATCH, 0)
    assert (results["lab"].told, results["clinic"].told) == (BATCH, 0)
    assert results["lab"].attacks == {}


NEW = 40
ASKED = [("active", "lab"), ("passive", "lab"), ("passive", "clinic")]


def flagged(world: Any, attempt: Any) -> Asked:
    """A model whose passive party has one column, of 0 and 1."""
    over, of = world(2, "psi"), attempt()
    table, view = over.data["lab"]
    flag = NumericColumn(np.random.default_rng(0).integers(0, 2, len(table)).astype(float))
    over = replace(over, data={**over.data, "lab": (replace(table, columns={"flag": flag}), view)})
    return Asked(over, of, of(over))


def told_once(asked: Asked, to: str, guarded: str, data: dict[str, tuple[Table, Alignment]], shown: Shown) -> bool:
    """Whether a job with new records goes through under what ``guarded`` allows; if not, nothing is sent of any batch."""
    errors = errors_of(asked.once(to, data, shown={guarded: shown}))
    if not errors:
        return True
    (error,) = errors.values()
    assert list(errors) == [guarded]
    assert isinstance(error, PolicyError)
    assert error.code == "E_BUDGET"
    return False


@pytest.mark.parametrize(("to", "guarded"), ASKED)
def test_new_records_count_though_their_columns_are_equal(world: Any, attempt: Any, to: str, guarded: str) -> None:
    asked = flagged(world, attempt)
    data, shown = new_records(asked, NEW), Shown(most=NEW)
    assert not told_once(asked, to, guarded, data, Shown(most=NEW - 1))
    assert told_once(asked, to, guarded, data, shown)
    assert len(np.unique(asked.parts("lab"))) == 2
    assert len(shown.kept) == NEW
    assert told_once(asked, to, guarded, data, shown)  # asked again
    assert not told_once(asked, to, guarded, new_records(asked, NEW, seed=6), shown)


def test_an_asker_that_sends_the_same_of_all_records_is_told_of_no_more(
    world: Any, attempt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = trained(world, attempt)
    data, shown = new_records(asked, NEW), Shown(most=NEW)
    monkeypatch.setattr(PartOfScores, "new", lambda self, positions: torch.zeros(len(positions), 1, dtype=torch.float64))
    assert not told_once(asked, "passive", "clinic", data, Shown(most=NEW - 1))
    assert len(asked.sent(prediction_pb2.Probabilities, "clinic")) * BATCH < NEW
    assert told_once(asked, "passive", "clinic", data, shown)
    assert len(shown.kept) == NEW
    monkeypatch.setattr(PartOfScores, "new", lambda self, positions: torch.ones(len(positions), 1, dtype=torch.float64))
    assert not told_once(asked, "passive", "clinic", data, shown)  # another question about each of them


@pytest.mark.parametrize(("to", "guarded"), ASKED)
def test_another_table_tells_again_for_free_what_has_not_changed(world: Any, attempt: Any, to: str, guarded: str) -> None:
    asked = flagged(world, attempt)
    data, shown = new_records(asked, NEW), Shown()
    few = {name: (table, replace(view, rows=view.rows[::-3].copy())) for name, (table, view) in data.items()}
    assert told_once(asked, to, guarded, few, shown)
    assert len(shown.kept) == len(few["lab"][1]) < NEW
    assert told_once(asked, to, guarded, data, shown)
    assert len(shown.kept) == NEW
    table, view = data["lab"]
    flag, changed = table.columns["flag"].values.copy(), view.rows[:2]  # type: ignore[union-attr]
    flag[changed] = 1 - flag[changed]
    other = {**data, "lab": (replace(table, columns={"flag": NumericColumn(flag)}), view)}
    assert told_once(asked, to, guarded, other, shown)
    assert len(shown.kept) == NEW + len(changed)


def spoilt(change: Any) -> Any:
    """What changes the tensor of each embedding."""

    def tamper(message: Any) -> None:
        if message.DESCRIPTOR.name == "Embedding":
            part = codec.decode(message.tensor, dtype=torch.float64, shape=tuple(message.tensor.shape))
            message.tensor.CopyFrom(codec.encode(change(part)))

    return tamper


def other_step(message: Any) -> None:
    if message.DESCRIPTOR.name == "Embedding":
        message.step += 1


@pytest.mark.parametrize("to", ["active", "passive"])
@pytest.mark.parametrize(
    ("tamper", "code"),
    [
        (spoilt(lambda part: part * torch.nan), "E_NAN"),
        (spoilt(lambda part: part * torch.inf), "E_NAN"),
        (spoilt(lambda part: part.float()), "E_SHAPE"),
        (spoilt(lambda part: part[:, :-1]), "E_SHAPE"),
        (spoilt(lambda part: torch.cat([part, part[:, :1]], dim=1)), "E_SHAPE"),
        (spoilt(lambda part: part[:-1]), "E_SHAPE"),
        (other_step, "E_ORDER"),
        (spoilt(lambda part: part), None),
    ],
)
def test_malformed_parts_are_refused(world: Any, attempt: Any, to: str, tamper: Any, code: str | None) -> None:
    asked = trained(world, attempt, train={"hidden": [3]})
    asked.tamper = tamper
    request, _ = asked.all_rows(to)
    for results in (asked.talk(to, request), asked.once(to, new_records(asked, NEW))):
        found = {name: (type(error), error.code) for name, error in errors_of(results).items()}  # type: ignore[attr-defined]
        assert found == ({} if code is None else {"clinic": (ProtocolError, code)})
    assert (request.answered is None) == (code is not None)


def test_enough_known_rows_give_weights_and_with_a_wide_layer_columns(world: Any, attempt: Any) -> None:
    """What docs/prediction.md says of partial scores: the lab has 4 columns, and the clinic knows them of 4 rows."""
    errors = {}
    for width in (4, 6, 3):
        asked = trained(world, attempt, train={"hidden": [width]})
        request, _ = asked.all_rows("active")
        assert errors_of(asked.talk("active", request)) == {}
        table, view = asked.over.data["lab"]
        half = opened(asked.models["lab"])
        (ask, _) = asked.sent(prediction_pb2.PredictionAsk, "clinic")
        parts, batches = asked.parts("lab"), asked.scoring.batches
        columns = half.columns(table)[view.rows[np.concatenate([batches.positions(number) for number in ask.batches])]]
        known = 4
        weights = np.linalg.solve(columns[:known], parts[:known])
        assert np.abs(columns @ weights - parts).max() < 1e-8
        errors[width] = np.abs(parts @ np.linalg.pinv(weights) - columns).max()
    assert max(errors[4], errors[6]) < 1e-6
    assert errors[3] > 0.1


def test_huge_parts_end_in_numbers(world: Any, attempt: Any) -> None:
    """Whatever a peer sends is finite, and so is what is made of it."""
    side, positions = trained(world, attempt, train={"hidden": [3]}).scoring, np.arange(5)
    for value in (1.7e308, -1.7e308):
        said = side.probability(positions, [torch.full((5, 3), value, dtype=torch.float64)] * 2)
        assert ((said >= 0) & (said <= 1)).all()


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_a_damaged_half_is_refused_before_anybody_is_met(world: Any, attempt: Any, name: str) -> None:
    asked = trained(world, attempt, train={"hidden": [3]})
    model = asked.models[name]
    HiddenPredictor().check(model)
    without = [{key: of for key, of in model.weights.items() if key != missing} for missing in model.weights]
    reshaped = [{**model.weights, key: of[..., :1]} for key, of in model.weights.items() if of.shape[-1] > 1]
    changes = (torch.Tensor.float, torch.Tensor.long, lambda of: of * torch.nan, lambda of: of / 0.0)
    spoilt = [{**model.weights, key: change(of)} for key, of in model.weights.items() for change in changes]
    batches = json.loads(model.state)["batches"]
    states = ["", "{}", json.dumps({"version": 1, "batches": batches[:-1]}), json.dumps({"version": 1, "batches": 1})]
    for damaged in [
        *(replace(model, weights=of) for of in without + reshaped + spoilt),
        *(replace(model, state=of) for of in states),
    ]:
        with pytest.raises(StateError) as caught:
            HiddenPredictor().check(damaged)
        assert caught.value.code == "E_STATE_CORRUPT"
    with pytest.raises(StateError) as caught:
        HiddenPredictor().check(replace(model, state=json.dumps({"version": 2, "batches": batches})))
    assert caught.value.code == "E_STATE_VERSION"


def test_the_active_partys_half_needs_its_bias(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt)
    table, view = asked.over.data["lab"]
    with pytest.raises(StateError) as caught:
        SumOfScores(asked.models["lab"], opened(asked.models["lab"]), view, table)
    assert caught.value.code == "E_STATE_CORRUPT"


def test_a_table_without_a_column_of_the_model_is_refused(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt)
    table, view = asked.over.data["lab"]
    first, *_ = table.columns
    over = replace(asked.over, data={**asked.over.data, "lab": (replace(table, columns={first: table.columns[first]}), view)})
    errors = errors_of(Asked(over, asked.of, asked.results).talk("active", asked.all_rows("active")[0]))
    assert isinstance(errors["lab"], DataError)
    assert errors["lab"].code == "E_COLUMN"


def test_the_kinds_of_a_models_columns() -> None:
    columns = {
        "age": NumericColumn(np.array([1.0, 2.0, np.nan])),
        "colour": CategoricalColumn(np.array([0, 1, 1]), ("blue", "red")),
        "same": NumericColumn(np.ones(3)),
    }
    encoder = LinearEncoder.fit(Table(Identifiers.of([b"a", b"b", b"c"]), columns), "standard")
    assert predictor_of(Hidden(algorithm="hidden")).column_kinds(encoder.to_json()) == {
        "age": "numeric",
        "colour": "categorical",
    }


def test_a_batch_of_predictions_must_fit_into_a_message(attempt: Any, world: Any) -> None:
    of = attempt({"hidden": [4096]})
    job = of.job(world(2, "psi")).model_copy(update={"serve": Serve(to="both", batch_size=2048)})
    with pytest.raises(UsageError, match=r"serve\.batch_size") as caught:
        HiddenTrainer().prepare(session("clinic", {}, Randomness(bytes(32)), job=job))
    assert caught.value.code == "E_SIZE"
    HiddenTrainer().prepare(session("clinic", {}, Randomness(bytes(32)), job=job.model_copy(update={"serve": SERVE})))


def test_the_ledger_says_what_parts_tell() -> None:
    parties = Parties(active="clinic", passive=("lab", "insurer"))
    for rows, exchanged in (("known", Served(rows=8, batches=3)), ("new", Predicted(np.arange(5), np.zeros(5), 5))):
        for to in ("active", "lab"):
            predict = Predict.model_validate({"model": "the-job", "to": to, "rows": rows})
            job = Job.model_validate({"name": "p", "parties": parties, "align": {"protocol": "psi"}, "predict": predict})
            learnt = HiddenPredictor().learnt(job, exchanged)  # type: ignore[arg-type]
            count = 24 if rows == "known" else 5
            parts = [of for of in learnt["clinic"] if of.what == "partial scores"]
            assert [of.count for of in parts] == [count, count]
            assert all(name in of.text for name, of in zip(("lab", "insurer"), parts, strict=True))
            assert "a linear function" in parts[0].text
            predictions = [of for of in learnt["lab"] if of.what == "predictions"]
            assert len(predictions) == (to == "lab")
            assert all("without hidden layers" in of.text for of in predictions)
            assert [of.what for of in learnt["insurer"]] == (["requests"] if rows == "known" else [])
