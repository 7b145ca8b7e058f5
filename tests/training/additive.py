"""Parties that ask each other for predictions by an additive model, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.sessions import session
from tests.training.predicting import Request, Requests, Shown, Tally
from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Table
from vfl_node.errors import PeerLost
from vfl_node.job import Parties, Predict
from vfl_node.training.additive.half import predict_jointly
from vfl_node.training.additive.predictor import AdditivePredictor
from vfl_node.training.predictor import KeptHalf, StoredModel
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.memory import memory_network, run_together
from vfl_node.transport.recorder import Recorder


@dataclass
class Asking:
    """Data parties with their halves of a model.

    Attributes:
        data: party → its table and its view, the active one first.
        models: party → its half.
        predictor: of the model.
    """

    data: Mapping[str, tuple[Table, Alignment]]
    models: Mapping[str, StoredModel]
    predictor: AdditivePredictor
    recorder: Recorder = field(default_factory=Recorder)
    tamper: Callable[[Any], None] = lambda message: None
    """May change a message on its way out."""

    @property
    def parties(self) -> Parties:
        """Those with data: the coordinator has no part in predictions."""
        active, *passive = self.data
        return Parties(active=active, passive=tuple(passive))

    def name(self, to: str) -> str:
        """The asker's."""
        (name,) = self.parties.members(to)
        return name

    def together(self, positions: Any, data: Mapping[str, tuple[Table, Alignment]] | None = None) -> np.ndarray:
        """What all halves say in one place."""
        halves = [KeptHalf(self.models[name], view, table) for name, (table, view) in (data or self.data).items()]
        return predict_jointly(self.predictor.open_half, halves[0], halves[1:], positions)

    def all_rows(self, to: str) -> tuple[Request, np.ndarray]:
        """A request for every shared record of the asker, and the position of each."""
        table, view = self.data[self.name(to)]
        order = np.flatnonzero(view.owned)
        order = order[np.argsort(view.rows[order])]
        return Request(Table(Identifiers.from_items(table.ids.take(view.rows[order])), {})), order

    def run(self, predict: Predict, protocol: Any) -> dict[str, Any]:
        """Every party's result or error."""
        parties = self.parties
        self.recorder, network = (
            Recorder(edit=lambda sender, receiver, message: self.tamper(message)),
            memory_network(*parties.all),
        )
        sessions = {
            name: session(
                name,
                {peer: self.recorder.wrap(name, network[name][peer]) for peer in parties.peers_of(name)},
                Randomness(bytes(32)),
                parties=parties,
                predict=predict,
            )
            for name in parties.all
        }
        ended = run_together(*((protocol(own, name), own.peers.values()) for name, own in sessions.items()))
        return dict(zip(sessions, ended, strict=True))

    def talk(self, to: str, *requests: Request, shown: Mapping[str, Shown] | None = None) -> dict[str, Any]:
        """Every party's result or error of one service."""

        def protocol(own: Any, name: str) -> Any:
            table, view = self.data[name]
            asks = Requests(*requests) if name == self.name(to) else None
            told = (shown or {}).get(name) or Shown()
            return self.predictor.predict_known(own, self.models[name], view, table, asks, shown=told, tally=Tally())

        return self.run(Predict(model="the-job", to=to), protocol)

    def once(
        self, to: str, data: Mapping[str, tuple[Table, Alignment]], *, shown: Mapping[str, Shown] | None = None
    ) -> dict[str, Any]:
        """Every party's result or error of a job with new records."""

        def protocol(own: Any, name: str) -> Any:
            table, view = data[name]
            told = (shown or {}).get(name) or Shown()
            return self.predictor.predict_new(own, self.models[name], view, table, shown=told)

        return self.run(Predict(model="the-job", to=to, rows="new"), protocol)

    def sent(self, kind: type[Any], sender: str) -> list[Any]:
        """The messages of one type."""
        return list(self.recorder.messages(kind, sender=sender))

    def parts(self, sender: str) -> np.ndarray:
        """All that a passive party has sent of rows, float64[rows, width], in the order of messages."""
        tensors = [message.tensor for message in self.sent(training_pb2.Embedding, sender)]
        return np.concatenate([codec.decode(of, dtype=torch.float64, shape=tuple(of.shape)).numpy() for of in tensors])


def errors_of(results: Mapping[str, Any]) -> dict[str, Exception]:
    """Party → why it ended, without those that only lost another party."""
    return {name: of for name, of in results.items() if isinstance(of, Exception) and not isinstance(of, PeerLost)}
