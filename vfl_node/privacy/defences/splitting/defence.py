"""When Minimax runs (Alg. 2): before the embeddings of a training step, and over all rows before those by weights that stay.

The task's gradient is taken at θ̃, where the peer's half met it, and the task's step goes on from there. After the last one
the bottom is undefended again, so it settles once more before it is validated, evaluated or kept for predictions.

With ``every: k``, Minimax runs before each k-th batch. In between the bottom is pulled to where Minimax has left it:
θ ← argmin ½‖θ' − θ‖² + w·½‖θ' − θ̃‖², with w the weight of the proximal term.

Source: arXiv 2104.14383, section 4.2, Alg. 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.storage import prefixed, under
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender
from vfl_node.privacy.defences.simulated import SimulatedDecoder, example
from vfl_node.privacy.defences.splitting.minimax import Minimax, OwnBatch
from vfl_node.privacy.defences.splitting.spec import FbsFixedParams, FbsParams, ProximalParams, SplittingParams
from vfl_node.privacy.defences.splitting.weighting import FixedWeights, LearntWeights, Weighting


class Splitting(Defence):
    """``basic``, ``fbs`` and ``fbs-fixed``. In predictions it does nothing: the bottom that was kept is protected.

    Args: as :class:`Defence`.

    Cost: as :class:`~vfl_node.privacy.defences.splitting.minimax.Minimax`, for each batch before it leaves, and for all batches
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

    def before(self, leaving: Leaving) -> None:
        """As :meth:`Defence.before`."""
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

    def settle(self, rows: Sequence[Leaving]) -> None:
        """As :meth:`Defence.settle`."""
        if self._minimax is not None:
            self._move(rows, max(self._rounds, -(-self._warm_up // len(rows))))

    def figures(self) -> dict[str, float]:
        """As :meth:`Defence.figures`: the means of τ1 and τ2 over the steps in which Minimax ran."""
        taus, self._taus = self._taus, []
        return {f"tau{number}": fmean(of) for number, of in enumerate(zip(*taus, strict=True), 1)}

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Defence.state`."""
        if self._minimax is None:
            return {}
        protected = {str(number): weights.cpu().clone() for number, weights in enumerate(self._protected)}
        return {
            **prefixed("minimax", self._minimax.tensors()),
            **prefixed("protected", protected),
            "steps": torch.tensor(self._steps),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """As :meth:`Defence.restore`."""
        if self._minimax is None:
            return
        self._minimax.restore(under("minimax", state))
        for number, weights in enumerate(self._protected):
            weights.copy_(state[f"protected.{number}"])
        self._steps = int(state["steps"])

    def _move(self, rows: Sequence[Leaving], rounds: int) -> None:
        """θ ← θ̃ by all of ``rows``."""
        assert self._minimax is not None
        self._minimax([self._own(of) for of in rows], rounds)
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
