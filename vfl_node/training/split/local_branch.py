"""The local branch of the active party's network: it learns from rows outside of the alignment, and is dropped at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import Table
from vfl_node.models import Architecture, architecture_of
from vfl_node.models.building import build_classifier
from vfl_node.models.classifier import Classifier
from vfl_node.models.initial_weights import NORMS, initialise
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attachment import Attachment, TrainingStep
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.training.network.half import Positions
from vfl_node.training.network.learner import Learner
from vfl_node.training.network.local import check_finite
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.schedule import cut
from vfl_node.training.split.config import Train
from vfl_node.training.split.tasks import SplitTask


@dataclass(frozen=True, eq=False)
class ActiveParts:
    """What the active party's half is made of, for what learns from rows outside of the alignment.

    Attributes:
        session: the active party's.
        table: its table.
        alignment: its view of the shared rows.
        model: its half of the joint model.
        learner: that trains it.
        inputs: its columns, encoded.
        task: what its labels are.
        trained: shared positions trained on.
        rows: of its table, int64[u], that are outside and learnt from, ascending; some may stand there several times.
        randomness: its own for this.
    """

    session: Session
    table: Table
    alignment: Alignment
    model: Classifier
    learner: Learner
    inputs: PositionedInput
    task: SplitTask
    trained: Positions
    rows: NDArray[np.int64]
    randomness: Randomness

    @property
    def train(self) -> Train:
        """The job's section."""
        return Train.section_of(self.session.job)

    @cached_property
    def aligned(self) -> Positions:
        """Shared positions trained on that this party owns."""
        return self.trained[self.alignment.owned[self.trained]]

    @cached_property
    def aligned_rows(self) -> NDArray[np.int64]:
        """Rows of the table at the ``aligned`` positions."""
        return self.alignment.rows[self.aligned]

    @cached_property
    def distinct(self) -> int:
        """How many different ``rows`` there are."""
        return len(np.unique(self.rows))

    @property
    def architecture(self) -> Architecture:
        """The architecture of the job's model."""
        return architecture_of(self.train.model, self.session.policy.models)

    @property
    def received_width(self) -> int:
        """d, of the passive party's embedding."""
        return self.architecture.cut_width(self.train.bottom, self.train.outputs)

    def targets(self, rows: NDArray[np.int64]) -> Tensor:
        """The targets of ``rows`` of the table, as the loss reads them."""
        assert self.table.labels is not None
        return self.task.targets(self.table.labels[rows]).to(self.session.machine.device)


class LocalBranch(Attachment):
    """Batches of rows outside, evenly between the federated ones of an epoch.

    Args:
        active: the half that it belongs to.
        saved: tensors of a checkpoint within the repeat; empty at its beginning.
    """

    name = "outside"

    def __init__(self, active: ActiveParts, saved: Mapping[str, Tensor]) -> None:
        self._active, self._session, self._train = active, active.session, active.train
        self._filling_after = self._train.unaligned.pretraining(self._train.epochs)
        self._inputs = active.inputs.select(active.rows)
        self._targets = active.targets(active.rows)
        self._randomness = active.randomness
        self._place = np.full(len(active.alignment), -1)
        self._place[active.aligned] = np.arange(len(active.aligned))
        self._received: Tensor | None = None
        """float32[k, d], the newest embedding of each aligned row of this party, where it is noted."""
        self._steps, self._seconds = 0, 0.0
        self._epoch, self._batches, self._local, self._done = 0, 1, list[Positions](), 0
        self._branch = self._build_branch()
        version = active.architecture.version
        self._learner = Learner(self._branch, self._train, self._randomness.derive("branch"), version)
        if "steps" in saved:
            self._learner.restore(take_part("learner", saved))
            self._steps, self._seconds = int(saved["steps"]), float(saved["seconds"])

    def _build_branch(self) -> Classifier:
        """An own top, and the joint half's bottom but for its norms."""
        active = self._active
        branch = build_classifier(active.architecture, self._train, self._inputs.schema, [active.received_width])
        initialise(branch, self._randomness.derive("weights"))
        branch = branch.to(self._session.machine.device)
        assert branch.bottom is not None
        assert active.model.bottom is not None
        share_weights(branch.bottom, active.model.bottom)
        return branch

    @abstractmethod
    def _embeddings_of(self, batch: Positions, own: Tensor) -> Tensor:
        """float32[B, d] in place of those that rows outside lack; ``own`` is what the own bottom makes of them."""

    def _begin_local(self, epoch: int, batches: int, *, learning: bool) -> None:
        """Make ready for an epoch of so many federated ``batches``, with local ones between them or without."""
        self._epoch, self._batches, self._done, self._local = epoch, batches, 0, []
        if learning:
            order = self._randomness.derive(f"order/{epoch}").permutation(len(self._active.rows))
            self._local = cut(order, self._train.batch_size)

    def _note(self) -> None:
        """Note embeddings from here on."""
        self._received = torch.zeros(
            len(self._active.aligned), self._active.received_width, device=self._session.machine.device
        )

    def step_done(self, step: TrainingStep) -> None:
        """As :meth:`Attachment.step_done`: note what was received, and train on the local batches that are due."""
        if self._received is not None:
            place = self._place[step.positions]
            mine = np.flatnonzero(place >= 0)
            rows = torch.from_numpy(mine)
            self._received[torch.from_numpy(place[mine])] = torch.cat([part.detach()[rows] for part in step.embeddings], dim=1)
        if not self._local:
            return
        started = self._session.machine.clock()
        first, self._done = self._done, self._done + 1
        count = len(self._local)
        for index in range(first * count // self._batches, self._done * count // self._batches):
            self._step(index)
        self._seconds += self._session.machine.clock() - started

    def _step(self, index: int) -> None:
        """Train the local branch on one batch."""
        batch = self._local[index]
        self._learner.begin(self._steps)
        of_an_epoch = len(self._local)
        place = (self._epoch - self._filling_after) * of_an_epoch + index
        self._learner.pace(place, (self._train.epochs - self._filling_after) * of_an_epoch)
        assert self._branch.bottom is not None
        own = self._branch.bottom(self._inputs.take(batch))
        logits = self._branch.head_logits([own, self._embeddings_of(batch, own)])
        loss = self._active.task.losses(logits, self._targets[torch.from_numpy(batch)]).mean()
        check_finite(loss).backward()  # type: ignore[no-untyped-call]
        self._learner.step()
        self._steps += 1
        failpoints.reach("local-batch")

    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """As :meth:`Attachment.findings`: of the first repeat."""
        return {} if before is not None else {"unaligned": self.report()}

    @override
    def tensors(self) -> dict[str, Tensor]:
        return {
            "steps": torch.tensor(self._steps),
            "seconds": torch.tensor(self._seconds, dtype=torch.float64),
            **add_prefix("learner", self._learner.tensors()),
        }

    def report(self) -> dict[str, Any]:
        """What was done so far, as JSON."""
        return {
            "rows": self._active.distinct,
            "steps_local": self._steps,
            "generated": 0,
            "seconds": self._seconds,
            "figures": {},
        }


def share_weights(branch: nn.Module, joint: nn.Module) -> None:
    """Let ``branch``, built like ``joint``, have the same parameters, but for those of norms: updates of one change both."""
    for name, layer in branch.named_modules():
        if isinstance(layer, NORMS):
            continue
        theirs = joint.get_submodule(name)
        for key in list(layer._parameters):
            layer._parameters[key] = theirs._parameters[key]
