"""``jpl``: a network x_L → h̃_N, trained on the aligned rows, makes the embedding of each row outside."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.job.costs import ROWS_AT_ONCE
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import linear
from vfl_node.training.unaligned.contract import EVERY, AlignedRows, Filling, JointModel, OwnPart, Rows, Standardised
from vfl_node.training.unaligned.specs import BATCH, JointPrivilegedLearning


class EmbeddingFromColumns(nn.Module):
    """Own columns → standardised h̃_N, and what an auxiliary head says of the label by it.

    Args:
        bottom: like the own one.
        own: d', the width that it gives.
        hidden: width of the layer above.
        width: d, of h_N.
        outputs: logits a row.
    """

    def __init__(self, bottom: nn.Module, own: int, hidden: int, width: int, outputs: int) -> None:
        super().__init__()
        self.bottom = bottom
        self.head = nn.Sequential(linear(own, hidden), nn.ReLU(), linear(hidden, width))
        self.auxiliary = linear(width, outputs)

    def forward(self, inputs: ModelInput) -> Tensor:
        """float32[B, d]."""
        made: Tensor = self.head(self.bottom(inputs))
        return made

    def label_logits(self, made: Tensor) -> Tensor:
        """float32[B, d] → float32[B], or [B, K]."""
        logits: Tensor = self.auxiliary(made)
        return logits.squeeze(1) if logits.shape[1] == 1 else logits


class JointPrivilegedFiller:
    """The sum of three losses over aligned rows: MSE(h̃_N, h_N) + CE(top(h_L, h̃_N), y) + CE(auxiliary(h̃_N), y).

    Source: Li et al., vertical semi-federated learning with joint privileged learning; FedAds takes its network to fill rows in
    and leaves its distillation out. Deviations: equal weights, h_N standardised; no loss by labels of rows outside.

    Args:
        settings: of the job.
    """

    def __init__(self, settings: JointPrivilegedLearning) -> None:
        self._settings = settings

    def __call__(self, aligned: AlignedRows, outside: OwnPart, joint: JointModel, randomness: Randomness) -> Filling:
        """As :class:`~vfl_node.training.unaligned.contract.Filler`. The figure ``embedding_error`` is the MSE at the end.

        Cost: ``updates`` steps of 256 rows, and a pass of each row outside.
        """
        part, device, settings, own = aligned.part, aligned.received.device, self._settings, aligned.part.own(EVERY)
        scale = Standardised.fit(aligned.received)
        aims = scale.apply(aligned.received)
        bottom = joint.new_bottom().cpu()
        network = EmbeddingFromColumns(bottom, own.shape[1], settings.hidden, aims.shape[1], joint.outputs)
        initialise(network, randomness.derive("weights"))
        network = network.to(device).eval()  # no dropout, and norms leave values as they are at first
        optimiser = joint.adam(network, settings.learning_rate)
        order, error = randomness.derive("order"), torch.zeros(())
        for _ in range(settings.updates):
            places = order.choices(len(part), BATCH)
            rows = torch.from_numpy(places).to(device)
            made = network(part.inputs(places))
            error = (made - aims[rows]).square().mean()
            targets = part.targets[rows]
            read = joint.losses(joint.logits(own[rows], scale.undo(made)), targets).mean()
            loss = error + read + joint.losses(network.label_logits(made), targets).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        filled = torch.empty(len(outside), aims.shape[1], device=device)
        for places in _parts(len(outside)):
            filled[torch.from_numpy(places)] = scale.undo(self._predict(network, outside, places))
        return Filling(filled, {"embedding_error": float(error.detach())})

    @torch.no_grad()
    def _predict(self, network: EmbeddingFromColumns, outside: OwnPart, places: Rows) -> Tensor:
        made: Tensor = network(outside.inputs(places))
        return made


def _parts(rows: int) -> list[Rows]:
    return [np.arange(start, min(start + ROWS_AT_ONCE, rows)) for start in range(0, rows, ROWS_AT_ONCE)]
