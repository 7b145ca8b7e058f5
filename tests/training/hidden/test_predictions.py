"""Predictions in shares: what the asker gets is the model's own score to some steps, and nobody else gets anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from tests.thorough import every
from tests.training.hidden.answering import BATCH, Asked, asked_of, errors_of, new_records, trained
from tests.training.predicting import Request, Shown
from tests.training.shares_attempts import HUB
from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.errors import DataError, PolicyError, ProtocolError, StateError, UsageError
from vfl_node.job import Job
from vfl_node.node.counts import PartnerCounts
from vfl_node.settings.limits import Budgets, Limits
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.predictor import HiddenPredictor, predict
from vfl_node.training.predictor import Predicted, ServiceCount, StoredModel, check_known
from vfl_node.training.shares.kept import StoredShares, commitment_to
from vfl_node.training.shares.prediction import answers
from vfl_node.transport.generated.vfl.v1.prediction_pb2 import PredictionAsk
from vfl_node.transport.generated.vfl.v1.session_pb2 import PhaseEnd
from vfl_node.transport.generated.vfl.v1.shares_pb2 import (
    AnswerContext,
    AnswerInputs,
    AnswerTerms,
    Corrections,
    CorrectionsUsed,
    DealerSeed,
    MaskedShares,
    ShareCommitments,
)

KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "regression": ({}, {}),
    "in shares": ({"reveal": "none"}, {}),
    "network": ({"layers": [4, 3], "reveal": "none"}, {}),
    "classes": ({"classes": 3, "layers": [2]}, {"classes": 3}),
    "numbers": ({"task": "regression", "reveal": "none"}, {"numbers": True}),
}


@contextmanager
def bare() -> Iterator[None]:
    """Answers are the scores themselves."""
    with mock.patch.object(answers, "interpret", lambda z, train, target: z if z.shape[1] > 1 else z[:, 0]):
        yield


@pytest.mark.parametrize(("kind", "parties"), every(4, list(product(KINDS, (2, 3)))))
def test_every_asker_gets_the_models_scores_to_some_steps(world: Any, attempt: Any, kind: str, parties: int) -> None:
    train, people = KINDS[kind]
    asked = trained(world, attempt, parties, train, **people)
    form = asked.kept("clinic").form
    step = 2.0 ** -answers.step_bits(form)
    for to in ("active", asked.parties.role_or_name(asked.parties.data[-1])):
        request, positions = asked.all_rows(to)
        with bare():
            results = asked.talk(to, request)
        assert errors_of(results) == {}
        assert request.answered is not None
        found, expected = request.answered.reshape(len(positions), -1), asked.scores(positions)
        assert np.abs(found - expected).max() < (1 + (parties - 1) / 2) * step + 1e-4  # of the fixed point in hidden layers
        assert np.ptp(found, axis=0).min() > 3 * step
        assert (found / step == np.rint(found / step)).all()
        served, batches = results[asked.name(to)], -(-len(positions) // BATCH)
        assert (served.requests, served.batches, served.told) == (1, batches, 0)
        assert asked.dealing.exchanged() == ServiceCount(BATCH, batches=batches)
        again, _ = asked.all_rows(to)
        assert errors_of(asked.talk(to, again)) == {}
        target = asked.kept(asked.name(to)).stored.target
        assert (target is not None) == (kind == "numbers" and to == "active")
        assert np.array_equal(again.answered, answers.interpret(found, asked.train, target))


def test_a_passive_party_gets_numbers_in_deviations_and_the_active_one_in_its_unit(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, train={"task": "regression"}, numbers=True)
    said = {}
    for to in ("active", "passive"):
        request, positions = asked.all_rows(to)
        asked.talk(to, request)
        assert request.answered is not None
        said[to] = request.answered[np.argsort(positions)]
    target = asked.kept("clinic").stored.target
    assert target is not None
    assert np.abs(said["active"] - (target[0] + target[1] * said["passive"])).max() < target[1] * 3 / 32
    assert (said["active"].mean() > 100, abs(said["passive"].mean()) < 3) == (True, True)


def test_cuts_are_right_on_average(world: Any, attempt: Any) -> None:
    """A coin and an offset with the right means: 84 rows, each off with a variance of 1/6 + 1/12 steps²."""
    asked = trained(world, attempt, people=400)
    request, positions = asked.all_rows("active")
    with bare():
        asked.talk("active", request)
    assert request.answered is not None
    off = (request.answered - asked.scores(positions)[:, 0]) * 16
    assert abs(off.mean()) < 4 * 0.5 / np.sqrt(len(off))
    assert off.std() > 0.3


def test_other_rows_and_other_shares_give_other_answers(world: Any, attempt: Any) -> None:
    """The negative control: each party's columns count, by more than answers may be off (two steps with three parties)."""
    asked = trained(world, attempt, 3, {"layers": [4]})
    positions = np.arange(len(asked.data["clinic"][1]))
    right = asked.scores(positions)
    for name, (table, view) in asked.data.items():
        other = {**asked.data, name: (table, replace(view, rows=view.rows[::-1].copy()))}
        assert np.abs(asked.scores(positions, other) - right).max() > 2 / 16


def test_a_trial_has_the_same_scores_rounded_to_the_nearest_step(world: Any, attempt: Any) -> None:
    for train, people in KINDS.values():
        asked = trained(world, attempt, 2, train, **people)
        positions = np.arange(len(asked.data["clinic"][1]))
        active, *passives = asked.halves()
        with bare():
            found = predict(active, passives, positions).reshape(len(positions), -1)
        bits = answers.step_bits(asked.kept("clinic").form)
        assert np.abs(found - asked.scores(positions)).max() <= 2.0 ** -(bits + 1) + 1e-9


@pytest.mark.parametrize("loss", ["squares", "robust"])
def test_what_is_out_of_range_comes_out_at_the_other_end(loss: Any) -> None:
    form = Form((1, 1), (), 1, "exact")
    z = np.array([[-16.0], [15.9375], [16.0], [0.03], [-0.04]])
    assert answers.round_scores(z, form)[:, 0].tolist() == [-16.0, 15.9375, -16.0, 0.0, -0.0625]
    form = Form((1, 1), (), 1, loss)
    assert answers.round_scores(np.array([[7.96875], [8.0]]), form)[:, 0].tolist() == [7.96875, -8.0]


@pytest.mark.parametrize("to", ["active", "passive"])
def test_new_records_are_predicted_by_their_own_columns(world: Any, attempt: Any, to: str) -> None:
    """Other values under other ids, in another order, of a part of the rows."""
    asked = trained(world, attempt, train={"layers": [4]})
    data = new_records(asked, 40, shared=30)
    with bare():
        results = asked.once(to, data)
    assert errors_of(results) == {}
    own = asked.name(to)
    predicted = results[own]
    assert isinstance(predicted, Predicted)
    assert [results[name] for name in data if name != own] == [None]
    view = data[own][1]
    expected = asked.scores(np.argsort(view.rows), data)[:, 0]
    assert (predicted.rows == np.sort(view.rows)).all()
    assert np.abs(predicted.probabilities - expected).max() < 1.5 / 16 + 1e-4
    told = asked.dealing.exchanged()
    assert isinstance(told, Predicted)
    assert predicted.shared == told.shared == 30


# What is seen.


def last_round(asked: Asked, sender: str, receiver: str, outputs: int = 1) -> list[bytes]:
    """The shares of answers that one party sends: two bytes each."""
    sizes = 2 * BATCH * outputs
    return [of.values for of in asked.sent(MaskedShares, sender, receiver) if len(of.values) == sizes]


def uniform(data: bytes) -> float:
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    return float(chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), 255))


@pytest.mark.parametrize(("parties", "to"), every(3, [(2, "passive"), (2, "active"), (3, "active"), (3, "insurer")]))
def test_all_that_parties_send_is_uniform(world: Any, attempt: Any, parties: int, to: str) -> None:
    asked = trained(world, attempt, parties, {"reveal": "none"}, people=400)
    request, _ = asked.all_rows(to)
    assert errors_of(asked.talk(to, request)) == {}
    pairs = {(of.sender, of.receiver) for of in asked.recorder.entries if of.kind == "MaskedShares"}
    assert pairs == {pair for name in asked.parties.passive for pair in (("clinic", name), (name, "clinic"))}
    for sender, receiver in pairs:
        data = b"".join(of.values for of in asked.sent(MaskedShares, sender, receiver) if len(of.values) % 8 == 0)
        assert len(data) > 5000
        if not last_round(asked, sender, receiver):
            assert uniform(data) > 1e-4
    with mock.patch.object(ShareMachine, "_draw", lambda self, seed, number, name, shape: np.zeros(shape, np.uint64)):
        request, _ = asked.all_rows(to)
        asked.state = type(asked.state)()
        asked.talk(to, request)
    data = b"".join(of.values for of in asked.sent(MaskedShares, "lab", "clinic"))
    assert uniform(data) < 1e-30  # the control


@pytest.mark.parametrize(("parties", "to"), every(3, [(2, "passive"), (2, "active"), (3, "active"), (3, "insurer")]))
def test_of_answers_nine_bits_go_to_the_asker_and_of_shares_no_more(world: Any, attempt: Any, parties: int, to: str) -> None:
    asked = trained(world, attempt, parties, people=700)
    own = asked.name(to)
    request, _ = asked.all_rows(to)
    assert errors_of(asked.talk(to, request)) == {}
    others = set(asked.parties.data) - {own}
    expected = {(name, "clinic") for name in others - {"clinic"}} | ({("clinic", own)} if own != "clinic" else set())
    found = {
        (sender, receiver): b"".join(parts)
        for sender in asked.parties.data
        for receiver in asked.parties.data
        if (parts := last_round(asked, sender, receiver))
    }
    assert found.keys() == expected
    for (sender, _), data in found.items():
        values = np.frombuffer(data, "<u2")
        assert values.max() < 512
        if parties == 3 and sender != "clinic":  # a share of which the others do not know the rest: uniform
            counts = np.bincount(values >> 4, minlength=32)
            assert chi2.sf(((counts - counts.mean()) ** 2 / counts.mean()).sum(), 31) > 1e-4


@pytest.mark.parametrize("kind", every(2, list(KINDS)))
def test_the_coordinator_sees_shapes_and_nothing_else(world: Any, attempt: Any, kind: str) -> None:
    train, people = KINDS[kind]
    seen = []
    for seed in (0, 1):
        asked = trained(world, attempt, 2, train, seed=seed, **people)
        request, _ = asked.all_rows("active")
        assert errors_of(asked.talk("active", request)) == {}
        terms = asked.sent(AnswerTerms, "lab")
        assert len({of.context for of in terms}) == len(terms)
        sizes = [(sender, kind, len(body)) for sender, receiver, kind, body in asked.frames() if receiver == HUB]
        shapes = [(of.rows, list(of.widths), len(of.context)) for of in terms]
        seen.append((sizes, shapes, {of.context for of in terms if of.rows}))
    assert seen[0][:2] == seen[1][:2]
    assert not seen[0][2] & seen[1][2]
    assert {kind for _, kind, _ in seen[0][0]} == {of.__name__ for of in (AnswerTerms, CorrectionsUsed, PhaseEnd)}
    from_it = {kind for sender, _, kind, _ in asked.frames() if sender == HUB}
    assert from_it == {of.__name__ for of in (DealerSeed, Corrections, PhaseEnd)}


def test_whole_batches_travel_whichever_row_is_wanted(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, train={"layers": [4]})
    sizes = set()
    table, view = asked.data["clinic"]
    for row in view.rows[:6]:
        request = Request(Table(Identifiers.from_items(table.ids.take(np.array([row]))), {}))
        assert errors_of(asked.talk("active", request)) == {}
        (ask, _) = asked.sent(PredictionAsk, "clinic")
        assert len(ask.batches) == 1
        sizes.add(tuple((sender, kind, len(body)) for sender, _, kind, body in asked.frames()))
    assert len(sizes) == 1


# Masks.


@pytest.mark.parametrize("parties", [2, 3])
def test_the_same_values_give_the_same_bytes(world: Any, attempt: Any, parties: int) -> None:
    asked, seen = trained(world, attempt, parties, {"layers": [3]}), []
    for _ in range(2):  # what was opened is remembered, and must come again
        request, _ = asked.all_rows("passive" if parties == 2 else "lab")
        assert errors_of(asked.talk("passive" if parties == 2 else "lab", request)) == {}
        seen.append([of for of in asked.frames() if of[2] not in ("PredictionAsk", "PredictionTerms")])
    assert seen[0] == seen[1]


def test_a_changed_column_gives_another_context_and_other_masks(world: Any, attempt: Any) -> None:
    """New records of one job, of which one cell changes between two attempts, as after a rollback."""
    asked = trained(world, attempt)
    data = new_records(asked, BATCH)
    table, view = data["lab"]
    name, column = next(iter(table.columns.items()))
    values = column.values.copy()  # type: ignore[union-attr]
    values[0] += 0.5
    other = {**data, "lab": (replace(table, columns={**table.columns, name: NumericColumn(values)}), view)}
    seen = []
    for of in (data, other):
        assert errors_of(asked.once("active", of)) == {}
        (said, _) = asked.sent(AnswerTerms, "lab")
        masked = [np.frombuffer(part.values, "<u8") for part in asked.sent(MaskedShares, "lab") if len(part.values) % 8 == 0]
        seen.append((said.context, np.concatenate(masked)))
    assert seen[0][0] != seen[1][0]
    assert (seen[0][1] == seen[1][1]).mean() < 0.1


def test_whoever_opens_something_else_in_the_same_context_is_found(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt)
    request, _ = asked.all_rows("active")
    assert errors_of(asked.talk("active", request)) == {}

    def other(sender: str, receiver: str, message: Any) -> None:
        if sender == "lab" and isinstance(message, MaskedShares):
            message.values = bytes([message.values[0] ^ 1]) + message.values[1:]

    asked.tamper = other
    request, _ = asked.all_rows("active")
    errors = errors_of(asked.talk("active", request))
    assert errors["clinic"].code == "E_REPLAY"
    assert request.answered is None


# What is kept.


def spoilt(model: StoredModel, index: int = 0, *, recommitted: bool) -> StoredModel:
    """One bit of a share changed; ``recommitted``: what stands beside it, too."""
    name = f"share {index}"
    share = model.weights[name].clone()
    share.view(-1)[0] ^= 1 << 40
    weights = {**model.weights, name: share}
    state = json.loads(model.state)
    if recommitted:
        shares = [weights[key].numpy().view(np.uint64) for key in sorted(weights) if key.startswith("share")]
        state["commitments"][state["place"]] = commitment_to(bytes.fromhex(state["salt"]), shares).hex()
    return replace(model, weights=weights, state=json.dumps(state))


@pytest.mark.parametrize("name", ["clinic", "lab", "insurer"])
def test_shares_changed_by_one_bit_are_found_and_their_party_is_named(world: Any, attempt: Any, name: str) -> None:
    asked = trained(world, attempt, 3, {"reveal": "none"})
    HiddenPredictor().check(asked.models[name])
    with pytest.raises(StateError, match="this party has stored") as caught:
        HiddenPredictor().check(spoilt(asked.models[name], recommitted=False))
    assert caught.value.code == "E_STATE_CORRUPT"
    asked.models = {**asked.models, name: spoilt(asked.models[name], recommitted=True)}
    HiddenPredictor().check(asked.models[name])
    request, _ = asked.all_rows("active")
    errors = errors_of(asked.talk("active", request))
    others = set(asked.parties.data) - {name}
    assert others & errors.keys()
    for party in others & errors.keys():
        assert errors[party].code == "E_STATE_CORRUPT"
        assert f"that {name} has stored" in errors[party].message
    assert asked.sent(MaskedShares, "clinic") == []


@pytest.mark.parametrize("name", ["clinic", "lab"])
def test_a_damaged_part_is_refused_before_anybody_is_met(world: Any, attempt: Any, name: str) -> None:
    model = trained(world, attempt, train={"layers": [3]}).models[name]
    shares = [key for key in model.weights if key.startswith("share")]
    without = [{key: of for key, of in model.weights.items() if key != missing} for missing in shares]
    reshaped = [{**model.weights, key: model.weights[key][..., :1]} for key in shares if model.weights[key].shape[-1] > 1]
    floats = [{**model.weights, shares[0]: model.weights[shares[0]].double()}]
    state = json.loads(model.state)
    changes: list[dict[str, Any]] = [
        {"place": 1 - state["place"]},
        {"place": 7},
        {"salt": "00" * 32},
        {"widths": state["widths"][:1]},
        {"commitments": state["commitments"][:1]},
        {"batches": "ab"},
    ]
    states = ["", "{}", *(json.dumps(state | change) for change in changes)]
    encoder = json.loads(model.encoder)
    other = json.dumps(encoder | {"means": encoder["means"] + [0.0]})  # of another width
    for damaged in [
        *(replace(model, weights=of) for of in without + reshaped + floats),
        *(replace(model, state=of) for of in states),
        *(replace(model, encoder=of) for of in ("", "{}", other)),
    ]:
        with pytest.raises(StateError) as caught:
            HiddenPredictor().check(damaged)
        assert caught.value.code == "E_STATE_CORRUPT"
    with pytest.raises(StateError) as caught:
        HiddenPredictor().check(replace(model, state=json.dumps(state | {"version": 2})))
    assert caught.value.code == "E_STATE_VERSION"


@pytest.mark.parametrize("reveal", ["owners", "none"])
def test_shares_are_kept_whatever_is_opened(world: Any, attempt: Any, reveal: str) -> None:
    asked = trained(world, attempt, train={"layers": [3], "reveal": reveal})
    for place, model in enumerate(asked.models.values()):
        names = {f"share {index}" for index in range(4)}
        opened = {"weight"} | ({"bias", "layer 0", "layer 1"} if place == 0 else set())
        assert set(model.weights) == names | (opened if reveal == "owners" else set())
    stored = [StoredShares.from_json(model.state) for model in asked.models.values()]
    assert stored[0].commitments == stored[1].commitments
    assert (stored[0].batches, stored[0].widths) == (stored[1].batches, stored[1].widths)
    assert stored[0].salt != stored[1].salt
    together = asked.kept("clinic").shares[0] + asked.kept("lab").shares[0]
    if reveal == "owners":
        weight, bias = asked.models["clinic"].weights["weight"].numpy(), asked.models["clinic"].weights["bias"].numpy()
        assert np.array_equal(np.concatenate([weight.T, bias[None]]), together.view(np.int64) / 2.0**26)


def test_a_table_without_a_column_of_the_model_is_refused(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt)
    table, view = asked.data["lab"]
    name = next(iter(table.columns))
    rest = {key: of for key, of in table.columns.items() if key != name}
    words = {**table.columns, name: CategoricalColumn(np.zeros(len(table), np.int64), ("a",))}
    for columns in (rest, words):
        asked.data = {**asked.data, "lab": (replace(table, columns=columns), view)}
        request, _ = asked.all_rows("active")
        (error,) = errors_of(asked.talk("active", request)).values()
        assert isinstance(error, DataError)
        assert error.code == "E_COLUMN"


# Who may ask what.


@pytest.mark.parametrize("protocol", ["psu", "apsi"])
def test_rows_that_somebody_may_lack_are_not_served(world: Any, attempt: Any, protocol: str) -> None:
    asked = asked_of(world(2, protocol), attempt())
    request, _ = asked.all_rows("active")
    errors = errors_of(asked.talk("active", request))
    assert {error.code for name, error in errors.items()} == {"E_PREDICT"}
    assert asked.sent(MaskedShares, "clinic") == asked.sent(MaskedShares, "lab") == []


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


ASKED = [("active", "lab"), ("passive", "clinic")]


@pytest.mark.parametrize(("to", "guarded"), [*ASKED, ("insurer", "lab")])
def test_each_owner_bounds_the_rows_that_are_told(world: Any, attempt: Any, to: str, guarded: str) -> None:
    asked = trained(world, attempt, 3 if to == "insurer" else 2)
    request, positions = asked.all_rows(to)
    shown = {name: Shown() for name in asked.data} | {guarded: Shown(most=len(positions) - 1)}
    errors = errors_of(asked.talk(to, request, shown=shown))
    assert isinstance(errors[guarded], PolicyError)
    assert request.answered is None
    assert len(asked.sent(MaskedShares, guarded)) == 0 or len(shown[guarded].kept) < len(positions)


def test_what_is_told_is_counted_where_it_comes_from(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, 3)
    for to in ("active", "lab"):
        shown = {name: Shown() for name in asked.data}
        own, of = asked.data[asked.name(to)]
        results = asked.talk(to, Request(Table(Identifiers.from_items(own.ids.take(of.rows[:1])), {})), shown=shown)
        assert {name: len(of.kept) for name, of in shown.items()} == {
            name: 0 if name == asked.name(to) else BATCH for name in asked.data
        }
        assert {results[name].told for name in asked.data if name != asked.name(to)} == {BATCH}


NEW = 40


def told_once(asked: Asked, to: str, guarded: str, data: dict[str, tuple[Table, Alignment]], shown: Shown) -> bool:
    """Whether a job with new records goes through under what ``guarded`` allows."""
    errors = errors_of(asked.once(to, data, shown={guarded: shown}))
    if not errors:
        return True
    (error,) = (of for name, of in errors.items() if not name.startswith(HUB))
    assert isinstance(error, PolicyError)
    assert error.code == "E_BUDGET"
    return False


def with_one_cell(data: dict[str, tuple[Table, Alignment]], party: str) -> dict[str, tuple[Table, Alignment]]:
    table, view = data[party]
    name, column = next(iter(table.columns.items()))
    values = column.values.copy()  # type: ignore[union-attr]
    values[view.rows[0]] += 0.5
    return {**data, party: (replace(table, columns={**table.columns, name: NumericColumn(values)}), view)}


@pytest.mark.parametrize(("to", "guarded"), ASKED)
def test_new_records_count_each_with_the_columns_of_either_party(world: Any, attempt: Any, to: str, guarded: str) -> None:
    asked = trained(world, attempt)
    data, shown = new_records(asked, NEW), Shown(most=NEW + 2)
    assert not told_once(asked, to, guarded, data, Shown(most=NEW - 1))
    assert told_once(asked, to, guarded, data, shown)
    assert len(shown.kept) == NEW
    asked.state = type(asked.state)()  # another job
    assert told_once(asked, to, guarded, data, shown)  # asked again
    assert len(shown.kept) == NEW
    for changed, count in (("clinic", NEW + 1), ("lab", NEW + 2)):  # the asker could read more bits of a record in this way
        asked.state = type(asked.state)()
        assert told_once(asked, to, guarded, with_one_cell(data, changed), shown)
        assert len(shown.kept) == count
    asked.state = type(asked.state)()
    assert not told_once(asked, to, guarded, new_records(asked, NEW, seed=6), shown)


def test_so_many_models_over_a_table_may_answer_a_partner(world: Any, attempt: Any, tmp_path: Path) -> None:
    asked = trained(world, attempt, 3)
    counts: dict[tuple[str, str], PartnerCounts] = {}
    for own in (*asked.data, HUB):
        for peer in asked.data:
            (folder := tmp_path / f"{own}-{peer}").mkdir()
            counts[own, peer] = PartnerCounts(folder, peer)
    asked.memories = lambda own, peer: counts[own, peer]
    asked.limits = {"lab": Limits(budgets=Budgets(models_served=2))}

    def ask(model: str, to: str) -> dict[str, Any]:
        table, view = asked.data[asked.name(to)]
        asked.model, asked.state = model, type(asked.state)()
        return errors_of(asked.talk(to, Request(Table(Identifiers.from_items(table.ids.take(view.rows[:1])), {}))))

    assert ask("one", "active") == ask("two", "active") == ask("one", "active") == {}
    errors = ask("three", "active")
    assert {name: (type(of), of.code) for name, of in errors.items() if name in asked.data} == {
        "lab": (PolicyError, "E_BUDGET")
    }
    assert "budgets.models_served" in errors["lab"].message
    assert ask("three", "insurer") == {}  # another partner
    asked.models["lab"] = replace(asked.models["lab"], table="another")
    assert ask("three", "active") == {}  # another table, by its owner's name
    assert counts["lab", "clinic"].usage()["models_served"] == 2
    assert counts["clinic", "lab"].usage()["models_served"] == 0  # it has asked, and told nothing


# Messages.


def changed(kind: type[Any], **fields: Any) -> Any:
    def tamper(sender: str, receiver: str, message: Any) -> None:
        if isinstance(message, kind):
            for name, value in fields.items():
                if isinstance(value, list):
                    del getattr(message, name)[:]
                    getattr(message, name).extend(value)
                else:
                    setattr(message, name, value)

    return tamper


@pytest.mark.parametrize(
    "tamper",
    [
        changed(ShareCommitments, commitments=[]),
        changed(ShareCommitments, commitments=[bytes(31)]),
        changed(AnswerInputs, digest=b""),
        changed(AnswerInputs, marks=bytes(8)),
        changed(AnswerContext, digests=[bytes(32)]),
        changed(AnswerContext, digests=[bytes(32)] * 2),
        changed(AnswerContext, marks=bytes(8 * BATCH)),
        changed(AnswerTerms, widths=[1]),
        changed(AnswerTerms, context=b""),
        changed(AnswerTerms, rows=1 << 20),
        changed(DealerSeed, seed=b""),
        changed(Corrections, values=b"", last=True),
        changed(MaskedShares, values=b""),
    ],
)
@pytest.mark.parametrize("new", [False, True])
def test_malformed_messages_are_refused(world: Any, attempt: Any, tamper: Any, new: bool) -> None:
    asked = trained(world, attempt)
    asked.tamper = tamper
    request, _ = asked.all_rows("passive")
    results = asked.once("passive", new_records(asked, BATCH)) if new else asked.talk("passive", request)
    errors = errors_of(results).values()
    assert {(type(error), error.code) for error in errors} == {(ProtocolError, "E_COUNT")}
    assert request.answered is None


def test_shapes_that_no_machine_has_memory_for_are_refused(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt)
    asked.tamper = changed(AnswerTerms, widths=[1 << 20] * 2)
    asked.memory_mib = {HUB: 64}
    request, _ = asked.all_rows("active")
    errors = errors_of(asked.talk("active", request))
    assert {error.code for name, error in errors.items() if name.startswith(HUB)} == {"E_MEMORY"}


def test_what_each_party_learns_is_said(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt, 3)
    request, positions = asked.all_rows("lab")
    results = asked.talk("lab", request)
    job = asked.trained.model_copy(
        update={"train": None, "serve": None, "predict": mock.Mock(model="m", to="lab", rows="known")}
    )
    for exchanged in (results["clinic"], Predicted(np.empty(0, np.int64), np.empty(0), 30)):
        learnt = HiddenPredictor().learnt(job, exchanged)
        whats = {name: [entry.what for entry in entries] for name, entries in learnt.items()}
        assert whats == {
            "clinic": ["masked values", "requests"],
            "lab": ["masked values", "scores"],
            "insurer": ["masked values", "requests"],
            HUB: ["shapes"],
        }
        rows = 30 if isinstance(exchanged, Predicted) else BATCH * -(-len(positions) // BATCH)
        assert learnt["lab"][1].count == rows
        assert "9 bits" in learnt["lab"][1].text


def test_tensors_of_shares_are_whole_numbers(world: Any, attempt: Any) -> None:
    asked = trained(world, attempt)
    kinds = {of.dtype for name, of in asked.models["lab"].weights.items() if name.startswith("share")}
    assert kinds == {torch.int64}
