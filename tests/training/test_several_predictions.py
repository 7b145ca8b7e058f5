"""Predictions with several passive parties: the joint model's, whoever asks; each party guards what it sends itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.sessions import session
from tests.thorough import every
from tests.training.predicting import CPU, Request, Requests, Shown, Tally, predicting, prediction_embedding
from tests.training.several import SeveralParties, SeveralRuns, several_parties
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Table
from vfl_node.errors import PeerLost, PolicyError, ProtocolError
from vfl_node.job import Align, Evaluate, Predict, Serve
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.metrics.classes import auc
from vfl_node.settings.protection import Protection
from vfl_node.training.network.tasks import probabilities
from vfl_node.training.prediction.known_records import predict_known
from vfl_node.training.prediction.new_records import predict_new
from vfl_node.training.predictor import KeptHalf, Predicted, ServiceCount, StoredModel, check_allowed
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.section import Missing
from vfl_node.training.split.prediction import Embedder, Scorer, SplitModel, kept, learnt
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import prediction_pb2
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Entry, Recorder

BATCH = 16
SERVE = Serve(to="both", batch_size=BATCH)
SMOOTHED = Missing(features="smoothed")
TRAIN = Train(bottom=(8, 4), active_bottom=(4,), top=(8,), epochs=4, batch_size=32, learning_rate=3e-2, missing=SMOOTHED)
ASKERS = ["active", "lab", "insurer"]


@dataclasses.dataclass
class Halves:
    """A trained model of several parties, and what each of them has of it."""

    parties: SeveralParties
    results: Mapping[str, Any]
    train: Train = TRAIN

    def __post_init__(self) -> None:
        self.entries: list[Entry] = []

    def side(self, name: str, view: Alignment | None = None) -> Scorer | Embedder:
        of, passive = self.results[name], len(self.parties.parties.passive)
        model = SplitModel(self.train, SERVE, of.weights, of.encoder, of.servable.state, {}, passive)
        half = Scorer if name == self.parties.parties.active else Embedder
        return half(model, view or self.parties.views[name], self.parties.tables[name], CPU)

    @property
    def scorer(self) -> Scorer:
        side = self.side(self.parties.parties.active)
        assert isinstance(side, Scorer)
        return side

    def by_hand(self, places: Mapping[str, NDArray[np.int64]]) -> torch.Tensor:
        """Logits of the joint model in one batch, of the rows at these places of each party's input."""
        sides = {name: self.side(name) for name in self.parties.names}
        scorer = sides.pop(self.parties.parties.active)
        assert isinstance(scorer, Scorer)
        with torch.no_grad():
            embeddings = [
                side._bottom(side.inputs.take(places[name])) for name, side in sides.items() if isinstance(side, Embedder)
            ]
            return scorer._model(scorer.inputs.take(places[self.parties.parties.active]), embeddings)

    def own(self, to: str) -> str:
        """The name of the asker."""
        (name,) = self.parties.parties.members(to)
        return name

    def known(self, to: str, rows: Any) -> Request:
        """A request for some of the asker's own records, by their ids alone."""
        return Request(Table(Identifiers.from_items(self.parties.tables[self.own(to)].ids.take(np.asarray(rows))), {}))

    def run(self, predict: Predict, protocol: Callable[[Any, str], Any], tamper: Any, protections: Any) -> dict[str, Any]:
        """Every party's result or error."""
        names, parties = self.parties.names, self.parties.parties
        recorder, network = Recorder(edit=tamper), memory_network(*names)
        of_each = {
            name: session(
                name,
                {peer: recorder.wrap(name, network[name][peer]) for peer in parties.peers_of(name)},
                Randomness(bytes(32)),
                parties=parties,
                predict=predict,
                protection=protections.get(name, Protection()),
            )
            for name in names
        }
        results = run_together(*((protocol(own, name), own.peers.values()) for name, own in of_each.items()))
        self.entries = recorder.entries
        return dict(zip(names, results, strict=True))

    def talk(
        self,
        to: str,
        requests: Any,
        *,
        tamper: Callable[[str, str, Any], None] = lambda sender, receiver, message: None,
        shown: Mapping[str, Shown] | None = None,
        tallies: Mapping[str, Tally] | None = None,
        protections: Mapping[str, Protection] | None = None,
    ) -> dict[str, Any]:
        """Every party's result or error of one service."""

        def protocol(own: Any, name: str) -> Any:
            asks = requests if name == self.own(to) else None
            return predict_known(
                own, self.side(name), asks, shown=(shown or {}).get(name) or Shown(), tally=(tallies or {}).get(name)
            )

        return self.run(Predict(model="the-job", to=to), protocol, tamper, protections or {})

    def ask(self, to: str, *requests: Request, **how: Any) -> list[Any]:
        """The answers of requests that all go well."""
        for result in self.talk(to, Requests(*requests), **how).values():
            if isinstance(result, Exception):
                raise result
        return [request.answered for request in requests]

    def heard(self) -> list[tuple[str, str, str, bytes]]:
        """(sender, receiver, type, body) of every message of the last conversation."""
        return [(entry.sender, entry.receiver, entry.kind, entry.frame.body) for entry in self.entries]

    def sent(self, sender: str, receiver: str, kind: str) -> list[bytes]:
        return [body for *ends, of, body in self.heard() if ends == [sender, receiver] and of == kind]


def joint_logits(sides: Mapping[str, Scorer | Embedder], places: Mapping[str, NDArray[np.int64]]) -> torch.Tensor:
    """Of the rows at these places of each party's input, in one batch; the active party's side is the first."""
    (active, scorer), *others = sides.items()
    assert isinstance(scorer, Scorer)
    with torch.no_grad():
        embeddings = [side._bottom(side.inputs.take(places[name])) for name, side in others if isinstance(side, Embedder)]
        logits: torch.Tensor = scorer._model(scorer.inputs.take(places[active]), embeddings)
    return logits


def halves(passive: int = 2, *, train: Train = TRAIN, evaluate: Evaluate | None = None, **federation: Any) -> Halves:
    parties = several_parties(passive, 250, **federation)
    return Halves(parties, SeveralRuns(train=train, evaluate=evaluate or Evaluate(test_fraction=0.5))(parties), train)


@pytest.fixture(scope="module", name="intersection")
def intersection_fixture() -> Halves:
    """Three parties that trained over the records of all."""
    return halves(owned=0.9, protocol="psi")


@pytest.fixture(scope="module", name="union")
def union_fixture() -> Halves:
    """Three parties that trained over the records of any."""
    return halves(owned=0.8)


def errors_of(results: Mapping[str, Any]) -> dict[str, Exception]:
    """Party → why it ended, without those that only lost another party."""
    return {name: of for name, of in results.items() if isinstance(of, Exception) and not isinstance(of, PeerLost)}


# Right predictions.


@pytest.mark.parametrize("to", ASKERS)
def test_every_asker_gets_what_the_joint_model_says(intersection: Halves, to: str) -> None:
    name = intersection.own(to)
    (found,) = intersection.ask(to, intersection.known(to, intersection.parties.views[name].rows))
    positions = np.arange(len(found))
    expected = probabilities(intersection.by_hand(dict.fromkeys(intersection.parties.names, positions)))
    assert np.abs(found - expected).max() < 1e-6
    assert np.ptp(found) > 0.2


@pytest.mark.parametrize("passive", [1, 4])
def test_any_number_of_passive_parties(passive: int) -> None:
    made = halves(passive, owned=0.9, protocol="psi", train=TRAIN.model_copy(update={"epochs": 1}))
    for to in ("active", made.parties.parties.role_or_name(made.parties.names[-1])):
        (found,) = made.ask(to, made.known(to, made.parties.views[made.own(to)].rows))
        positions = np.arange(len(found))
        expected = probabilities(made.by_hand(dict.fromkeys(made.parties.names, positions)))
        assert np.abs(found - expected).max() < 1e-6


def test_each_passive_party_counts(intersection: Halves) -> None:
    """The negative control: with the embeddings of two parties exchanged, other predictions come."""
    names, positions = intersection.parties.names, np.arange(60)
    places = dict.fromkeys(names, positions)
    right = probabilities(intersection.by_hand(places))
    for name in names:
        other = probabilities(intersection.by_hand(places | {name: positions[::-1]}))
        assert np.abs(right - other).max() > 0.05


def test_the_active_party_gets_of_a_union_what_its_evaluation_measured(union: Halves) -> None:
    parties, active = union.parties, union.parties.parties.active
    view, table, of = parties.views[active], parties.tables[active], union.results[active]
    own = of.held_out[view.owned[of.held_out]]
    (scores,) = union.ask("active", union.known("active", view.rows[own]))
    assert table.labels is not None
    assert auc(table.labels[view.rows[own]], scores) == pytest.approx(of.results.metrics["auc"], abs=1e-6)


@pytest.mark.parametrize("to", ASKERS)
def test_rows_of_a_union_are_predicted_by_the_columns_of_training(union: Halves, to: str) -> None:
    """Also rows that one of the parties, or two of them, do not own."""
    view = union.parties.views[union.own(to)]
    own = np.flatnonzero(view.owned)
    (found,) = union.ask(to, union.known(to, view.rows[own]))
    expected = probabilities(union.by_hand(dict.fromkeys(union.parties.names, own)))
    assert np.abs(found - expected).max() < 1e-6
    assert any(not of.owned[own].all() for name, of in union.parties.views.items() if name != union.own(to))


def test_several_passive_halves_in_one_place(union: Halves) -> None:
    """What ``run --predictions`` computes is what the service says."""
    parties, job = union.parties, predicting(Predict(model="the-job", to="active"), union.parties.parties)
    job = job.model_copy(update={"train": union.train, "predict": None})

    def half(name: str) -> KeptHalf:
        of = union.results[name]
        model = StoredModel(job, of.weights, of.encoder, of.servable.state)
        return KeptHalf(model, parties.views[name], parties.tables[name])

    view = parties.views[parties.parties.active]
    own = np.flatnonzero(view.owned)
    found = kept.predict(half(parties.parties.active), [half(name) for name in parties.parties.passive], own)
    (asked,) = union.ask("active", union.known("active", view.rows[own]))
    assert np.abs(found - asked).max() < 1e-6


@pytest.mark.parametrize("to", ASKERS)
def test_new_records_that_all_parties_have(intersection: Halves, to: str) -> None:
    names, rng = intersection.parties.names, np.random.default_rng(3)
    rows = {name: rng.permutation(len(intersection.parties.tables[name]))[:100] for name in names}
    sides = {
        name: intersection.side(
            name,
            Alignment(
                ALIGNMENTS["psi"],
                "curve25519",
                of,
                100,
                {peer: PeerFacts(100, intersection=100, missing=0) for peer in names if peer != name},
            ),
        )
        for name, of in rows.items()
    }
    predict = Predict(model="the-job", to=to, rows="new")

    def again() -> dict[str, Any]:
        return intersection.run(
            predict, lambda own, name: predict_new(own, sides[name], shown=Shown()), lambda *message: None, {}
        )

    results = again()
    found = results.pop(intersection.own(to))
    assert isinstance(found, Predicted)
    assert all(other is None for other in results.values())
    own = rows[intersection.own(to)]
    assert (found.rows == np.sort(own)).all()
    expected = probabilities(joint_logits(sides, dict.fromkeys(names, np.argsort(own))))
    assert np.abs(found.probabilities - expected).max() < 1e-6
    heard = intersection.heard()
    again()
    assert intersection.heard() == heard


# What each party sends and sees.


@pytest.mark.parametrize("to", ASKERS)
def test_only_the_asker_gets_probabilities_and_every_other_party_the_same_ask(union: Halves, to: str) -> None:
    names, asker = union.parties.names, union.own(to)
    active, *passive = names
    union.ask(to, union.known(to, range(40)))
    assert all(bool(union.sent(active, name, "Probabilities")) == (name == asker) for name in passive)
    asks = {name: union.sent(active if name != active else asker, name, "PredictionAsk") for name in names if name != asker}
    (ask,) = {tuple(of) for of in asks.values()}
    assert len(ask) == 2
    batches = len(prediction_pb2.PredictionAsk.FromString(ask[0]).batches)
    assert all(len(union.sent(name, active, "Embedding")) == batches for name in passive)
    assert not any(union.sent(name, other, kind) for name in passive for other in passive for kind in ("Embedding",))


@pytest.mark.parametrize("to", [pytest.param(of, marks=pytest.mark.slow) if of == "insurer" else of for of in ASKERS])
def test_rows_of_one_batch_are_asked_for_with_the_same_bytes_at_every_party(union: Halves, to: str) -> None:
    side = union.side(union.own(to))
    seen: dict[int, set[Any]] = {0: set(), 1: set()}
    for row in every(2, range(len(union.parties.tables[union.own(to)]))):
        numbers, _ = side.batches.find(np.flatnonzero(side.alignment.rows == row))
        if (number := int(numbers[0])) in seen:
            union.ask(to, union.known(to, [row]))
            seen[number].add(tuple(union.heard()))
    assert [len(transcripts) for transcripts in seen.values()] == [1, 1]
    assert seen[0] != seen[1]


@pytest.mark.parametrize("to", ASKERS)
def test_after_a_break_everything_is_the_same_again_and_counted_twice(union: Halves, to: str) -> None:
    asker, names = union.own(to), union.parties.names
    table, shown, tallies = union.parties.tables[asker], {name: Shown() for name in names}, {name: Tally() for name in names}
    request = union.known(to, range(len(table)))
    sent = [0]

    def breaks(sender: str, receiver: str, message: Any) -> None:
        sent[0] += message.DESCRIPTOR.name == "Embedding"
        if sent[0] == 20:
            raise PeerLost("the connection ended")

    requests = Requests(request)
    results = union.talk(to, requests, tamper=breaks, shown=shown, tallies=tallies)
    assert all(isinstance(result, PeerLost) for result in results.values())
    before = {ends: [body for *of, _, body in union.heard() if tuple(of) == ends] for ends in pairs(names)}
    counted = {name: tally.kept.batches if tally.kept else 0 for name, tally in tallies.items()}
    assert request.answered is None
    results = union.talk(to, requests, shown=shown, tallies=tallies)
    assert not errors_of(results)
    after = {ends: [body for *of, _, body in union.heard() if tuple(of) == ends] for ends in pairs(names)}
    assert all(after[ends][: len(bodies)] == bodies for ends, bodies in before.items())
    (whole,) = union.ask(to, union.known(to, range(len(table))))
    assert request.answered is not None
    assert (request.answered == whole).all()
    batches = len(union.scorer.batches)
    assert {name: result.batches for name, result in results.items()} == {name: of + batches for name, of in counted.items()}
    assert {name: result.requests for name, result in results.items()} == {name: int(name == asker) for name in names}


def pairs(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(one, other) for one in names for other in names if one != other]


# What each party refuses.


@pytest.mark.parametrize(("party", "to"), every(4, list(product(["clinic", "lab", "insurer"], ASKERS))))
def test_each_party_has_its_own_limit_of_rows(union: Halves, to: str, party: str) -> None:
    """The one whose limit is reached sends nothing more; rows that were told before are free."""
    asker, names = union.own(to), union.parties.names
    shown = {name: Shown(3 * BATCH if name == party else 10**6) for name in names}
    requests = [union.known(to, [row]) for row in range(len(union.parties.tables[asker]))]
    results = union.talk(to, Requests(*requests), shown=shown)
    if party == "clinic" and to == "active":  # it tells nobody anything of any row
        assert not errors_of(results)
        return
    told = shown[party].rows()
    assert 0 < len(told) <= 3 * BATCH
    if party == asker:
        assert not errors_of(results)
        assert requests[-1].failed is None or requests[-1].failed.code == "E_BUDGET"
        assert any(request.failed for request in requests)
    else:
        (failed,) = errors_of(results).items()
        assert (failed[0], type(failed[1]), failed[1].code) == (party, PolicyError, "E_BUDGET")  # type: ignore[attr-defined]
    (first,) = union.ask(to, again := union.known(to, [0]), shown=shown)
    assert first == requests[0].answered == again.answered
    assert (shown[party].rows() == told).all()


def test_the_attacks_of_one_party_end_a_service_at_that_party() -> None:
    """It had copied rows in training; nothing of the others' matters."""
    made = halves(owned=0.7, train=TRAIN.model_copy(update={"missing": Missing(features="sampling"), "epochs": 1}))
    everything = made.known("active", range(len(made.parties.tables["clinic"])))
    results = made.talk("active", Requests(everything), protections={"insurer": Protection(max_attack_auc=0.6)})
    (failed,) = errors_of(results).items()
    assert failed[0] == "insurer"
    assert failed[1].code == "E_LEAK"  # type: ignore[attr-defined]
    assert everything.answered is None


@pytest.mark.parametrize("to", ["active", "lab"])
def test_a_wrong_message_names_its_sender(union: Halves, to: str) -> None:
    def other_step(sender: str, receiver: str, message: Any) -> None:
        if sender == "insurer" and message.DESCRIPTOR.name == "Embedding":
            message.step += 1

    def other_batches(sender: str, receiver: str, message: Any) -> None:
        if sender == "insurer" and message.DESCRIPTOR.name == "PredictionTerms":
            message.batches = bytes(32)

    def other_shape(sender: str, receiver: str, message: Any) -> None:
        if sender == "insurer" and message.DESCRIPTOR.name == "Embedding":
            message.tensor.CopyFrom(codec.encode(torch.zeros(3, 2)))

    for tamper, code in ((other_step, "E_ORDER"), (other_batches, "E_PREDICT"), (other_shape, "E_SHAPE")):
        (failed,) = errors_of(union.talk(to, Requests(union.known(to, [0])), tamper=tamper)).items()
        assert failed[0] == "clinic"
        assert isinstance(failed[1], ProtocolError)
        assert failed[1].code == code
        assert "insurer" in str(failed[1])


def test_rows_are_named_where_several_parties_have_columns() -> None:
    """An active party without columns needs no ids of one passive party's rows; of several it must name them to each."""
    made = halves(owned=0.9, protocol="psi", active_columns=False, train=TRAIN.model_copy(update={"epochs": 1}))
    view = made.parties.views["lab"]
    (found,) = made.ask("lab", made.known("lab", view.rows))
    (terms,) = made.sent("clinic", "lab", "PredictionTerms")
    assert not prediction_pb2.PredictionTerms.FromString(terms).unnamed
    expected = probabilities(made.by_hand(dict.fromkeys(made.parties.names, np.arange(len(found)))))
    assert np.abs(found - expected).max() < 1e-6


@pytest.mark.parametrize(
    ("to", "may"), [("both", ASKERS), ("passive", ASKERS[1:]), ("active", ASKERS[:1]), ("insurer", ASKERS[2:])]
)
def test_training_says_which_parties_may_ask(to: str, may: list[str]) -> None:
    parties = several_parties(2, 20).parties
    for asker in ASKERS:
        job, serving = predicting(Predict(model="the-job", to=asker), parties), Serve(to=to)
        if asker in may:
            check_allowed(job, serving)
            continue
        with pytest.raises(PolicyError, match=f"{job.asker} gets no predictions") as caught:
            check_allowed(job, serving)
        assert caught.value.code == "E_PREDICT"


# The ledger.


@pytest.mark.parametrize("to", ASKERS)
def test_the_ledger_counts_what_crossed_the_wire_at_every_party(union: Halves, to: str) -> None:
    results = union.talk(to, Requests(union.known(to, range(40))))
    active, *passive = union.parties.names
    asker, job = union.own(to), predicting(Predict(model="the-job", to=to), union.parties.parties)
    rows = {name: sum(len(prediction_embedding(body)) for body in union.sent(name, active, "Embedding")) for name in passive}
    for result in results.values():
        assert isinstance(result, ServiceCount)
        ledger = learnt(job, result)
        assert list(ledger) == [active, *passive]
        embeddings = [entry for entry in ledger[active] if entry.what == "embeddings"]
        assert [entry.count for entry in embeddings] == [rows[name] for name in passive]
        assert all(f"from {name} an embedding" in entry.text for name, entry in zip(passive, embeddings, strict=True))
        for name, entries in ledger.items():
            requests = [entry for entry in entries if entry.what == "requests"]
            assert [entry.count for entry in requests] == ([] if name == asker else [result.batches])
            assert all(f"{asker} asked for" in entry.text for entry in requests)
            predictions = [entry for entry in entries if entry.what == "predictions"]
            assert bool(predictions) == (name == asker != active)
            others = [other for other in passive if other != asker]
            assert all(f"the columns of {other}" in entry.text for entry in predictions for other in others)


@pytest.mark.parametrize(("protocol", "made_up"), [("psu", True), ("psi", False)])
def test_the_ledger_says_of_made_up_columns_where_there_can_be_any(protocol: str, made_up: bool) -> None:
    job = predicting(Predict(model="the-job", to="insurer"), several_parties(2, 20).parties)
    job = job.model_copy(update={"align": Align.model_validate({"protocol": protocol})})
    (entry,) = learnt(job, ServiceCount(rows=64, batches=1))["insurer"]
    assert ("of the columns of lab and of the rows for which it made them up" in entry.text) == made_up
