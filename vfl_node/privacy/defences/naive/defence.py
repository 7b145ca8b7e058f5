"""The paper's naive defence: f + λ·g is descended at once.

It lags by one upload: what leaves is made before the step that would protect it.

Source: arXiv 2104.14383, section 4.2, eq. 5 and 6, figure 1c.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.defences.defence import Defence, Leaving, Sender
from vfl_node.privacy.defences.naive.spec import NaiveParams
from vfl_node.privacy.defences.simulated import SimulatedDecoder, example


class NaiveDefence(Defence):
    """Adds λ·g to the loss, g = −l. In predictions it does nothing.

    Args: as :class:`Defence`.

    Cost: M1 steps of the decoder and one more pass through it a batch, after the batch has left.
    """

    def __init__(self, params: NaiveParams, sender: Sender, randomness: Randomness) -> None:
        self._strength, self._steps = params.strength, params.decoder_steps
        self._decoder: SimulatedDecoder | None = None
        if sender.columns is not None and sender.model is not None and sender.inputs is not None:
            like = example(sender.model, sender.inputs)
            self._decoder = SimulatedDecoder(params, sender.columns(params.names), like, randomness.derive("decoder"))

    def penalty(self, embedding: Tensor, leaving: Leaving) -> Tensor | None:
        """As :meth:`Defence.penalty`."""
        if self._decoder is None:
            return None
        rows = torch.from_numpy(leaving.positions).to(embedding.device)
        self._decoder.learn(embedding.detach(), rows, self._steps)
        return -self._strength * self._decoder.losses(embedding, rows).sum()

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Defence.state`."""
        return {} if self._decoder is None else self._decoder.tensors()

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """As :meth:`Defence.restore`."""
        if self._decoder is not None:
            self._decoder.restore(state)
