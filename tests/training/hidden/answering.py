"""Parties that ask each other for predictions in shares, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.sessions import session
from tests.training.hidden.conftest import Attempt
from tests.training.predicting import Request, Requests, Shown, Tally
from tests.training.shares_attempts import HUB, State, World, ending_all
from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.ring import WEIGHT_FRACTION, decode
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import PeerLost
from vfl_node.job import Job, Parties, Predict, Serve
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.limits import Limits
from vfl_node.training.hidden import alone
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.kept import KeptShares
from vfl_node.training.hidden.predictor import HiddenPredictor
from vfl_node.training.predictor import KeptHalf, StoredModel
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder

BATCH = 8
SERVE = Serve(to="both", batch_size=BATCH)


@dataclass
class Asked:
    """Data parties with their parts of a model.

    Attributes:
        trained: the job that trained it.
        data: party → its table and its view, the active one first.
        models: party → its part.
    """

    trained: Job
    data: Mapping[str, tuple[Table, Alignment]]
    models: Mapping[str, StoredModel]
    state: State = field(default_factory=State)
    limits: Mapping[str, Limits] = field(default_factory=dict)
    memory_mib: Mapping[str, int] = field(default_factory=dict)
    memories: Callable[[str, str], Any] = lambda own, peer: MemoryOfOneRun(Randomness(bytes(32)))
    tamper: Callable[[str, str, Any], None] = lambda sender, receiver, message: None
    """May change a message on its way out."""
    recorder: Recorder = field(default_factory=Recorder)
    tallies: dict[str, Tally] = field(default_factory=dict)
    model: str = "the-job"
    job: str = ""
    """Another one has another seed at every party; its state is another one, too."""

    @property
    def parties(self) -> Parties:
        return self.trained.parties

    @property
    def train(self) -> Hidden:
        return Hidden.section_of(self.trained)

    def kept(self, name: str) -> KeptShares:
        return KeptShares.from_model(self.models[name])

    def name(self, to: str) -> str:
        """The asker's."""
        (name,) = self.parties.members(to)
        return name

    def scores(self, positions: Any, data: Mapping[str, tuple[Table, Alignment]] | None = None) -> np.ndarray:
        """z of rows by the weights that all shares add up to, float64[k, K], not rounded."""
        kept = [self.kept(name) for name in self.models]
        weights = [
            decode(np.sum(parts, axis=0, dtype=np.uint64), WEIGHT_FRACTION)
            for parts in zip(*(of.shares for of in kept), strict=True)
        ]
        first: Any = 0
        for of, weight, (table, view) in zip(kept, weights, (data or self.data).values(), strict=False):
            first = first + decode(of.columns(table)[view.rows[positions]]) @ weight
        return np.asarray(alone.scores_from_sums(first, weights[len(kept) :]))

    def halves(self) -> list[KeptHalf]:
        return [KeptHalf(self.models[name], view, table) for name, (table, view) in self.data.items()]

    def all_rows(self, to: str) -> tuple[Request, np.ndarray]:
        """A request for every shared record of the asker, and the position of each."""
        table, view = self.data[self.name(to)]
        order = np.flatnonzero(view.owned)
        order = order[np.argsort(view.rows[order])]
        return Request(Table(Identifiers.from_items(table.ids.take(view.rows[order])), {})), order

    def run(self, predict: Predict, protocol: Any) -> dict[str, Any]:
        """Every party's result or error; the coordinator's are those of its conversations."""
        parties = self.parties
        self.recorder, network = (
            Recorder(edit=lambda sender, receiver, message: self.tamper(sender, receiver, message)),
            memory_network(*parties.all),
        )
        sessions = {
            name: session(
                name,
                {peer: self.recorder.wrap(name, network[name][peer]) for peer in parties.peers_of(name)},
                Randomness((name + self.job).encode().ljust(32)),
                parties=parties,
                predict=predict,
                pins=self.state.pins[name],
                folder=self.state.folder_of(name),
                memories={peer: self.memories(name, peer) for peer in parties.others(name)},
                limits=self.limits.get(name, Limits()),
                memory_mib=self.memory_mib.get(name),
            )
            for name in parties.all
        }
        self.tallies = {name: Tally() for name in parties.all}
        each = [(protocol(sessions[name], name), list(sessions[name].peers.values())) for name in parties.data]
        names = list(parties.data)
        if parties.coordinator:
            self.dealing = HiddenPredictor().coordination(sessions[HUB], self.trained, self.tallies[HUB])
            ends = sessions[HUB].peers.values()
            each += [(ending_all(self.dealing.serve(channel), ends), [channel]) for channel in ends]
            names += [f"{HUB} with {name}" for name in parties.data]
        ended = run_together(*each)
        return dict(zip(names, ended, strict=True))

    def talk(self, to: str, *requests: Request, shown: Mapping[str, Shown] | None = None) -> dict[str, Any]:
        """Every party's result or error of one service."""

        def protocol(own: Any, name: str) -> Any:
            table, view = self.data[name]
            asks = Requests(*requests) if name == self.name(to) else None
            told = (shown or {}).get(name) or Shown()
            return HiddenPredictor().predict_known(
                own, self.models[name], view, table, asks, shown=told, tally=self.tallies[name]
            )

        return self.run(Predict(model=self.model, to=to), protocol)

    def once(
        self, to: str, data: Mapping[str, tuple[Table, Alignment]], *, shown: Mapping[str, Shown] | None = None
    ) -> dict[str, Any]:
        """Every party's result or error of a job with new records."""

        def protocol(own: Any, name: str) -> Any:
            table, view = data[name]
            told = (shown or {}).get(name) or Shown()
            return HiddenPredictor().predict_new(own, self.models[name], view, table, shown=told)

        return self.run(Predict(model=self.model, to=to, rows="new"), protocol)

    def sent(self, kind: type[Any], sender: str, receiver: str | None = None) -> list[Any]:
        """The messages of one type."""
        return list(self.recorder.messages(kind, sender=sender, receiver=receiver))

    def in_another_job(self, name: str) -> Asked:
        """The same model, asked anew: no mask comes again."""
        return replace(self, state=State(), job=f" {name}")

    def frames(self) -> list[tuple[str, str, str, bytes]]:
        """Every message, in order."""
        return [(of.sender, of.receiver, of.kind, of.frame.body) for of in self.recorder.entries]


_TRAINED: dict[str, Asked] = {}
"""Settings → a model that nobody has asked yet."""


def trained(world: Any, attempt: Any, parties: int = 2, train: dict[str, Any] | None = None, **people: Any) -> Asked:
    """A model, trained in memory once for all who ask for it."""
    key = repr((parties, train, people))
    if key not in _TRAINED:
        _TRAINED[key] = asked_of(world(parties, "psi", **people), attempt(train or {}))
    of = _TRAINED[key]
    return Asked(of.trained, dict(of.data), dict(of.models))


def asked_of(over: World, of: Attempt) -> Asked:
    """The model of one attempt."""
    results, job = of(over), of.job(over).model_copy(update={"serve": SERVE})
    models = {}
    for name, result in zip(over.data, results, strict=True):
        assert result.servable is not None
        models[name] = StoredModel(job, result.weights, result.encoder, result.servable.state)
    return Asked(job, over.data, models)


def new_records(asked: Asked, records: int, shared: int | None = None, seed: int = 5) -> dict[str, tuple[Table, Alignment]]:
    """Each party's table of new records, in an order of its own, and its view of those that are shared; None: all are."""
    rng, data, order = np.random.default_rng(seed), {}, np.arange(records if shared is None else shared)
    for name, (table, view) in asked.data.items():
        own = rng.permutation(records)
        columns = {column: NumericColumn(rng.normal(size=records)) for column in table.columns}
        ids = Identifiers.from_items(f"new {number}".encode() for number in own)
        facts = {peer: replace(of, records=records, intersection=len(order), missing=0) for peer, of in view.peers.items()}
        data[name] = Table(ids, columns), Alignment(ALIGNMENTS["psi"], "curve25519", np.argsort(own)[order], records, facts)
    return data


def errors_of(results: Mapping[str, Any]) -> dict[str, Any]:
    """Party → why it ended, without those that only lost another party."""
    return {name: of for name, of in results.items() if isinstance(of, Exception) and not isinstance(of, PeerLost)}
