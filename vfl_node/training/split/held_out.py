"""What the active party makes of the rows held out: metrics of the joint model, beside those of models that do without it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.places import ColumnPlaces
from vfl_node.models.inputs import ModelInput
from vfl_node.privacy.integrity import MOST, Compared
from vfl_node.session.session import Session
from vfl_node.training import boosted_tree
from vfl_node.training.evaluation import Evaluation, Repeats, Values, assess, real_share
from vfl_node.training.intervals import Output
from vfl_node.training.network.alone import logits_alone, train_on_aligned_rows
from vfl_node.training.network.half import Positions
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.own_rows import OwnRows
from vfl_node.training.schedule import cut
from vfl_node.training.split.config import Train
from vfl_node.training.split.contributions import MOST_ROWS, HeldOutInputs, column_drops, draw_rows, drops
from vfl_node.training.split.matched import matched_active
from vfl_node.training.split.supervision import Supervision
from vfl_node.training.trainer import TrainingData


class LogitsOf(Protocol):
    """A model at rest."""

    def __call__(self, positions: Positions, embeddings: Sequence[Tensor], own: ModelInput | None = None) -> Tensor:
        """Logits by the own columns of the rows at shared positions, int64[B], and embeddings.

        These are float32[B, d] of each passive party. If ``own`` is given, it stands for the own columns.
        """


class HeldOutRows:
    """Measures one repeat, on the rows that this party owns; and, if the job says so, on those both own.

    Args:
        session: the active party's.
        data: what it trains on.
        supervision: the labels.
        outside: rows of its table outside of the alignment that are learnt from.
        validation: shared positions set apart for validation.
        randomness: its own.
        repeat: number of the repeat.
        likeness: its comparison of embeddings of rows trained on and held out, if there is one.
        columns: whether it has columns of its own.
    """

    def __init__(
        self,
        session: Session,
        data: TrainingData,
        supervision: Supervision,
        outside: NDArray[np.int64],
        validation: Positions,
        randomness: Randomness,
        repeat: int,
        likeness: Compared | None,
        *,
        columns: bool,
    ) -> None:
        self._session, self._data, self._supervision, self._outside = session, data, supervision, outside
        self._evaluate, self._validation, self._likeness, self._columns = session.job.evaluate, validation, likeness, columns
        self._private = randomness.derive(f"alone/{repeat}")
        self._resampling = randomness.derive(f"resampling/{repeat}")
        first = repeat == 0
        self._matching = randomness.derive(f"matched/{repeat}") if first and self._evaluate.matched else None
        self._permuting = randomness.derive("contributions") if first and self._evaluate.contributions else None

    def make_inputs(self) -> HeldOutInputs:
        """What is to be kept of the inputs of the top."""
        return HeldOutInputs(MOST_ROWS if self._permuting else MOST if self._likeness else 0)

    async def measure(
        self, batches: Sequence[Positions], logits: Sequence[Tensor], inputs: HeldOutInputs, logits_of: LogitsOf
    ) -> Evaluation:
        """All results.

        Args:
            batches: shared positions held out.
            logits: float32[B] or [B, K] of each batch.
            inputs: :meth:`make_inputs`, filled.
            logits_of: the model at rest.
        """
        session, supervision = self._session, self._supervision
        held_out = np.concatenate(batches)
        owned, labels = supervision.owned[held_out], supervision.labels[held_out]
        offsets = None if supervision.offset_values is None else supervision.offset_values[held_out][owned]
        of_batches = list(zip(logits, batches, strict=True))
        scores = np.concatenate([supervision.expectation(*each) for each in of_batches])
        alone, own = self._measure_alone(held_out)
        evaluation = assess(
            self._evaluate,
            labels[owned],
            supervision.task.output(scores[owned], offsets),
            alone,
            supervision.own_task.constant(int(np.count_nonzero(owned)), offsets),
            self._resampling,
            rival=boosted_tree.train(session, self._data, own, self._private.derive("tree")),
            aligned=train_on_aligned_rows(
                session, self._data, own, self._outside, supervision.own_task, self._private.derive("aligned")
            ),
        )
        if alone is not None:
            evaluation = dataclasses.replace(evaluation, local_rows=len(own.training))
        if self._likeness:
            evaluation = dataclasses.replace(evaluation, unlike=self._likeness.share_unlike(inputs.embeddings))
        if self._permuting:
            evaluation = dataclasses.replace(evaluation, contributions=self._contributions(inputs, logits_of, self._permuting))
        if self._matching is None:
            return evaluation
        both = await matched_active(
            session.peer,
            labels,
            np.concatenate([supervision.probability(*each) for each in of_batches]),
            owned,
            self._evaluate.metrics,
            self._matching,
            threshold=self._evaluate.threshold,
            share=real_share(self._data.alignment),
        )
        return dataclasses.replace(evaluation, matched=both.values, matched_rows=both.rows)

    def add_columns(
        self,
        evaluation: Evaluation,
        inputs: HeldOutInputs,
        rows: PositionedInput,
        columns: Mapping[str, ColumnPlaces],
        logits_of: LogitsOf,
    ) -> Evaluation:
        """``evaluation`` with what each of the ``columns`` of this party is worth; ``rows`` has them."""
        supervision = self._supervision
        if self._permuting is None or not columns:
            return evaluation
        randomness = self._permuting.derive("columns")
        drawn = draw_rows(np.flatnonzero(supervision.owned[inputs.positions]), randomness.derive("rows"))
        positions, embeddings = inputs.positions[drawn], [each[torch.from_numpy(drawn)] for each in inputs.embeddings]
        offsets = None if supervision.offset_values is None else supervision.offset_values[positions]

        def measure(own: ModelInput) -> Values:
            scores = supervision.expectation(logits_of(positions, embeddings, own), positions)
            output = supervision.task.output(scores, offsets)
            return output.metrics(self._evaluate.metrics, supervision.labels[positions], self._evaluate.threshold)

        found = column_drops(rows.take(positions), columns, measure, randomness) if len(drawn) else {}
        return dataclasses.replace(evaluation, column_contributions=found)

    def _measure_alone(self, testing: Positions) -> tuple[Output | None, OwnRows]:
        """What a network of this party alone says of the rows measured on, None if it has no columns; and its rows."""
        table = self._data.table
        own = OwnRows.select(
            self._data.alignment,
            testing,
            held_out=self._evaluate.test_fraction > 0,
            records=len(table),
            validation=self._validation,
            order=table.order,
        )
        task = self._supervision.own_task
        logits = logits_alone(self._session, self._data, own, task, self._private.derive("network"))
        offsets = None if table.offsets is None else table.offsets[own.tested]
        return None if logits is None else task.output(task.plain_scores(logits), offsets), own

    def _contributions(self, inputs: HeldOutInputs, logits_of: LogitsOf, randomness: Randomness) -> dict[str, Repeats]:
        """What each party's columns are worth on the held-out rows."""
        supervision, size = self._supervision, Train.section_of(self._session.job).batch_size
        own = supervision.owned[inputs.positions]
        labels = supervision.labels[inputs.positions][own]
        offsets = None if supervision.offset_values is None else supervision.offset_values[inputs.positions][own]

        def measure(columns: Positions, embeddings: Sequence[Tensor]) -> Values:
            batches = cut(np.arange(len(columns)), size)
            said = [logits_of(columns[batch], [embedding[batch] for embedding in embeddings]) for batch in batches]
            scores = np.concatenate(
                [supervision.expectation(logits, columns[batch]) for logits, batch in zip(said, batches, strict=True)]
            )
            output = supervision.task.output(scores[own], offsets)
            return output.metrics(self._evaluate.metrics, labels, self._evaluate.threshold)

        active = self._session.name if self._columns else None
        return drops(inputs, supervision.owned, active, list(self._session.data_peers), measure, randomness)
