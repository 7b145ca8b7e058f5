"""The two halves of a trained network, as each party uses its own for predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder, Features
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Table
from vfl_node.errors import StateError
from vfl_node.models import cut_width
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.inputs import ModelInput
from vfl_node.models.storage import under
from vfl_node.privacy.defences.defence import Leaving, Sender, build, names_of_positions
from vfl_node.privacy.defences.spec import DefenceParams
from vfl_node.privacy.outgoing import Exit
from vfl_node.training.split.active import local_rate
from vfl_node.training.split.config import SERVED_FEATURES
from vfl_node.training.split.half import defence_draws
from vfl_node.training.split.local import local_logits
from vfl_node.training.split.missing.calibration import Calibration
from vfl_node.training.split.missing.features.contract import Rows, Substitute, substitute, synthetic_rows
from vfl_node.training.split.missing.features.filling import fill_in
from vfl_node.training.split.missing.strategies import FEATURES
from vfl_node.training.split.positioned_input import PositionedInput
from vfl_node.training.split.serving.batches import Batches
from vfl_node.training.split.serving.served_model import ServedModel

Positions = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Module = TypeVar("Module", bound=nn.Module)


class ServingSide:
    """What both parties have: the shared rows, their own columns, and how rows are hidden.

    Args:
        kept: what the party kept of the training.
        alignment: that of the training, or a new one.
        table: the records that ``alignment`` is about.
        device: where to compute.

    Raises:
        DataError: the table lacks a column of the model (``E_COLUMN``).
        StateError: what was kept is damaged (``E_STATE_CORRUPT``).
    """

    def __init__(self, kept: ServedModel, alignment: Alignment, table: Table, device: torch.device) -> None:
        self.kept, self.alignment, self.device = kept, alignment, device
        self.encoder = Encoder.from_json(kept.encoder)
        self.draws = Randomness(kept.draws)
        features, source = fill_in(alignment, table, self.encoder, kept.train.missing, self.draws)
        self.inputs = PositionedInput.of(features, source, device)
        self.architecture = kept.architecture
        self.cut_width = cut_width(kept.train)
        self._table = table
        self._position = np.full(len(table), NOT_MINE)
        self._position[alignment.rows[alignment.owned]] = np.flatnonzero(alignment.owned)

    @cached_property
    def batches(self) -> Batches:
        """How the shared rows are cut into batches."""
        return Batches(self.kept.batches, len(self.alignment), self.kept.serve.batch_size)

    @cached_property
    def _keys(self) -> NDArray[np.uint64]:
        """Of the own ids, ascending."""
        return _keys(self._table.ids)[self._table.ids.canonical_order]

    def rows(self, ids: Identifiers) -> Positions:
        """The own row of each of ``ids``, int64[k]; :data:`NOT_MINE` where there is none. 1 µs an id."""
        own = self._table.ids
        order = own.canonical_order
        near = order[np.minimum(np.searchsorted(self._keys, _keys(ids)), len(order) - 1)]
        same = np.fromiter((ours == theirs for ours, theirs in zip(own.take(near), ids, strict=True)), np.bool_, len(ids))
        return np.where(same, near, NOT_MINE)

    def positions(self, ids: Identifiers) -> Positions:
        """The shared position of each of ``ids``, int64[k]; :data:`NOT_MINE` where it is not an own shared record's."""
        rows = self.rows(ids)
        return np.where(rows == NOT_MINE, NOT_MINE, self._position[rows])


class Embedder(ServingSide):
    """The passive party: a bottom. What it gives is what may be sent: its defences have changed it.

    Args: as :class:`ServingSide`, and
        defences: this owner's, as in the settings. A row has the same noise whenever it is asked for.
    """

    def __init__(
        self,
        kept: ServedModel,
        alignment: Alignment,
        table: Table,
        device: torch.device,
        defences: Sequence[DefenceParams] = (),
    ) -> None:
        super().__init__(kept, alignment, table, device)
        bottom = build_bottom(self.architecture, kept.train, self.inputs.schema, kept.train.bottom)
        self._bottom = _loaded(bottom, "bottom", kept, device)
        self._owned = torch.from_numpy(alignment.owned).to(device)
        strategy = kept.train.missing.feature_strategy
        self._substitute = substitute(strategy, self.draws) if alignment.missing else None
        if self._substitute:
            self._substitute.restore(under("substitute", kept.weights))
        sender = Sender("embeddings", alignment.owned, self._bottom, self.inputs.at)
        self._exit = Exit(build(defences, sender, defence_draws(self.draws, 0)))

    def shared(self, positions: Positions) -> Tensor:
        """Embedding float32[B, d] at shared ``positions`` of the training; the same bits again on one machine."""
        leaving = Leaving("predictions", positions, rows=partial(names_of_positions, positions))
        return self._exit.protect(self._clean(positions), leaving)

    def new(self, positions: Positions) -> Tensor:
        """As :meth:`shared`, of rows of a new alignment, which have other positions in each and are known by their columns."""
        return self._of_new_rows(self.inputs.at(positions))

    def _of_new_rows(self, rows: ModelInput) -> Tensor:
        """Embedding float32[B, d] of rows that are not of the training's alignment; the same for the same columns."""
        with torch.no_grad():
            embedding: Tensor = self._bottom(rows)
        leaving = Leaving("predictions", np.empty(0, dtype=np.int64), rows=rows.digests)
        return self._exit.protect(embedding, leaving)

    def _clean(self, positions: Positions) -> Tensor:
        """Embedding float32[B, d] at shared ``positions``, before any defence."""
        if self._substitute is None:
            return self._embedding(positions)
        # A drawn embedding is that of its own batch in those, too, that it fills up: another one would tell it by the change.
        numbers, places = self.batches.find(positions)
        drawn = [self._with_drawn(number, self._substitute) for number in numbers.tolist()]
        if len(numbers) == 1:  # not filled up by the next batch: as much work as one that is
            self._with_drawn((int(numbers[0]) + 1) % len(self.batches), self._substitute)
        return torch.cat(drawn)[torch.from_numpy(places)]

    def some(self, most: int) -> Positions:
        """At most ``most`` different shared positions, those of whole batches in a random order."""
        found = np.empty(0, dtype=np.int64)
        for number in self.draws.derive("audit of predictions").permutation(len(self.batches)).tolist():
            if len(found) >= most:
                break
            found = np.union1d(found, self.batches.positions(number))
        return found[:most]

    def _with_drawn(self, number: int, substitute: Substitute) -> Tensor:
        """Embedding float32[B, d] of batch ``number``; rows that are not this party's own are drawn."""
        positions = self.batches.positions(number)
        real = self._owned[torch.from_numpy(positions)]
        return substitute(f"batch/{number}", self._embedding(positions), real, learn=False)

    def _embedding(self, positions: Positions) -> Tensor:
        with torch.no_grad():
            embedding: Tensor = self._bottom(self.inputs.at(positions))
        return embedding

    def unnamed(self, table: Table) -> Unnamed:
        """The rows of ``table``, whose ids need not be known, hidden in full batches.

        A known row with the columns of training is sent as the whole agreed batch it belongs to:
        the active party may recognise it from training, but never sees it in other company. The
        others are mixed with made-up rows (:data:`~vfl_node.job.SERVED_FEATURES`), new ones for each table and the
        same for the same one: filler that came again would be known by it.

        Raises:
            DataError: the table lacks a column of the model (``E_COLUMN``).
        """
        features, rows, positions = self.encoder.transform(table), self.rows(table.ids), self.positions(table.ids)
        known = positions != NOT_MINE
        known[known] = _equal(self._own.take(rows[known]), features.take(np.flatnonzero(known)))
        places = np.empty(len(table), dtype=np.int64)
        numbers, places[known] = self.batches.find(positions[known])

        size, new = self.batches.rows, features.take(np.flatnonzero(~known))
        total = size * -(-len(new) // size)
        randomness = self.draws.derive(f"unnamed/{table.digest().hex()}")
        order = randomness.derive("order").permutation(total)
        places[~known] = len(numbers) * size + np.argsort(order)[: len(new)]
        made_up = order >= len(new)
        mixed = PositionedInput.of(self._filled_up(new, total, randomness).take(order), np.arange(total), self.device)

        def embedding(number: int) -> Tensor:  # both kinds of batch are computed for each: none takes longer
            known = number < len(numbers)
            agreed = self.shared(self.batches.positions(int(numbers[number]) if known else 0))
            rows = (np.arange(size) + max(number - len(numbers), 0) * size) % max(total, 1)
            other = self._of_new_rows((mixed if total else self.inputs).at(rows))
            return agreed if known else other

        def synthetic(number: int) -> NDArray[np.bool_]:
            if number < len(numbers):
                return ~self.alignment.owned[self.batches.positions(int(numbers[number]))]
            start = (number - len(numbers)) * size
            return np.asarray(made_up[start : start + size])

        return Unnamed(len(numbers) + total // size, embedding, synthetic, places)

    @cached_property
    def _own(self) -> Features:
        """The own rows."""
        return self.encoder.transform(self._table)

    def _filled_up(self, rows: Features, total: int, randomness: Randomness) -> Features:
        """``rows``, and behind them made-up ones."""
        if len(rows) == total:
            return rows
        sources = randomness.derive("sources").choices(len(self._own), total - len(rows))
        made = self._makes_up(sources, randomness.derive("filler"))
        return rows.followed_by(made)

    @cached_property
    def _makes_up(self) -> Rows:
        return synthetic_rows(FEATURES[SERVED_FEATURES](), self._own, self.draws.derive("unnamed"))


@dataclass(frozen=True)
class Unnamed:
    """Full batches of rows that are not named.

    Attributes:
        count: how many.
        embedding: number of a batch → its embedding, float32[B, d].
        synthetic: likewise → bool[B], which of its rows are filler.
        places: int64[n], where each row of the request stands in the batches, one behind the other.
    """

    count: int
    embedding: Callable[[int], Tensor]
    synthetic: Callable[[int], NDArray[np.bool_]]
    places: Positions


class Scorer(ServingSide):
    """The active party: an own bottom, if it has columns, the top, and what makes a logit a probability.

    Attributes:
        unnamed: whether it needs no columns of its own, and so no word which row an embedding is of.
    """

    def __init__(self, kept: ServedModel, alignment: Alignment, table: Table, device: torch.device) -> None:
        super().__init__(kept, alignment, table, device)
        train = kept.train
        self.unnamed = self.inputs.schema.empty
        joint = build_classifier(self.architecture, train, self.inputs.schema, [self.cut_width])
        self._model = _loaded(joint, "", kept, device)
        calibration, self._positive_rate = kept.scoring
        self._calibration = Calibration.from_json(calibration)
        shifted = train.missing.calibration != "none" and not self.unnamed
        self._local: Classifier | None = None
        if shifted:
            self._local = _loaded(build_classifier(self.architecture, train, self.inputs.schema, []), "local", kept, device)

    def expected(self, positions: Positions, embedding: Tensor) -> Probabilities:
        """Probabilities for this party, float64[B] or float64[B, K], of the rows at ``positions`` and their ``embedding``.

        But for an intersection it does not know whether the peer's columns are real; with which
        share they are is taken from training.
        """
        logits, base_rate = self._logits(positions, embedding), self._rates(positions)
        meant = self._calibration.probability if self.alignment.every_row_is_shared else self._calibration.expectation
        return np.clip(meant(logits, base_rate), 0, 1)

    def probability(self, positions: Positions, embedding: Tensor) -> Probabilities:
        """As :meth:`expected`, for the passive party, which knows of which rows it owns the columns."""
        return np.clip(self._calibration.probability(self._logits(positions, embedding), self._rates(positions)), 0, 1)

    def probability_unnamed(self, embedding: Tensor) -> Probabilities:
        """As :meth:`probability`, of rows that are not named: only without own columns."""
        return self.probability(np.zeros(len(embedding), dtype=np.int64), embedding)

    def _logits(self, positions: Positions, embedding: Tensor) -> Tensor:
        with torch.no_grad():
            return self._model(self.inputs.at(positions), [embedding.to(self.device)])

    def _rates(self, positions: Positions) -> Tensor:
        """q of each row, float32[B]."""
        if self._local is None:
            return torch.full((len(positions),), self._positive_rate, device=self.device)
        return local_rate(local_logits(self._local, self.inputs, positions))


def _loaded(module: Module, prefix: str, kept: ServedModel, device: torch.device) -> Module:
    """``module`` with the weights kept under ``prefix``, ready to predict."""
    apart = ("local.", "substitute.")
    weights = under(prefix, kept.weights) if prefix else {k: v for k, v in kept.weights.items() if not k.startswith(apart)}
    try:
        module.load_state_dict(weights)
    except RuntimeError:
        raise StateError(
            "the model that was kept does not fit its job, or is damaged",
            code="E_STATE_CORRUPT",
            hint="train again",
            for_peer="it cannot use what it has kept of that training",
        ) from None
    return module.to(device).eval()


def _keys(ids: Identifiers) -> NDArray[np.uint64]:
    """The first 64 bits of each id's SHA-256, which :attr:`Identifiers.canonical_order` goes by."""
    return np.frombuffer(b"".join(sha256(id_).digest()[:8] for id_ in ids), dtype=">u8").astype(np.uint64)


def _equal(ours: Features, theirs: Features) -> NDArray[np.bool_]:
    """bool[n]: which rows are the same in both."""
    return (ours.numeric == theirs.numeric).all(axis=1) & (ours.categorical == theirs.categorical).all(axis=1)
