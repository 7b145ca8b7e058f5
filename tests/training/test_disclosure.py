"""What predictions tell under one set of weights: attacked and counted before it leaves, and the same at every request."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.predicting import (
    NEW_TO_ACTIVE,
    NEW_TO_PASSIVE,
    TO_ACTIVE,
    TO_PASSIVE,
    Request,
    Requests,
    Shown,
    World,
    aligned,
    predict_both,
    taken,
    unseen,
)
from vfl_node.configuration.models import parse
from vfl_node.data.tables import rows_of
from vfl_node.errors import PolicyError
from vfl_node.job import Job, Predict, Serve, parse_job
from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks import near_duplicate
from vfl_node.settings.protection import Protection
from vfl_node.training.prediction.shown import names_of_unnamed
from vfl_node.training.predictor import ServiceCount
from vfl_node.training.split.config import SERVED_FEATURES
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.prediction import Embedder, Scorer

Make = Callable[..., Any]
OWNED = (0.9, 0.9)
BATCH = 16


def everything(world: World, party: str = "clinic") -> Request:
    """A request for all own ids of a party."""
    table = getattr(world.parties, party)
    return world.known(table, range(len(table)))


def twins(world: World, shown: Shown) -> float | None:
    """The AUC of the search for near rows on all that the active party has heard, with the passive party's truth."""
    sides, rows = world.sides, {}
    sent = world.embeddings()
    batches = sides[1].batches
    numbers = [number for ask in asked(world) for number in ask]
    for place, position in enumerate(np.concatenate([batches.positions(number) for number in numbers])[: len(sent)].tolist()):
        rows[position] = sent[place]
    assert set(rows) == set(shown.rows().tolist())
    positions = np.array(sorted(rows))
    near = near_duplicate.scores(torch.from_numpy(np.stack([rows[at] for at in positions.tolist()])))
    return auc(~world.parties.lab_view.owned[positions], near.numpy())


def asked(world: World) -> list[list[int]]:
    from vfl_node.transport.generated.vfl.v1 import prediction_pb2

    return [list(prediction_pb2.PredictionAsk.FromString(body).batches) for body in world.bodies("PredictionAsk")]


def error_of(results: list[Any], party: int) -> PolicyError:
    assert isinstance(results[party], PolicyError), results
    return results[party]


# One request for all own ids.


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_copies_are_found_by_one_request_for_all_own_ids_where_nothing_stops_it(world: Make, predict: Predict) -> None:
    made, shown = world(missing=Missing(features="sampling"), owned=OWNED, epochs=1), (Shown(), Shown())
    made.ask(predict, everything(made, "clinic" if predict is TO_ACTIVE else "lab"), shown=shown)
    found = twins(made, shown[1])
    assert found is not None
    assert found > 0.9
    noted = made.progress[1].attacks[-1]
    assert noted["near_duplicate"] == pytest.approx(found, abs=0.01)
    assert noted["same_step_twin"] > 0.9


def test_rows_of_the_default_strategy_are_not_found(world: Make) -> None:
    made, shown = world(missing=Missing(features=SERVED_FEATURES), owned=OWNED, epochs=1), (Shown(), Shown())
    made.ask(TO_ACTIVE, everything(made), shown=shown, protection=Protection(max_attack_auc=0.7))
    assert twins(made, shown[1]) == pytest.approx(0.5, abs=0.12)
    assert all(value == pytest.approx(0.5, abs=0.15) for value in made.progress[1].attacks[-1].values())


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
def test_a_service_ends_before_its_own_attacks_do_better_than_its_owner_allows(world: Make, predict: Predict) -> None:
    """At once where the first rows would tell it, else as soon as they do; another service over the model goes no further."""
    made, shown = world(missing=Missing(features="sampling"), owned=OWNED, epochs=1), (Shown(), Shown())
    party = "clinic" if predict is TO_ACTIVE else "lab"
    table, limit = getattr(made.parties, party), 0.65
    requests = Requests(*(made.known(table, [row]) for row in range(len(table))))
    results = made.talk(predict, requests, shown=shown, protection=Protection(max_attack_auc=limit))
    error = error_of(results, 1)
    assert (error.code, error.peer_code) == ("E_LEAK", "E_STOPPED")
    assert "AUC" not in error.for_peer
    assert not isinstance(results[0], PolicyError)
    told = shown[1].rows()
    assert len(told) < 0.9 * len(made.parties.lab_view)
    best = twins(made, shown[1]) if len(told) else None
    assert best is None or best <= limit + 1e-9
    again = made.talk(predict, Requests(everything(made, party)), shown=shown, protection=Protection(max_attack_auc=limit))
    assert error_of(again, 1).code == "E_LEAK"
    assert (shown[1].rows() == told).all()


def test_rows_told_before_are_answered_again_after_the_service_ended(world: Make) -> None:
    made, shown = world(missing=Missing(features="sampling"), owned=OWNED, epochs=1), (Shown(), Shown())
    first = made.known(made.parties.clinic, [0])
    made.ask(TO_ACTIVE, first, shown=shown)
    made.talk(TO_ACTIVE, Requests(everything(made)), shown=shown, protection=Protection(max_attack_auc=0.6))
    (again,) = made.ask(TO_ACTIVE, made.known(made.parties.clinic, [0]), shown=shown, protection=Protection(max_attack_auc=0.6))
    assert (again == first.answered).all()


def test_nothing_is_audited_where_every_row_is_real(world: Make) -> None:
    made = world(protocol="psi")
    made.ask(TO_ACTIVE, everything(made), protection=Protection(max_attack_auc=0.501))
    assert not any(made.progress[1].attacks)


def test_a_service_goes_on_with_what_earlier_ones_told(world: Make) -> None:
    """Also one the other way: what counts is the model."""
    made, shown = world(missing=Missing(features="sampling"), owned=OWNED, epochs=1), (Shown(), Shown())
    results = made.talk(TO_ACTIVE, Requests(everything(made)), shown=shown)
    whole = results[1]
    assert isinstance(whole, ServiceCount)
    assert whole.told == len(made.parties.lab_view) == len(shown[1].rows())
    later = made.talk(TO_PASSIVE, Requests(made.known(made.parties.lab, [0])), shown=shown)[1]
    assert (later.told, later.attacks) == (whole.told, pytest.approx(whole.attacks, abs=0.01))


# How many rows.


@pytest.mark.parametrize("predict", [TO_ACTIVE, TO_PASSIVE])
@pytest.mark.parametrize("party", [0, 1])
def test_no_more_rows_of_a_model_are_told_than_the_owner_allows(world: Make, predict: Predict, party: int) -> None:
    """In all services; rows that were told before are free. The active party tells something where the passive one asks."""
    made = world(owned=OWNED, epochs=1)
    shown = [Shown(), Shown()]
    shown[party] = Shown(3 * BATCH)
    table = made.parties.clinic if predict is TO_ACTIVE else made.parties.lab
    requests = [made.known(table, [row]) for row in range(len(table))]
    results = made.talk(predict, Requests(*requests), shown=tuple(shown))
    if predict is TO_ACTIVE and party == 0:  # it tells the passive party nothing of any row
        assert isinstance(results[0], ServiceCount)
        assert len(shown[0].rows()) == 0
        return
    told = shown[party].rows()
    assert 0 < len(told) <= 3 * BATCH
    sent = made.embeddings() if party else made.probabilities()
    assert 0 < len({batch.tobytes() for batch in sent.reshape(-1, BATCH, *sent.shape[1:])}) <= 3
    (first,) = made.ask(predict, requests[0], shown=tuple(shown))
    assert first == requests[0].answered
    assert (shown[party].rows() == told).all()


def test_the_asker_that_has_told_enough_fails_its_request_alone(world: Make) -> None:
    made, shown = world(owned=OWNED), (Shown(), Shown(2 * BATCH))
    much, little = everything(made, "lab"), made.known(made.parties.lab, [0])
    made.talk(TO_PASSIVE, Requests(much, little), shown=shown)
    assert much.failed is not None
    assert much.failed.code == "E_BUDGET"
    assert little.answered is not None


def test_rows_that_are_not_named_count_once(world: Make) -> None:
    made, shown = world(active_features=False), (Shown(), Shown())
    for _ in range(2):
        made.ask(TO_PASSIVE, Request(unseen(20)), shown=shown)
        assert [len(of.rows()) for of in shown] == [2 * BATCH] * 2
    made.ask(TO_PASSIVE, Request(unseen(20, seed=2)), shown=shown)
    assert [len(of.rows()) for of in shown] == [4 * BATCH] * 2
    assert all((of.rows() < 0).all() for of in shown)
    assert len(np.unique(names_of_unnamed(made.sides[0], torch.from_numpy(made.embeddings())))) == 2 * BATCH


def test_known_rows_without_ids_count_as_those_that_they_are(world: Make) -> None:
    """The active party may recognise an agreed batch, and has its ids. It has no columns: its answers depend on embeddings."""
    made, shown = world(active_features=False, owned=OWNED), (Shown(), Shown())
    lab, view, batches = made.parties.lab, made.parties.lab_view, made.sides[1].batches
    positions = np.flatnonzero(view.owned)[:3]
    for _ in range(2):
        made.ask(TO_PASSIVE, Request(taken(lab, view.rows[positions])), shown=shown)
    sent = np.unique(np.concatenate([batches.positions(number) for number in batches.find(positions)[0].tolist()]))
    assert (shown[1].rows() == sent).all()
    assert (shown[0].rows() < 0).all()


# New records.

NEW = 60
ASKED = [(NEW_TO_ACTIVE, 1), (NEW_TO_PASSIVE, 1), (NEW_TO_PASSIVE, 0)]


def new_records(made: World, *, equal: bool = False, reverse: bool = False) -> tuple[Scorer, Embedder]:
    """Sides over an intersection of other records; ``equal``: all the passive party's have the same columns."""
    lab = unseen(NEW)
    if equal:
        columns = {name: rows_of(column, np.zeros(NEW, dtype=np.int64)) for name, column in lab.columns.items()}
        lab = dataclasses.replace(lab, columns=columns)
    clinic = taken(made.parties.clinic, np.arange(NEW), prefix=b"new ")
    there = dataclasses.replace(made, parties=dataclasses.replace(made.parties, clinic=clinic, lab=lab))
    order = np.arange(NEW)[::-1].copy() if reverse else np.arange(NEW)
    return aligned(there, order, order.copy(), "psi")


def told_once(predict: Predict, sides: tuple[Scorer, Embedder], party: int, shown: Shown) -> bool:
    """Whether a job with new records goes through under what ``party`` allows."""
    other = (Shown(), Shown())
    results = predict_both(predict, sides, (shown, other[1]) if party == 0 else (other[0], shown))
    if not any(isinstance(result, Exception) for result in results):
        return True
    assert error_of(results, party).code == "E_BUDGET"
    return False


@pytest.mark.parametrize("active_features", [True, False])
@pytest.mark.parametrize(("predict", "party"), ASKED)
def test_new_records_count_though_their_columns_are_equal(
    world: Make, predict: Predict, party: int, active_features: bool
) -> None:
    made, shown = world(active_features=active_features, epochs=1), Shown(NEW)
    assert not told_once(predict, new_records(made, equal=True), party, Shown(NEW - 1))
    assert told_once(predict, new_records(made, equal=True), party, shown)
    assert len(shown.kept) == NEW
    assert told_once(predict, new_records(made, equal=True), party, shown)
    assert not told_once(predict, new_records(made), party, shown)  # other columns


@pytest.mark.parametrize("active_features", [True, False])
def test_an_asker_that_sends_the_same_of_all_records_is_told_of_no_more(
    world: Make, monkeypatch: pytest.MonkeyPatch, active_features: bool
) -> None:
    made, shown = world(active_features=active_features, epochs=1), Shown(NEW)
    monkeypatch.setattr(Embedder, "embed_new", lambda self, positions: torch.zeros(len(positions), self.terms.width))
    assert not told_once(NEW_TO_PASSIVE, new_records(made), 0, Shown(NEW - 1))
    assert told_once(NEW_TO_PASSIVE, new_records(made), 0, shown)
    assert len(shown.kept) == NEW
    monkeypatch.setattr(Embedder, "embed_new", lambda self, positions: torch.ones(len(positions), self.terms.width))
    assert not told_once(NEW_TO_PASSIVE, new_records(made), 0, shown)  # another question about each of them


def test_a_new_record_that_the_passive_party_told_is_free_in_any_batch(world: Make) -> None:
    made, shown = world(epochs=1), Shown(NEW)
    for reverse in (False, True):
        assert told_once(NEW_TO_ACTIVE, new_records(made, reverse=reverse), 1, shown)
    assert len(shown.kept) == NEW


# The same rows again.


def test_both_kinds_of_service_send_the_same_rows(world: Make) -> None:
    """Synthetic rows are drawn once for the model: there is no second draw to compare."""
    made = world(missing=Missing(features="sampling"), owned=OWNED, epochs=1, serve=Serve(to="both", batch_size=BATCH))
    rows: list[dict[int, bytes]] = []
    for predict, party in ((TO_ACTIVE, "clinic"), (TO_PASSIVE, "lab")):
        made.ask(predict, everything(made, party))
        numbers = [number for ask in asked(made) for number in ask]
        positions = np.concatenate([made.sides[1].batches.positions(number) for number in numbers])
        rows.append({int(at): row.tobytes() for at, row in zip(positions, made.embeddings(), strict=True)})
    common = rows[0].keys() & rows[1].keys()
    assert not made.parties.lab_view.owned[sorted(common)].all()
    assert all(rows[0][at] == rows[1][at] for at in common)


def test_another_strategy_than_that_of_training_would_be_told_by_the_change(world: Make) -> None:
    """Held-out rows were sent in training under the weights that predictions have: only synthetic rows would differ."""
    made = world(missing=Missing(features="sampling"), owned=OWNED, epochs=1)
    view = made.parties.lab_view
    trained = made.sides[1].embed_shared(np.arange(len(view)))
    other = made.train.model_copy(update={"missing": Missing(features="smoothed")})
    answered = World(made.parties, made.results, other).sides[1].embed_shared(np.arange(len(view)))
    change = (trained - answered).norm(dim=1).numpy()
    assert auc(~view.owned, change) == 1.0


JOB = "name: a\nparties: {active: clinic, passive: lab}\ntrain: {epochs: 1%s}\n%s"


@pytest.mark.parametrize(
    ("missing", "serve", "expected"),
    [
        ("", "serve: {to: both}", SERVED_FEATURES),
        (", missing: {labels: minority}", "serve: {to: both}", SERVED_FEATURES),
        (", missing: {features: sampling}", "serve: {to: both}", "sampling"),
        ("", "", "sampling"),
    ],
)
def test_a_job_that_serves_has_rows_that_survive_it_unless_it_says_otherwise(missing: str, serve: str, expected: str) -> None:
    job = parse(JOB % (missing, serve), Job, source="job")
    assert job.train is not None
    assert job.train.missing.features == expected  # type: ignore[union-attr]
    assert parse_job(job.canonical(), source="job") == job
