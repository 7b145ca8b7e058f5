"""The active party's rows outside of the alignment: a second branch of its network learns from them.

::

    federated branch   own bottom ─► h_L ──┐
                       peer's bottom ─ h_N ┴─ top ─► logits      aligned rows, by messages; evaluated and kept
    local branch       own bottom ─► h_L ──┐
                       filled in once ─ h̃_N ┴─ own top ─► logits  rows outside, at the active party alone; dropped at the end

Both branches share the weights of the own bottom, but for norms and their averages. The phases of a repeat::

    pretrain    federated batches alone; in the last epoch the embeddings received are noted
    fill        the method makes up h̃_N of every row outside, once; the active half may begin anew
    train       federated batches, and between them ⌈u/B⌉ local ones an epoch, spread evenly

h̃_N is constant from then on. Nothing of this is sent: the messages are those of a training without it, as many and as long.
What the passive party can see is time: how long an epoch takes tells it about u, which with private set intersection it knows
from the numbers of records, unless these are padded.

Source: Wei et al. 2023 (FedAds), section 4.1, algorithm 1. Deviations: a fixed share of local batches an epoch in place of a
coin for each, with the same expectation; each branch has an optimiser of its own; the active half begins anew once the rows are
filled in (``anew``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node import failpoints
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import DataError
from vfl_node.models import architecture_of
from vfl_node.models.building import build_bottom, build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.initial_weights import NORMS, initialise
from vfl_node.models.storage import prefixed, under
from vfl_node.session.session import Session
from vfl_node.training.schedule import cut
from vfl_node.training.split.config import Train
from vfl_node.training.split.half import NO_ROWS, Positions
from vfl_node.training.split.learner import Learner
from vfl_node.training.split.local import ROWS_AT_ONCE, check_finite
from vfl_node.training.split.positioned_input import PositionedInput
from vfl_node.training.split.tasks import SplitTask, start_at_rate
from vfl_node.training.trainer import TrainingData
from vfl_node.training.unaligned.contract import AlignedRows, JointModel, OwnPart, filler_of
from vfl_node.training.unaligned.unused import UnusedRows

MOST_HALF = float(torch.finfo(torch.float16).max)
FEWEST_OF_A_CLASS = 2


def rows_outside(session: Session, data: TrainingData, training: Positions) -> NDArray[np.int64]:
    """The rows of the table that are learnt from although no peer has them, int64[u], ascending; none without a method.

    With an order of the rows those after the last shared one that is trained on stay out, too: from later records a model would
    know what no model can know in time.

    Raises:
        DataError: the job has a method, and there is no such row (``E_EMPTY``).
    """
    if not Train.of(session.job).unaligned.used:
        return NO_ROWS
    table, alignment = data.table, data.alignment
    outside = np.setdiff1d(np.arange(len(table)), alignment.rows[alignment.owned])
    if table.order is not None and session.job.evaluate.split:
        trained = alignment.rows[training][alignment.owned[training]]
        outside = outside[table.order[outside] <= table.order[trained].max()]
    if len(outside) == 0:
        raise DataError(
            "train.unaligned learns from the active party's rows outside of the alignment, and there is none",
            code="E_EMPTY",
            hint="set train.unaligned: {method: none}, or bring records that the passive party does not have",
            for_peer="the active party has no row outside of the alignment for train.unaligned; set its method to none",
        )
    return outside.astype(np.int64)


def outside_of(
    session: Session,
    data: TrainingData,
    model: Classifier,
    learner: Learner,
    inputs: PositionedInput,
    task: SplitTask,
    aligned: Positions,
    rows: NDArray[np.int64],
    randomness: Randomness,
    repeat: int,
    saved: Mapping[str, Tensor] | None,
) -> UnusedRows:
    """What the active party does in this repeat with the ``rows`` outside of the alignment; arguments as :class:`Outside`."""
    if not Train.of(session.job).unaligned.fills:
        return UnusedRows()
    own, stored = randomness.derive(f"unaligned/{repeat}"), under("outside", saved) if saved else None
    return Outside(session, data, model, learner, inputs, task, aligned=aligned, rows=rows, randomness=own, saved=stored)


class Outside(UnusedRows):
    """Rows outside of the alignment in one repeat.

    Args:
        session: the active party's.
        data: its table and the alignment.
        model: its half of the joint model.
        learner: that trains it.
        inputs: its columns, encoded.
        task: what its labels are.
        aligned: shared positions trained on, all of which it owns.
        rows: of its table, int64[u], as :func:`rows_outside`.
        randomness: its own for this.
        saved: tensors of a checkpoint within the repeat.
    """

    def __init__(
        self,
        session: Session,
        data: TrainingData,
        model: Classifier,
        learner: Learner,
        inputs: PositionedInput,
        task: SplitTask,
        *,
        aligned: Positions,
        rows: NDArray[np.int64],
        randomness: Randomness,
        saved: Mapping[str, Tensor] | None,
    ) -> None:
        self._session, self._model, self._joint, self._task = session, model, learner, task
        self._train = Train.of(session.job)
        self._method = self._train.unaligned
        self._filling_after = self._method.pretraining(self._train.epochs)
        self._aligned, self._rows = aligned, rows
        table = data.table
        assert table.labels is not None
        _check_classes(task, self._train, table.labels, data.alignment.rows[aligned], rows)
        groups = table.groups
        self._shared = inputs
        self._inputs = inputs.of_rows(rows)
        self._targets = task.targets(table.labels[rows]).to(session.device)
        self._aligned_rows = data.alignment.rows[aligned]
        self._aligned_targets = task.targets(table.labels[self._aligned_rows]).to(session.device)
        self._groups = None if groups is None else (groups[self._aligned_rows], groups[rows])
        self._randomness = randomness

        self._place = np.full(len(data.alignment), -1)
        self._place[aligned] = np.arange(len(aligned))
        self._received: Tensor | None = None
        self._embeddings: Tensor | None = None
        """float16[u, d] once they are filled in."""
        self._steps, self._seconds = 0, 0.0
        self._figures: dict[str, float] = {}
        self._epoch, self._batches, self._local, self._done = 0, 1, list[Positions](), 0
        self._architecture = architecture_of(self._train.model, session.models)
        self._width = self._architecture.cut_width(self._train.bottom, self._train.outputs)
        self._branch = self._local_branch()
        self._learner = Learner(self._branch, self._train, randomness.derive("branch"), self._architecture.version)
        if saved and "embeddings" in saved:
            self._embeddings = saved["embeddings"].to(session.device)
            self._learner.restore(under("learner", saved))
            self._steps, self._seconds = int(saved["steps"]), float(saved["seconds"])
            self._figures = {name: float(value) for name, value in under("figures", saved).items()}

    def _local_branch(self) -> Classifier:
        """The local branch: an own top, and the joint half's bottom but for its norms."""
        branch = build_classifier(self._architecture, self._train, self._inputs.schema, [self._width])
        initialise(branch, self._randomness.derive("weights"))
        branch = branch.to(self._session.device)
        assert branch.bottom is not None
        assert self._model.bottom is not None
        share_weights(branch.bottom, self._model.bottom)
        return branch

    def epoch_begins(self, epoch: int, batches: int) -> None:
        """As the base."""
        self._epoch, self._batches, self._done, self._local = epoch, batches, 0, []
        if self._embeddings is not None:
            order = self._randomness.derive(f"order/{epoch}").permutation(len(self._rows))
            self._local = cut(order, self._train.batch_size)
        elif epoch + 1 == self._filling_after:
            self._received = torch.zeros(len(self._aligned), self._width, device=self._session.device)

    def saw(self, positions: Positions, received: Tensor) -> None:
        """As the base."""
        if self._received is not None:
            self._received[torch.from_numpy(self._place[positions])] = received.detach()

    def step_done(self) -> None:
        """As the base."""
        if not self._local:
            return
        started = self._session.clock()
        first, self._done = self._done, self._done + 1
        count = len(self._local)
        for index in range(first * count // self._batches, self._done * count // self._batches):
            self._step(index)
        self._seconds += self._session.clock() - started

    def _step(self, index: int) -> None:
        """Train the local branch on one batch."""
        batch = self._local[index]
        rows = torch.from_numpy(batch)
        assert self._embeddings is not None
        self._learner.begin(self._steps)
        of_an_epoch = len(self._local)
        place = (self._epoch - self._filling_after) * of_an_epoch + index
        self._learner.pace(place, (self._train.epochs - self._filling_after) * of_an_epoch)
        logits = self._branch(self._inputs.at(batch), [self._embeddings[rows].float()])
        loss = self._task.losses(logits, self._targets[rows]).mean()
        check_finite(loss).backward()  # type: ignore[no-untyped-call]
        self._learner.step()
        self._steps += 1
        failpoints.reach("local batch")

    def epoch_ends(self) -> None:
        """Fill the rows in, if this was the last epoch before."""
        if self._received is None:
            return
        started = self._session.clock()
        failpoints.reach("fill")
        self._joint.rest()
        aligned = self._part(self._shared, self._aligned, self._aligned_rows, self._aligned_targets, 0)
        outside = self._part(self._inputs, np.arange(len(self._rows)), self._rows, self._targets, 1)
        filling = filler_of(self._method)(
            AlignedRows(aligned, self._received), outside, self._joint_model(), self._randomness.derive("fill")
        )
        made_up = check_finite(filling.embeddings)
        lowest = self._received.amin(dim=0)
        made_up = torch.where(lowest >= 0, made_up.clamp_min(0), made_up)  # as after a ReLU
        self._embeddings = made_up.clamp(-MOST_HALF, MOST_HALF).half()
        self._figures, self._received = dict(filling.figures), None
        if self._method.begins_anew:
            initialise(self._model.cpu(), self._randomness.derive("anew"))
            start_at_rate(self._model.to(self._session.device), self._task, self._train)
            self._joint.forget()
        self._seconds += self._session.clock() - started

    @torch.no_grad()
    def _part(
        self, inputs: PositionedInput, places: Positions, rows: NDArray[np.int64], targets: Tensor, which: int
    ) -> OwnPart:
        """What this party has of rows at ``places`` of ``inputs``."""
        bottom = self._model.bottom
        assert bottom is not None
        own = torch.cat([bottom(inputs.at(part)) for part in cut(places, ROWS_AT_ONCE)])
        groups = None if self._groups is None else self._groups[which]
        return OwnPart(lambda batch: inputs.at(places[batch]), own, targets, rows, groups)

    def _joint_model(self) -> JointModel:
        def new_bottom() -> nn.Module:
            bottom = build_bottom(self._architecture, self._train, self._inputs.schema, self._train.active_bottom)
            return bottom.to(self._session.device)

        def logits(own: Tensor, received: Tensor) -> Tensor:
            return self._model.above([own, received])

        return JointModel(logits, self._task.losses, new_bottom, self._train.outputs)

    def tensors(self) -> dict[str, Tensor]:
        """As the base."""
        if self._embeddings is None:
            return {}
        return {
            "embeddings": self._embeddings.cpu(),
            "steps": torch.tensor(self._steps),
            "seconds": torch.tensor(self._seconds, dtype=torch.float64),
            **prefixed("figures", {name: torch.tensor(value, dtype=torch.float64) for name, value in self._figures.items()}),
            **prefixed("learner", self._learner.tensors()),
        }

    def report(self) -> dict[str, Any]:
        """As the base."""
        return {
            "rows": len(self._rows),
            "steps_local": self._steps,
            "generated": 0 if self._embeddings is None else len(self._embeddings),
            "seconds": self._seconds,
            "figures": dict(self._figures),
        }


def share_weights(branch: nn.Module, joint: nn.Module) -> None:
    """Let ``branch``, built like ``joint``, have the same parameters, but for those of norms: updates of one change both."""
    for name, layer in branch.named_modules():
        if isinstance(layer, NORMS):
            continue
        theirs = joint.get_submodule(name)
        for key in list(layer._parameters):
            layer._parameters[key] = theirs._parameters[key]


def _check_classes(
    task: SplitTask, train: Train, labels: NDArray[Any], aligned: NDArray[np.int64], rows: NDArray[np.int64]
) -> None:
    """Refuse a class that rows outside have and hardly any aligned row. Raises DataError (``E_ONE_CLASS``)."""
    if train.task != "classification":
        return
    known = np.bincount(labels[aligned].astype(np.int64), minlength=train.classes)
    for label in np.unique(labels[rows].astype(np.int64)):
        if known[label] < FEWEST_OF_A_CLASS:
            raise DataError(
                f"rows outside of the alignment have the label {label}, and {known[label]} of the aligned rows trained on: "
                "too few to fill in their embeddings from",
                code="E_ONE_CLASS",
                hint="use more records, a smaller evaluate.test_fraction, or train.unaligned: {method: none}",
                for_peer="the active party's labels do not allow train.unaligned; set its method to none",
            )
