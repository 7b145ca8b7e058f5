"""The simulated attacker of a defence: a decoder ν that a party trains on its own embeddings and columns.

It is the worst case: it knows all rows that it is trained with, where an attacker knows some.

Source: arXiv 2104.14383, section 4.2, eq. 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.inputs import ModelInput
from vfl_node.models.optimisers import restore_optimiser, tensors_of_optimiser
from vfl_node.models.storage import add_prefix, take_part
from vfl_node.privacy.defences.decoding import DecoderParams
from vfl_node.privacy.features.decoder import decoder
from vfl_node.privacy.features.targets import Targets

BETAS = (0.5, 0.9)
"""Betas of Adam, where a decoder and a bottom learn against each other.

With the usual .9 and .999 both overshoot and circle around the balance: each epoch's embeddings tell something else. In one
training with each, with all else alike and a hidden layer of 64 numbers in the decoder, a decoder of all epochs' embeddings
together rebuilt a flag at .87 with the usual ones, and at .75 with these.
"""


class SimulatedDecoder:
    """ν, and the l that it reaches.

    Args:
        params: its size and how fast it learns.
        targets: what it rebuilds.
        like: float[B, d], embeddings of any rows: their width, type and device.
        randomness: of its initial weights alone.
    """

    def __init__(self, params: DecoderParams, targets: Targets, like: Tensor, randomness: Randomness) -> None:
        network = decoder(like.shape[1], params.decoder, targets.width, randomness)
        self.network = network.to(device=like.device, dtype=like.dtype)
        self.targets = targets
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=params.decoder_rate, betas=BETAS, fused=True)

    def learn(self, embeddings: Tensor, rows: Tensor, steps: int) -> None:
        """Descend l.

        Args:
            embeddings: float[B, d], without a graph.
            rows: int64[B], their shared positions.
            steps: of the optimiser.
        """
        for _ in range(steps):
            self._optimizer.zero_grad()
            self.targets.losses(self.network(embeddings), rows).sum().backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()

    def losses(self, embeddings: Tensor, rows: Tensor) -> Tensor:
        """l of each column, float[c], and no more than that of the best constant.

        Beyond the constant there is nothing to gain. Without this bound, embeddings would be rewarded from which ν is wrong
        most of the time, and a decoder that says the opposite is right.
        """
        return self.targets.losses(self.network(embeddings), rows).minimum(self.targets.most)

    def tensors(self) -> dict[str, Tensor]:
        """Weights and the state of their optimiser."""
        weights = {name: tensor.detach().cpu().clone() for name, tensor in self.network.state_dict().items()}
        return {**add_prefix("network", weights), **add_prefix("optimizer", tensors_of_optimiser(self._optimizer))}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""
        self.network.load_state_dict(take_part("network", tensors))
        restore_optimiser(self._optimizer, take_part("optimizer", tensors))


def example(model: nn.Module, inputs: Callable[[NDArray[np.int64]], ModelInput]) -> Tensor:
    """An embedding, float[1, d], of a bottom that is not running: it stays in its mode, and nothing is drawn."""
    training = model.training
    model.eval()
    with torch.no_grad():
        embedding: Tensor = model(inputs(np.zeros(1, dtype=np.int64)))
    model.train(training)
    return embedding
