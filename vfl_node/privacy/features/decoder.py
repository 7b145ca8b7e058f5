"""The network that rebuilds columns from embeddings: an attacker's, and the one that a defence simulates.

::

    embedding [B, d] ─ linear ─ ReLU ─ … ─ linear ─► outputs [B, width]     as Targets reads them: logits and numbers

Source: arXiv 2104.14383, section 5.1: "combinations of fully-connected layers and activation layers".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from vfl_node.models.initial_weights import Draws, initialise
from vfl_node.models.layers import linear


def decoder(width: int, hidden: Sequence[int], outputs: int, draws: Draws) -> nn.Sequential:
    """A new decoder on the CPU, ready to be trained.

    Args:
        width: d, numbers of what it reads: of an embedding, or of several of one row side by side.
        hidden: widths of its hidden layers; none: it is linear.
        outputs: :attr:`Targets.width <vfl_node.privacy.features.targets.Targets.width>` of what it rebuilds.
        draws: of its initial weights alone. Where a defence simulates it these are secret, as its weights tell of columns.

    Cost: about 6·B·(sum of products of neighbouring widths) floating-point operations a training step.
    """
    layers: list[nn.Module] = []
    for before, after in zip([width, *hidden], hidden, strict=False):
        layers += [linear(before, after), nn.ReLU()]
    network = nn.Sequential(*layers, linear([width, *hidden][-1], outputs))
    initialise(network, draws)
    return network
