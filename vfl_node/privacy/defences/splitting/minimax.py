"""Alg. 1: from the bottom that the task has left to one whose embeddings a decoder rebuilds less from, nearby.

::

    θ̂ ← θ                                                                1
    N2 times, for each batch:                                            2
        ν ← M1 steps of descent of l(ν; h(θ̂), D)                         3
        θ̂, log τ ← m2 steps of descent of the objective at ν             4
    θ̃ = θ̂                                                                6

The objective weighs g(θ̂, ν) and the proximal term, ½‖θ̂ − θ‖², or with ``distance: features`` ½‖h(θ̂) − h(θ)‖², the mean over
the rows (:mod:`~vfl_node.privacy.defences.splitting.weighting`).

Deviations from the paper: the ½ is in the objective, too; ν descends l itself, which is ascent of g; l is bounded for θ̂
(:meth:`~vfl_node.privacy.defences.simulated.SimulatedDecoder.losses`); both descend by Adam, whose moments stay from one call
to the next; how τ is learnt.

Source: arXiv 2104.14383, section 4.2, Alg. 1 and eq. 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vfl_node.models.inputs import ModelInput
from vfl_node.models.optimisers import restore_optimiser, tensors_of_optimiser
from vfl_node.models.storage import prefixed, under
from vfl_node.privacy.defences.simulated import BETAS, SimulatedDecoder
from vfl_node.privacy.defences.splitting.spec import SplittingParams
from vfl_node.privacy.defences.splitting.weighting import Weighting
from vfl_node.process import failpoints


@dataclass(frozen=True, eq=False)
class OwnBatch:
    """One batch of this party's rows.

    Attributes:
        inputs: what the bottom reads.
        positions: int64[B], shared positions.
    """

    inputs: ModelInput
    positions: Tensor


class Minimax:
    """Moves a bottom, h with weights θ, in place.

    Args:
        params: M1, m2 and the rates.
        model: the bottom. Only its parameters are moved; it stays in the mode in which it is.
        decoder: ν. It goes on from where the last call has left it.
        weighting: τ.
        features: whether the proximal term is of embeddings.

    Cost: N2 · (M1 + m2) steps of an optimiser for each batch, whatever the rows hold.
    """

    def __init__(
        self, params: SplittingParams, model: nn.Module, decoder: SimulatedDecoder, weighting: Weighting, *, features: bool
    ) -> None:
        self._decoder_steps, self._model_steps = params.decoder_steps, params.model_steps
        self._model, self._decoder, self._weighting, self._features = model, decoder, weighting, features
        learnt = [*model.parameters(), *weighting.parameters()]
        self._optimizer = torch.optim.Adam(learnt, lr=params.model_rate, betas=BETAS, fused=True)

    def __call__(self, batches: Sequence[OwnBatch], rounds: int) -> None:
        """θ ← θ̃, by these rows, in N2 ``rounds``."""
        weights = [parameter.detach().clone() for parameter in self._model.parameters()]
        with torch.no_grad():
            embeddings = [self._model(batch.inputs) for batch in batches] if self._features else [None] * len(batches)
        for _ in range(rounds):
            failpoints.reach("minimax")
            for batch, before in zip(batches, embeddings, strict=True):
                embedding = self._model(batch.inputs)
                self._decoder.learn(embedding.detach(), batch.positions, self._decoder_steps)
                for step in range(self._model_steps):
                    if step:
                        embedding = self._model(batch.inputs)
                    losses = self._decoder.losses(embedding, batch.positions)
                    if before is None:
                        proximal = _half_square(list(self._model.parameters()), weights)
                    else:
                        proximal = _half_square([embedding], [before]) / len(before)
                    self._step(self._weighting.objective(losses, proximal))

    def _step(self, objective: Tensor) -> None:
        """One step of θ̂ and log τ; ν stays, and no gradient is left."""
        self._optimizer.zero_grad()
        parameters = [parameter for group in self._optimizer.param_groups for parameter in group["params"]]
        gradients = torch.autograd.grad(objective, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            # of a sparse table: this optimiser moves every weight, as the proximal term does
            parameter.grad = gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient
        self._optimizer.step()
        self._weighting.settle()
        self._optimizer.zero_grad()

    def tensors(self) -> dict[str, Tensor]:
        """All but the bottom's weights."""
        learnt = {
            str(number): parameter.detach().cpu().clone() for number, parameter in enumerate(self._weighting.parameters())
        }
        moments = tensors_of_optimiser(self._optimizer)
        return {**prefixed("decoder", self._decoder.tensors()), **prefixed("weighting", learnt), **prefixed("moments", moments)}

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""
        self._decoder.restore(under("decoder", tensors))
        for number, parameter in enumerate(self._weighting.parameters()):
            parameter.copy_(tensors[f"weighting.{number}"])
        restore_optimiser(self._optimizer, under("moments", tensors))


def _half_square(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """½‖ours − theirs‖², all tensors as one vector."""
    return torch.stack([(a - b).square().sum() for a, b in zip(ours, theirs, strict=True)]).sum() / 2
