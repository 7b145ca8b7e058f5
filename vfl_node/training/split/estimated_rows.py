"""Rows outside of the alignment whose embeddings are estimated anew in each batch, from aligned rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from vfl_node.configuration.registry import load
from vfl_node.job.costs import ROWS_AT_ONCE
from vfl_node.models.initial_weights import initialise
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.attachment import Forward, TrainingStep
from vfl_node.training.network.half import Positions
from vfl_node.training.network.learner import Learner
from vfl_node.training.schedule import cut
from vfl_node.training.split.local_branch import ActiveParts, LocalBranch
from vfl_node.training.unaligned.fedcvt import Estimator


class EstimatedRows(LocalBranch):
    """The estimator learns beside the joint loss, with the own bottom; it has an optimiser of its own."""

    def __init__(self, active: ActiveParts, saved: Mapping[str, Tensor]) -> None:
        super().__init__(active, saved)
        train, architecture = active.train, active.architecture
        own = architecture.cut_width(train.active_bottom, train.outputs)
        method: Any = train.unaligned
        make: Callable[..., Estimator] = load(method.implementation, what=f"train.unaligned.method {method.method}")
        self._estimator, self._candidates = make(method, own, active.received_width, train.outputs), method.candidates
        initialise(self._estimator, self._randomness.derive("estimator"))
        self._estimator = self._estimator.to(active.session.machine.device)
        self._heads = Learner(self._estimator, train, self._randomness.derive("heads"), architecture.version)
        self._federated = 0
        self._sums: dict[str, float] = {}
        self._of_epoch = 0
        self._figures: dict[str, float] = {}
        self._note()
        if "received" in saved:
            self._received = saved["received"].to(active.session.machine.device)
            self._heads.restore(take_part("heads", saved))
            self._federated = int(saved["federated"])
            self._figures = {name: float(value) for name, value in take_part("figures", saved).items()}

    @override
    def epoch_begins(self, epoch: int, steps: int) -> None:
        self._begin_local(epoch, steps, learning=epoch >= self._filling_after)
        self._sums, self._of_epoch = {}, 0

    def loss_beside(self, forward: Forward) -> Tensor | None:
        """As :meth:`Attachment.loss_beside`, of the rows of this party, and 0 where the batch has none.

        They are repeated up to the length of the batch, so that time does not tell how many there are. The passive party gets
        no gradient of it where it must not know which these are.
        """
        own, (received,), targets = forward.own, forward.embeddings, forward.targets
        assert own is not None  # the job was checked
        self._heads.begin(self._federated)
        mine = np.flatnonzero(self._place[forward.positions] >= 0)
        some = len(mine) > 0
        rows = torch.from_numpy(np.resize(mine, len(own)) if some else np.arange(len(own))).to(own.device)
        own, received, targets = own[rows], received[rows], targets[rows]
        if self._active.alignment.hides_intersection:
            received = received.detach()
        draws = self._randomness.derive(f"beside/{self._federated}")
        chosen = torch.from_numpy(draws.permutation(len(own))[: self._candidates]).to(own.device)
        loss, parts = self._estimator.losses_beside(own, received, targets, rows, chosen, self._active.task.losses)
        self._sums = {name: self._sums.get(name, 0.0) + some * float(part) for name, part in parts.items()}
        self._of_epoch += some
        return some * loss

    @override
    def step_done(self, step: TrainingStep) -> None:
        self._heads.step()
        self._federated += 1
        super().step_done(step)

    def _step(self, index: int) -> None:
        self._heads.begin(self._federated)
        super()._step(index)
        self._heads.step()

    def _embeddings_of(self, batch: Positions, own: Tensor) -> Tensor:
        assert self._received is not None
        bottom = self._active.model.bottom
        assert bottom is not None
        draws = self._randomness.derive(f"candidates/{self._steps}")
        places = draws.choices(len(self._active.aligned), self._candidates)
        self._active.learner.rest()  # the next federated step makes it ready again
        with torch.no_grad():
            inputs = self._active.inputs
            keys = torch.cat([bottom(inputs.take(part)) for part in cut(self._active.aligned[places], ROWS_AT_ONCE)])
        return self._estimator.estimates(own, keys, self._received[torch.from_numpy(places).to(own.device)])

    @override
    def epoch_ends(self) -> Mapping[str, Any]:
        self._figures = {name: total / max(self._of_epoch, 1) for name, total in self._sums.items()}
        return {}

    @override
    def tensors(self) -> dict[str, Tensor]:
        assert self._received is not None
        figures = {name: torch.tensor(value, dtype=torch.float64) for name, value in self._figures.items()}
        return {
            **super().tensors(),
            "received": self._received.cpu(),
            "federated": torch.tensor(self._federated),
            **add_prefix("heads", self._heads.tensors()),
            **add_prefix("figures", figures),
        }

    @override
    def report(self) -> dict[str, Any]:
        return {**super().report(), "figures": dict(self._figures)}
