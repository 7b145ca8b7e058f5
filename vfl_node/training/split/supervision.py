"""What the active party learns from: a label of each shared row, real or made up, and a loss that knows which it may be.

FLORIST's two ideas about labels meet here. A row that this party does not own gets a synthetic target, which is computed for
every row alike, so that time does not tell which rows these are (:mod:`vfl_node.training.split.missing.labels`). Calibration
corrects what made-up labels and columns do to probabilities (:mod:`vfl_node.training.split.missing.calibration`); for this
it may need q, what a model of this party alone says of each row.

Source: Song et al. 2021 (FLORIST), sections 3.2 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import LabelColumn
from vfl_node.errors import DataError
from vfl_node.models.classifier import Classifier
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.session.session import Session
from vfl_node.training.network.half import Positions, RepeatStart
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.row_weights import drawn_rows, shared_weights
from vfl_node.training.split.base_rates import base_rates, model_alone
from vfl_node.training.split.config import Train
from vfl_node.training.split.missing.calibration import Composition
from vfl_node.training.split.missing.labels.contract import Labels, Step, build
from vfl_node.training.split.randomised import learnt_task, own_task, replace_labels
from vfl_node.training.trainer import TrainingData


class Supervision:
    """The labels of one repeat, as the network is to learn them and as they are.

    Args:
        session: the active party's.
        data: what it trains on.
        start: of the repeat, of which this uses the draws and the positions set apart for validation.
        training: shared positions trained on.

    Attributes:
        labels: at each shared position, [m], as the table has them; 0 where there is none.
        owned: bool[m], which shared rows this party owns.
        labelled: those of ``training`` among them.
        table: the party's, with answers in place of labels where a defence answers for them.
        weight_values: float64[m], the weight at each shared position, scaled; None: all rows count alike.
        offset_values: float64[m], the offset at each shared position, as the table has it; None: there are none.
        task: what the network learns, of answers where a defence randomises labels.
        own_task: the task of the labels themselves.
        targets: float32[m] or [m, K] on the device, as the loss reads them.
        real: bool[m] on the device, where these are of own labels.
        calibration: of what logits say.

    Raises:
        DataError: no label column (``E_NO_LABEL``), or no label to learn from or to validate on (``E_EMPTY``).
    """

    def __init__(self, session: Session, data: TrainingData, start: RepeatStart, training: Positions) -> None:
        validation, lasting = start.validation, start.synthetic
        learnt = replace_labels(session, data)  # whatever a peer gets may depend on its labels, and not on those of ``data``
        self.labels, self._answers, self.table = _labels(data), _labels(learnt), learnt.table
        self.owned = data.alignment.owned
        self._training, self._validation = training, validation
        self.labelled = _select_labelled(self.owned, training, validation)
        offsets = data.table.offsets
        self.offset_values = None if offsets is None else offsets[drawn_rows(data.alignment, lasting.derive("offsets"))]
        of_labelled = None if self.offset_values is None else self.offset_values[self.labelled]
        self.task = learnt_task(session, self._answers[self.labelled], of_labelled)
        self.own_task = own_task(session, self.task, self.labels[self.labelled])
        self.targets = self.task.targets(self._answers).to(session.machine.device)
        self.real = torch.from_numpy(self.owned).to(session.machine.device)
        missing = Train.section_of(session.job).missing
        self._synthetic: Labels | None = None
        if data.alignment.missing:  # from all labels, not those trained on: a label must not change between repeats
            strategy = missing.label_strategy
            drawn_from = (lasting if strategy.fixed else start.draws).derive("labels")
            known = self.task.build_known(self._answers[self.owned], len(self.owned), drawn_from)
            self._synthetic = build(strategy, known)
        mix, rate = None, self._synthetic.rate if self._synthetic else 0.0
        if missing.calibration != "none":
            mix = Composition.from_view(data.alignment, missing.shares, missing.calibration_for)
        self.calibration = self.task.calibration(missing.calibration, mix, rate)
        self._base_rate = torch.full((len(self.owned),), self.task.rate, device=session.machine.device)
        table_weights = data.table.weights
        self.weight_values: NDArray[np.float64] | None = None
        if table_weights is not None:
            self.weight_values = shared_weights(table_weights, data.alignment, self.labelled, lasting.derive("weights"))
        self._offsets: Tensor | None = None
        if self.offset_values is not None:
            self._offset_columns = data.table.offset_columns
            self._offsets = self.task.offsets(self.offset_values).to(session.machine.device)
        self._newest: tuple[Positions, Tensor, Tensor] | None = None
        self._alone: Classifier | None = None

    def learn_base_rates(
        self, session: Session, inputs: PositionedInput, randomness: Randomness, saved: Mapping[str, Tensor] | None
    ) -> None:
        """Let a model of this party alone give q of each row, where calibration needs it and there are columns.

        Args:
            session: the active party's.
            inputs: its columns, encoded.
            randomness: its own for this.
            saved: what :meth:`tensors` gave, which spares the training; None without a checkpoint.
        """
        if Train.section_of(session.job).missing.calibration == "none" or inputs.schema.empty:
            return
        self._alone = model_alone(session, inputs)
        if saved is not None:
            self._alone.load_state_dict(take_part("local", saved))
            self._base_rate = saved["rate"].to(session.machine.device)
            return
        self._base_rate = base_rates(
            session,
            self._alone,
            inputs,
            self.task,
            self.targets,
            self.real,
            randomness,
            training=self._training,
            validation=self._validation,
            labelled=self.labelled,
        )

    def look_up(self, positions: Positions) -> tuple[Tensor, Tensor]:
        """Targets and q of the rows at ``positions``, float32[B] or [B, K], and [B]; those of the newest are at hand."""
        if self._newest is None or self._newest[0] is not positions:
            rows = torch.from_numpy(positions)
            self._newest = positions, self.targets[rows], self._base_rate[rows]
        return self._newest[1:]

    def add_offsets(self, logits: Tensor, positions: Positions) -> Tensor:
        """``logits`` of the rows at ``positions`` with the offset of each, if the owner's settings name a column of them."""
        return logits if self._offsets is None else logits + self._offsets[torch.from_numpy(positions)]

    def base_rate(self, positions: Positions) -> Tensor:
        """q of the rows at ``positions``, float32[B]."""
        return self.look_up(positions)[1]

    def step_targets(self, number: int, positions: Positions, logits: Tensor, embeddings: Sequence[Tensor]) -> Tensor:
        """The targets that step ``number`` trains on, float32[B] or [B, K]: of real labels, else synthetic.

        Args:
            number: of the step.
            positions: int64[B], shared positions.
            logits: float32[B] or [B, K], without a graph.
            embeddings: float32[B, d] of each passive party.
        """
        targets, _ = self.look_up(positions)
        if self._synthetic is None:
            return targets
        real = self.real[torch.from_numpy(positions)]  # (B,)
        received = torch.cat([embedding.detach() for embedding in embeddings], dim=1)
        seen = self.calibration.observed_output(logits, self.base_rate(positions))
        synthetic = self._synthetic.targets(Step(number, positions, real, targets, seen, received))
        return torch.where(real if targets.dim() == 1 else real[:, None], targets, synthetic)

    def loss(self, logits: Tensor, targets: Tensor, positions: Positions) -> Tensor:
        """The mean loss of a batch, a scalar with a graph."""
        if self.weight_values is not None:  # with calibration "none" alone, whose losses are those of the task
            weights = torch.from_numpy(self.weight_values[positions]).float().to(logits.device)
            return (self.task.losses(logits, targets) * weights).mean()
        return self.calibration.loss(logits, targets, self.base_rate(positions))

    def expectation(self, logits: Tensor, positions: Positions) -> NDArray[np.float64]:
        """What ``logits`` say of the rows at ``positions``, whoever owns them."""
        return self.calibration.expectation(logits, self.base_rate(positions))

    def probability(self, logits: Tensor, positions: Positions) -> NDArray[np.float64]:
        """What ``logits`` say of the rows at ``positions``, as if all columns were real."""
        return self.calibration.probability(logits, self.base_rate(positions))

    def mean_loss(self, positions: Positions, scores: NDArray[np.float64]) -> float | None:
        """How far ``scores`` of own rows are from what was to be learnt."""
        weights = None if self.weight_values is None else self.weight_values[positions]
        return self.task.mean_loss(self._answers[positions], scores, weights)

    @property
    def largest_weight(self) -> float:
        """The most that a row counts in the loss, by its class and by itself."""
        return self.task.largest_weight * (
            1.0 if self.weight_values is None else float(self.weight_values[self._training].max())
        )

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold."""
        return {} if self._alone is None else {"rate": self._base_rate, **self.weights()}

    def weights(self) -> dict[str, Tensor]:
        """``local.NAME``: those of the model that gives q, on the CPU; none without one."""
        weights = self._alone.state_dict() if self._alone else {}
        return add_prefix("local", {name: weight.cpu() for name, weight in weights.items()})

    def to_json(self) -> dict[str, Any]:
        """What predictions need: calibration, and what the task knows of its labels."""
        offset = {} if self._offsets is None else {"offset": dict(self._offset_columns)}
        return {"calibration": self.calibration.to_json(), **self.task.to_json(), **offset}


def _select_labelled(owned: NDArray[np.bool_], training: Positions, validation: Positions) -> Positions:
    """The own ones among ``training``. Raises DataError (``E_EMPTY``): there are none, or none to validate on."""
    labelled = training[owned[training]]
    if len(labelled) == 0:
        raise DataError(
            "the active party owns none of the shared rows drawn for training, so there is no label to learn from",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    if len(validation) and not owned[validation].any():
        raise DataError(
            "the active party owns none of the shared rows set apart for validation, so no loss tells when to stop",
            code="E_EMPTY",
            hint="use more records, or a larger evaluate.validation_fraction",
        )
    return labelled


def _labels(data: TrainingData) -> LabelColumn:
    """The label at each shared position, [m], as the table has it; 0 where there is none."""
    view, labels = data.alignment, data.table.labels
    if labels is None:
        raise DataError("the active party's table has no label column", code="E_NO_LABEL", hint="set data.label")
    return np.where(view.owned, labels[view.rows], 0).astype(labels.dtype)
