"""Defences that move the bottom away from what a simulated decoder rebuilds, before its embeddings leave.

* :class:`Minimax`, Alg. 1: the decoder and the bottom learn against each other, from the bottom that the task has left.
* :class:`Weighting`: how the privacy loss and the way from the task's bottom are weighed: fixed, or learnt.
* :class:`Splitting`, Alg. 2: when Minimax runs.

When Minimax runs (Alg. 2): before the embeddings of a training step, and over all rows before those by weights that stay.

The task's gradient is taken at θ̃, where the peer's half met it, and the task's step goes on from there. After the last one
the bottom is undefended again, so it settles once more before it is validated, evaluated or kept for predictions.

With ``every: k``, Minimax runs before each k-th batch. In between the bottom is pulled to where Minimax has left it:
θ ← argmin ½‖θ' − θ‖² + w·½‖θ' − θ̃‖², with w the weight of the proximal term.

Source: arXiv 2104.14383, section 4.2, Alg. 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import torch
from torch import Tensor, nn
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.inputs import ModelInput
from vfl_node.models.optimisers import restore_optimiser, tensors_of_optimiser
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender
from vfl_node.privacy.defences.simulated import BETAS, SimulatedDecoder, example
from vfl_node.privacy.defences.specs import FbsFixedParams, FbsParams, ProximalParams, SplittingParams
from vfl_node.process import failpoints


class Splitting(Defence):
    """``basic``, ``fbs`` and ``fbs-fixed``. In predictions it does nothing: the bottom that was kept is protected.

    Args: as :class:`Defence`.

    Cost: as :class:`~vfl_node.privacy.defences.splitting.Minimax`, for each batch before it leaves, and for all batches
        together where weights settle.
    """

    def __init__(self, params: SplittingParams, sender: Sender, randomness: Randomness) -> None:
        self._rounds, self._warm_up, self._every, self._steps = params.rounds, params.warm_up, params.every, 0
        self._taus: list[tuple[float, float]] = []
        self._minimax: Minimax | None = None
        if sender.columns is None or sender.model is None or sender.inputs is None:
            return
        self._model, self._inputs = sender.model, sender.inputs
        like = example(self._model, self._inputs)
        decoder = SimulatedDecoder(params, sender.columns(params.names), like, randomness.derive("decoder"))
        self._weighting = weighting_of(params, like)
        features = isinstance(params, ProximalParams) and params.distance == "features"
        self._minimax = Minimax(params, self._model, decoder, self._weighting, features=features)
        self._protected = self._weights()

    @override
    def prepare(self, leaving: Leaving) -> None:
        if self._minimax is None:
            return
        if self._steps == 0:
            self._move([leaving], self._warm_up)
        if self._steps % self._every == 0:
            self._move([leaving], self._rounds)
            self._taus.append(self._weighting.tau)
        else:
            self._pull()
        self._steps += 1

    @override
    def settle(self, rows: Sequence[Leaving]) -> None:
        if self._minimax is not None:
            self._move(rows, max(self._rounds, -(-self._warm_up // len(rows))))

    def figures(self) -> dict[str, float]:
        """As :meth:`Defence.figures`: the means of τ1 and τ2 over the steps in which Minimax ran."""
        taus, self._taus = self._taus, []
        return {f"tau{number}": fmean(column) for number, column in enumerate(zip(*taus, strict=True), 1)}

    @override
    def state(self) -> dict[str, Tensor]:
        if self._minimax is None:
            return {}
        protected = {str(number): weights.cpu().clone() for number, weights in enumerate(self._protected)}
        return {
            **add_prefix("minimax", self._minimax.tensors()),
            **add_prefix("protected", protected),
            "steps": torch.tensor(self._steps),
        }

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        if self._minimax is None:
            return
        self._minimax.restore(take_part("minimax", state))
        for number, weights in enumerate(self._protected):
            weights.copy_(state[f"protected.{number}"])
        self._steps = int(state["steps"])

    def _move(self, rows: Sequence[Leaving], rounds: int) -> None:
        """θ ← θ̃ by all of ``rows``."""
        assert self._minimax is not None
        self._minimax([self._own(batch) for batch in rows], rounds)
        self._protected = self._weights()

    def _own(self, leaving: Leaving) -> OwnBatch:
        positions = torch.from_numpy(leaving.positions).to(next(self._model.parameters()).device)
        return OwnBatch(self._inputs(leaving.positions), positions)

    @torch.no_grad()
    def _pull(self) -> None:
        """Draw the bottom to where Minimax has left it."""
        weight = self._weighting.pull
        for parameter, protected in zip(self._model.parameters(), self._protected, strict=True):
            parameter.lerp_(protected, weight / (1 + weight))

    def _weights(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self._model.parameters()]


def weighting_of(params: SplittingParams, like: Tensor) -> Weighting:
    """τ of these keys; learnt ones have the type and device of ``like``."""
    if isinstance(params, FbsParams):
        return LearntWeights(like)
    return FixedWeights(params.tau1, params.tau2) if isinstance(params, FbsFixedParams) else FixedWeights(1, 0)


# Alg. 1: from the bottom that the task has left to one whose embeddings a decoder rebuilds less from, nearby.
#
# ::
#
#     θ̂ ← θ                                                                1
#     N2 times, for each batch:                                            2
#         ν ← M1 steps of descent of l(ν; h(θ̂), D)                         3
#         θ̂, log τ ← m2 steps of descent of the objective at ν             4
#     θ̃ = θ̂                                                                6
#
# The objective weighs g(θ̂, ν) and the proximal term, ½‖θ̂ − θ‖², or with ``distance: features`` ½‖h(θ̂) − h(θ)‖², the mean over
# the rows (:mod:`~vfl_node.privacy.defences.splitting`).
#
# Deviations from the paper: the ½ is in the objective, too; ν descends l itself, which is ascent of g; l is bounded for θ̂
# (:meth:`~vfl_node.privacy.defences.simulated.SimulatedDecoder.losses`); both descend by Adam, whose moments stay from one call
# to the next; how τ is learnt.
#
# Source: arXiv 2104.14383, section 4.2, Alg. 1 and eq. 8.


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
        return {
            **add_prefix("decoder", self._decoder.tensors()),
            **add_prefix("weighting", learnt),
            **add_prefix("moments", moments),
        }

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""
        self._decoder.restore(take_part("decoder", tensors))
        for number, parameter in enumerate(self._weighting.parameters()):
            parameter.copy_(tensors[f"weighting.{number}"])
        restore_optimiser(self._optimizer, take_part("moments", tensors))


def _half_square(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """½‖ours − theirs‖², all tensors as one vector."""
    return torch.stack([(a - b).square().sum() for a, b in zip(ours, theirs, strict=True)]).sum() / 2


# How the privacy loss g and the proximal term weigh against each other.
#
# g is the sum over the protected columns. With the mean each column of many would weigh next to nothing beside the proximal
# term: of 223 flags (``location30``) all that leaked without a defence leaked with it.


LEAST, MOST = 0.3, 3.0
"""Between these a learnt τ stays: the proximal term begins at 0, so τ2 would end at 0 and hold the bottom where it is."""


class Weighting(Protocol):
    """What the bottom descends."""

    def objective(self, losses: Tensor, proximal: Tensor) -> Tensor:
        """The objective of l of each column, float[c], and the proximal term."""

    def parameters(self) -> list[nn.Parameter]:
        """What is learnt of it."""

    def settle(self) -> None:
        """Keep what is learnt within its bounds, after a step."""

    @property
    def tau(self) -> tuple[float, float]:
        """τ1 and τ2."""

    @property
    def pull(self) -> float:
        """Weight of the proximal term."""


class FixedWeights:
    """τ1·g + τ2·proximal, g = −l."""

    def __init__(self, tau1: float, tau2: float) -> None:
        self.tau = tau1, tau2

    def objective(self, losses: Tensor, proximal: Tensor) -> Tensor:
        """As :class:`Weighting`."""
        return -self.tau[0] * losses.sum() + self.tau[1] * proximal

    def parameters(self) -> list[nn.Parameter]:
        """As :class:`Weighting`."""
        return []

    def settle(self) -> None:
        """As :class:`Weighting`."""

    @property
    def pull(self) -> float:
        """As :class:`Weighting`."""
        return self.tau[1]


class LearntWeights:
    """g/(2·τ1²) + proximal/(2·τ2²) + log τ1 + log τ2, g = exp(−l), whose log τ are learnt (Kendall et al. 2018).

    The paper's Alg. 1 descends τ·g by τ, which would end at ±∞; so this is how its weights are "updated automatically" here.
    """

    def __init__(self, like: Tensor) -> None:
        self.log_tau = nn.Parameter(torch.zeros(2, dtype=like.dtype, device=like.device))

    def objective(self, losses: Tensor, proximal: Tensor) -> Tensor:
        """As :class:`Weighting`."""
        terms = torch.stack([losses.neg().exp().sum(), proximal])
        return (terms / (2 * (2 * self.log_tau).exp()) + self.log_tau).sum()

    def parameters(self) -> list[nn.Parameter]:
        """As :class:`Weighting`."""
        return [self.log_tau]

    @torch.no_grad()
    def settle(self) -> None:
        """As :class:`Weighting`."""
        self.log_tau.clamp_(math.log(LEAST), math.log(MOST))

    @property
    def tau(self) -> tuple[float, float]:
        """As :class:`Weighting`."""
        tau1, tau2 = (min(max(tau, LEAST), MOST) for tau in self.log_tau.detach().exp().tolist())  # rounded, else below
        return tau1, tau2

    @property
    def pull(self) -> float:
        """As :class:`Weighting`."""
        return 1 / (2 * self.tau[1] ** 2)
