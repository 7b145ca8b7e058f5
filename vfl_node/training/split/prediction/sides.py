"""The halves of a trained network; each party predicts with its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder, Features
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, StateError
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.inputs import ModelInput
from vfl_node.models.storage import take_part
from vfl_node.privacy.defences.defence import Leaving, Sender, build, names_of_positions
from vfl_node.privacy.outgoing import Exit
from vfl_node.settings.defences import DefenceParams
from vfl_node.training.network.half import defence_draws
from vfl_node.training.network.local import local_logits
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.prediction.sides import EmbeddingSide, Positions, Probabilities, ScoringSide, ServiceSide, Unnamed
from vfl_node.training.row_weights import drawn_rows
from vfl_node.training.split.config import SERVED_FEATURES
from vfl_node.training.split.missing.calibration import Calibration
from vfl_node.training.split.missing.features.contract import Rows, Substitute, substitute, synthetic_rows
from vfl_node.training.split.missing.features.filling import fill_in
from vfl_node.training.split.missing.strategies import FEATURES
from vfl_node.training.split.prediction.model import SplitModel

Module = TypeVar("Module", bound=nn.Module)


class SplitSide(ServiceSide):
    """What every party has: the shared rows, their own columns, and the batches in which rows are hidden.

    Args:
        model: the party's part of the trained model.
        alignment: the one of the training, or a new one.
        table: the party's records that were aligned.
        device: where to compute.

    Raises:
        DataError: the table lacks a column of the model (``E_COLUMN``).
        StateError: the stored model is damaged (``E_STATE_CORRUPT``).
    """

    def __init__(self, model: SplitModel, alignment: Alignment, table: Table, device: torch.device) -> None:
        super().__init__(model.terms, alignment, table)
        self.model, self.device, self.table_name = model, device, model.table
        self.encoder = Encoder.from_json(model.encoder)
        self.draws, self.synthetic = Randomness(model.draws), Randomness(model.synthetic)
        train = model.train
        features, source = fill_in(alignment, table, self.encoder, train.missing, self.synthetic, train.scaling)
        self.architecture = model.architecture
        self.inputs = self._place_rows(features, source)

    def own(self, positions: Positions) -> list[bytes]:
        """As the base: a digest of the encoded columns."""
        return [digest.encode() for digest in self.inputs.take(positions).digests()]

    def _place_rows(self, features: Features, source: NDArray[np.int64]) -> PositionedInput:
        """``features`` as the model reads them; of each position the row ``source``, int64[m]."""
        return PositionedInput.from_features(features, source, self.device, images=self.architecture.reads_images())


class Embedder(SplitSide, EmbeddingSide):
    """A passive party's half: a bottom network. Its embeddings may be sent as they are: the defences are applied.

    Args: as :class:`SplitSide`, and
        defences: from this party's settings. A row has the same noise whenever it is asked for.
    """

    def __init__(
        self,
        model: SplitModel,
        alignment: Alignment,
        table: Table,
        device: torch.device,
        defences: Sequence[DefenceParams] = (),
    ) -> None:
        super().__init__(model, alignment, table, device)
        bottom = build_bottom(self.architecture, model.train, self.inputs.schema, model.train.bottom)
        self._bottom = load_weights(bottom, "bottom", model.weights, device)
        self._owned = torch.from_numpy(alignment.owned).to(device)
        strategy = model.train.missing.feature_strategy
        self._substitute = substitute(strategy, self.draws) if alignment.missing else None
        if self._substitute:
            self._substitute.restore(take_part("substitute", model.weights))
        sender = Sender("embeddings", alignment.owned, self._bottom, self.inputs.take)
        self._exit = Exit(build(defences, sender, defence_draws(self.draws, 0)))

    def embed_shared(self, positions: Positions) -> Tensor:
        """Embedding float32[B, d] at shared ``positions`` of the training; on one machine the same bits every time."""
        leaving = Leaving("predictions", positions, rows=partial(names_of_positions, positions, self.model.epoch))
        return self._exit.protect(self._clean_embedding(positions), leaving)

    def embed_new(self, positions: Positions) -> Tensor:
        """As :meth:`embed_shared`, for rows of a new alignment; noise depends on their columns, since positions change."""
        return self._embed_new_rows(self.inputs.take(positions))

    def _embed_new_rows(self, rows: ModelInput) -> Tensor:
        """Embedding float32[B, d] of rows that are not of the training's alignment; the same for the same columns."""
        with torch.no_grad():
            embedding: Tensor = self._bottom(rows)
        leaving = Leaving("predictions", np.empty(0, dtype=np.int64), rows=rows.digests)
        return self._exit.protect(embedding, leaving)

    def _clean_embedding(self, positions: Positions) -> Tensor:
        """Embedding float32[B, d] at shared ``positions``, before any defence."""
        if self._substitute is None:
            return self._embedding(positions)
        # A drawn embedding belongs to one batch. A batch that is filled up with the row sends the same one: if it differed, the
        # peer would see that it is drawn.
        numbers, places = self.batches.find(positions)
        drawn = [self._embed_batch(number, self._substitute) for number in numbers.tolist()]
        if len(numbers) == 1:  # the same work as for a batch that is filled up by the next one
            self._embed_batch((int(numbers[0]) + 1) % len(self.batches), self._substitute)
        return torch.cat(drawn)[torch.from_numpy(places)]

    def _embed_batch(self, number: int, substitute: Substitute) -> Tensor:
        """Embedding float32[B, d] of batch ``number``; rows that are not this party's own are drawn."""
        positions = self.batches.positions(number)
        real = self._owned[torch.from_numpy(positions)]
        return substitute(f"batch/{number}", self._embedding(positions), real, learn=False)

    def _embedding(self, positions: Positions) -> Tensor:
        with torch.no_grad():
            embedding: Tensor = self._bottom(self.inputs.take(positions))
        return embedding

    def hide_rows(self, table: Table) -> Unnamed:
        """The rows of ``table``, whose ids need not be known, hidden in full batches.

        For a known row with the same columns as in training the whole agreed batch of the row is sent:
        the active party may recognise its rows from training, but never sees them in another combination. All other rows are
        mixed with synthetic ones (:data:`~vfl_node.training.split.config.SERVED_FEATURES`). These depend on the table: if
        the same ones came with another table, they would be recognised as synthetic.

        Raises:
            DataError: the table lacks a column of the model (``E_COLUMN``).
        """
        features, rows, positions = self.encoder.transform(table), self.rows(table.ids), self.positions(table.ids)
        known = positions != NOT_MINE
        known[known] = _equal_rows(self._own.take(rows[known]), features.take(np.flatnonzero(known)))
        places = np.empty(len(table), dtype=np.int64)
        numbers, places[known] = self.batches.find(positions[known])

        size, new = self.batches.rows, features.take(np.flatnonzero(~known))
        total = size * -(-len(new) // size)
        randomness = self.draws.derive(f"unnamed/{table.digest().hex()}")
        order = randomness.derive("order").permutation(total)
        places[~known] = len(numbers) * size + np.argsort(order)[: len(new)]
        filler = order >= len(new)
        mixed = self._place_rows(self._fill_up(new, total, randomness).take(order), np.arange(total))

        def agreed_positions(number: int) -> Positions | None:
            return self.batches.positions(int(numbers[number])) if number < len(numbers) else None

        def embedding(number: int) -> Tensor:  # both kinds of batch are computed for each: none takes longer
            positions = agreed_positions(number)
            known = self.embed_shared(self.batches.positions(0) if positions is None else positions)
            rows = (np.arange(size) + max(number - len(numbers), 0) * size) % max(total, 1)
            other = self._embed_new_rows((mixed if total else self.inputs).take(rows))
            return other if positions is None else known

        def find_synthetic(number: int) -> NDArray[np.bool_]:
            if (positions := agreed_positions(number)) is not None:
                return ~self.alignment.owned[positions]
            start = (number - len(numbers)) * size
            return np.asarray(filler[start : start + size])

        return Unnamed(len(numbers) + total // size, embedding, find_synthetic, agreed_positions, places)

    @cached_property
    def _own(self) -> Features:
        """The columns of all rows of this party."""
        return self.encoder.transform(self._table)

    def _fill_up(self, rows: Features, total: int, randomness: Randomness) -> Features:
        """``rows``, followed by synthetic ones up to ``total``."""
        if len(rows) == total:
            return rows
        sources = randomness.derive("sources").choices(len(self._own), total - len(rows))
        return rows.append(self._synthesise(sources, randomness.derive("filler")))

    @cached_property
    def _synthesise(self) -> Rows:
        return synthetic_rows(FEATURES[SERVED_FEATURES](), self._own, self.draws.derive("unnamed"))


class Scorer(SplitSide, ScoringSide):
    """The active party's half: its own bottom network, if it has columns, the top network, and the calibration of logits.

    Attributes:
        unnamed: whether only one party has columns, a passive one, so nobody need know to which row an embedding belongs.
    """

    def __init__(self, model: SplitModel, alignment: Alignment, table: Table, device: torch.device) -> None:
        super().__init__(model, alignment, table, device)
        train = model.train
        self.unnamed = self.inputs.schema.empty and model.passive_parties == 1
        received = [self.terms.width] * model.passive_parties
        joint = build_classifier(self.architecture, train, self.inputs.schema, received)
        self._model = load_weights(joint, "", model.weights, device)
        calibration, self._task = model.scoring
        self._offsets: Tensor | None = None
        if model.offset_columns:
            if table.offsets is None:
                raise DataError(
                    f"the model reads an offset (column {next(iter(model.offset_columns.values()))!r}), and the table has none",
                    code="E_COLUMN",
                    hint="name that column in data.offset or data.exposure, as in training",
                )
            rows = drawn_rows(alignment, self.synthetic.derive("offsets"))
            self._offsets = self._task.offsets(table.offsets[rows]).to(device)
        self._calibration = Calibration.from_json(calibration, self._task.calibration)
        shifted = train.missing.calibration != "none" and not self.inputs.schema.empty
        self._local: Classifier | None = None
        if shifted:
            alone = build_classifier(self.architecture, train, self.inputs.schema, [])
            self._local = load_weights(alone, "local", model.weights, device)

    def own_probability(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """Predictions for this party, float64[B] or float64[B, K], of the rows at ``positions``.

        They are probabilities; in a regression numbers in the target's unit.

        Unless all rows are shared, this party does not know whether a peer's columns of a row are real. The share of rows in
        which they are is taken from training.

        Args:
            positions: int64[B].
            embeddings: of these rows, float32[B, d] of each passive party, in the job's order.
        """
        logits, base_rate = self._logits(positions, embeddings), self._rates(positions)
        predicted = self._calibration.probability if self.alignment.every_row_is_shared else self._calibration.expectation
        return self._task.prediction(predicted(logits, base_rate))

    def probability(self, positions: Positions, embeddings: Sequence[Tensor]) -> Probabilities:
        """As :meth:`own_probability`, for a passive party, which knows in which rows its columns are real."""
        logits, base_rate = self._logits(positions, embeddings), self._rates(positions)
        return self._task.prediction(self._calibration.probability(logits, base_rate))

    def probability_unnamed(self, embeddings: Sequence[Tensor]) -> Probabilities:
        """As :meth:`probability`, for rows that are not named; possible only if this party is :attr:`unnamed`."""
        (embedding,) = embeddings
        return self.probability(np.zeros(len(embedding), dtype=np.int64), embeddings)

    def _logits(self, positions: Positions, embeddings: Sequence[Tensor]) -> Tensor:
        with torch.no_grad():
            logits = self._model(self.inputs.take(positions), [embedding.to(self.device) for embedding in embeddings])
        return logits if self._offsets is None else logits + self._offsets[torch.from_numpy(positions)]

    def _rates(self, positions: Positions) -> Tensor:
        """q of each row, float32[B]."""
        if self._local is None:
            return torch.full((len(positions),), self._task.rate, device=self.device)
        return self._task.base_rate(local_logits(self._local, self.inputs, positions))


def load_weights(module: Module, prefix: str, weights: Mapping[str, Tensor], device: torch.device) -> Module:
    """``module`` with those of a half's stored ``weights`` that are under ``prefix``, ready to predict.

    Raises:
        StateError: they do not fit (``E_STATE_CORRUPT``).
    """
    apart = ("local.", "substitute.")
    own = take_part(prefix, weights) if prefix else {k: v for k, v in weights.items() if not k.startswith(apart)}
    try:
        module.load_state_dict(own)
    except RuntimeError:
        raise StateError(
            "the model that was kept does not fit its job, or is damaged",
            code="E_STATE_CORRUPT",
            hint="train again",
            for_peer="it cannot use what it has kept of that training",
        ) from None
    return module.to(device).eval()


def _equal_rows(ours: Features, theirs: Features) -> NDArray[np.bool_]:
    """bool[n]: which rows are the same in both."""
    equal = (ours.numeric == theirs.numeric).all(axis=1) & (ours.categorical == theirs.categorical).all(axis=1)
    if ours.bags is not None and theirs.bags is not None:
        equal &= (ours.bags == theirs.bags).all(axis=1)
    return equal
