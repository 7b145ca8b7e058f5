"""Rows outside of the alignment whose embeddings a method makes up, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from vfl_node.job.costs import ROWS_AT_ONCE
from vfl_node.models.building import build_bottom
from vfl_node.models.initial_weights import initialise
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.models.updates import Updates
from vfl_node.process import failpoints
from vfl_node.training.network.half import Positions
from vfl_node.training.network.local import check_finite
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.schedule import cut
from vfl_node.training.split.local_branch import ActiveParts, LocalBranch
from vfl_node.training.split.tasks import start_at_rate
from vfl_node.training.unaligned.contract import EVERY, AlignedRows, JointModel, OwnPart, filler_of
from vfl_node.training.unaligned.memorised import nearest_real

MOST_HALF = float(torch.finfo(torch.float16).max)


class FilledRows(LocalBranch):
    """The embeddings received in the last epoch before are what the method learns from; what it makes up is constant."""

    def __init__(self, active: ActiveParts, saved: Mapping[str, Tensor]) -> None:
        super().__init__(active, saved)
        self._embeddings: Tensor | None = None
        """float16[u, d] once they are filled in."""
        self._figures: dict[str, float] = {}
        if "embeddings" in saved:
            self._embeddings = saved["embeddings"].to(active.session.machine.device)
            self._figures = {name: float(value) for name, value in take_part("figures", saved).items()}

    @override
    def epoch_begins(self, epoch: int, steps: int) -> None:
        self._begin_local(epoch, steps, learning=self._embeddings is not None)
        if epoch + 1 == self._filling_after:
            self._note()

    def _embeddings_of(self, batch: Positions, own: Tensor) -> Tensor:
        assert self._embeddings is not None
        return self._embeddings[torch.from_numpy(batch)].float()

    def epoch_ends(self) -> Mapping[str, Any]:
        """Fill the rows in, if this was the last epoch before."""
        if self._received is not None:
            self._fill(self._received)
        return {}

    def _fill(self, received: Tensor) -> None:
        started, active = self._session.machine.clock(), self._active
        failpoints.reach("fill")
        active.learner.rest()
        aligned = self._aligned_part()
        places = np.arange(len(active.rows))
        outside = self._part(self._inputs, places, self._own_embedder(self._inputs, places), active.rows, self._targets)
        filling = filler_of(self._train.unaligned)(
            AlignedRows(aligned, received), outside, self._joint_model(), self._randomness.derive("fill")
        )
        made_up = check_finite(filling.embeddings)
        lowest = received.amin(dim=0)
        lowest = torch.where(lowest >= 0, 0.0, -MOST_HALF)  # as after a ReLU
        self._embeddings = torch.empty_like(made_up, dtype=torch.float16)
        for at in range(0, len(made_up), ROWS_AT_ONCE):
            part = slice(at, at + ROWS_AT_ONCE)
            self._embeddings[part] = made_up[part].clamp_min(lowest).clamp_max(MOST_HALF)
        hidden = active.alignment.hides_intersection  # it takes the longer, the more rows are shared
        nearest = None if hidden else nearest_real(self._embeddings, received)
        self._figures, self._received = {**filling.figures, **({} if nearest is None else {"nearest_real": nearest})}, None
        if self._train.unaligned.begins_anew:
            initialise(active.model.cpu(), self._randomness.derive("anew"))
            start_at_rate(active.model.to(self._session.machine.device), active.task, self._train)
            active.learner.forget()
        self._seconds += self._session.machine.clock() - started

    def _aligned_part(self) -> OwnPart:
        """What this party has of the aligned rows. All trained on are computed, so that time does not tell how many it has."""
        active = self._active
        mine = torch.from_numpy(active.alignment.owned[active.trained])
        own = self._own_embedder(active.inputs, active.trained)(EVERY)[mine.to(self._session.machine.device)]
        targets = active.targets(active.aligned_rows)
        return self._part(active.inputs, active.aligned, own.__getitem__, active.aligned_rows, targets)

    def _own_embedder(self, inputs: PositionedInput, places: Positions) -> Callable[[slice], Tensor]:
        """A run of ``places`` of ``inputs`` → what the own bottom makes of these rows."""
        bottom, chunks = self._active.model.bottom, cut(places, ROWS_AT_ONCE)
        assert bottom is not None

        @torch.no_grad()
        def embed(run: slice) -> Tensor:
            """By whole chunks, so that the bits of a row do not depend on what is asked for."""
            start, stop, _ = run.indices(len(places))
            first = start // ROWS_AT_ONCE
            made = torch.cat([bottom(inputs.take(chunk)) for chunk in chunks[first : -(-stop // ROWS_AT_ONCE)]])
            return made[start - first * ROWS_AT_ONCE : stop - first * ROWS_AT_ONCE]

        return embed

    def _part(
        self,
        inputs: PositionedInput,
        places: Positions,
        own: Callable[[slice], Tensor],
        rows: NDArray[np.int64],
        targets: Tensor,
    ) -> OwnPart:
        """What this party has of rows at ``places`` of ``inputs``."""
        groups = self._active.table.groups
        of_rows = None if groups is None else groups[rows]
        return OwnPart(lambda batch: inputs.take(places[batch]), own, targets, rows, of_rows)

    def _joint_model(self) -> JointModel:
        active, train = self._active, self._train

        def new_bottom() -> nn.Module:
            bottom = build_bottom(active.architecture, train, self._inputs.schema, train.active_bottom)
            return bottom.to(self._session.machine.device)

        def logits(own: Tensor, received: Tensor) -> Tensor:
            return active.model.head_logits([own, received])

        def adam(model: nn.Module, learning_rate: float) -> Updates:
            return Updates(model, "adam", train.model_copy(update={"learning_rate": learning_rate, "weight_decay": 0.0}))

        return JointModel(logits, active.task.losses, new_bottom, adam, train.outputs)

    @override
    def tensors(self) -> dict[str, Tensor]:
        if self._embeddings is None:
            return {}
        figures = {name: torch.tensor(value, dtype=torch.float64) for name, value in self._figures.items()}
        return {**super().tensors(), "embeddings": self._embeddings.cpu(), **add_prefix("figures", figures)}

    @override
    def report(self) -> dict[str, Any]:
        generated = 0 if self._embeddings is None else self._active.distinct
        return {**super().report(), "generated": generated, "figures": dict(self._figures)}
