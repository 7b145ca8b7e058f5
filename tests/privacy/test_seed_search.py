"""A peer that tries seeds: it draws weights from each and compares embeddings of a few rows that it knows.

torch's CPU generator keeps 32 bits of a seed, all of which can be tried: 65,536 take a second here. Our draws keep all 256.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.thorough import examples
from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema

COLUMNS, CUT, WINDOW = 4, 8, examples(2**16, fewer=2**13)
BOUND = COLUMNS**-0.5
SECRET = int.from_bytes(bytes(range(101, 133)), "big")

Draw = Callable[[int], NDArray[np.float32]]


def by_torch(seed: int) -> NDArray[np.float32]:
    """Weights as they used to be drawn: by torch's generator, seeded with 63 bits."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    return torch.empty((COLUMNS + 1) * CUT).uniform_(-BOUND, BOUND, generator=generator).numpy()


def ours(seed: int) -> NDArray[np.float32]:
    """Weights as :func:`initialise` draws them."""
    drawn = Randomness(seed.to_bytes(32, "big")).uniform(((COLUMNS + 1) * CUT,))
    return (BOUND * (2 * drawn - 1)).astype(np.float32)


def test_that_is_how_a_network_is_drawn() -> None:
    network = MlpBottom(InputSchema(COLUMNS), (CUT,))
    initialise(network, Randomness(SECRET.to_bytes(32, "big")))
    drawn = torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()]).numpy()
    assert (drawn == ours(SECRET)).all()


def embed(weights: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32[S, B, CUT] of S networks."""
    matrices = weights[:, : COLUMNS * CUT].reshape(-1, CUT, COLUMNS)
    biases = weights[:, None, COLUMNS * CUT :]
    return np.maximum(rows @ matrices.transpose(0, 2, 1) + biases, 0)


def search(draw: Draw) -> tuple[int, float]:
    """The best seed of the window around the secret one's 32 lowest bits, and how far its embeddings are off at most.

    The peer knows the window, 2¹⁶ of the 2³² there are or a part of it, and no higher bit of the seed.
    """
    rows = Randomness(b"rows that the peer knows as well".ljust(32)).normal((6, COLUMNS))
    received = embed(draw(SECRET)[None], rows)
    first = SECRET % 2**32 // WINDOW * WINDOW
    candidates = np.stack([draw(first + offset) for offset in range(WINDOW)])
    distance = np.abs(embed(candidates, rows) - received).max(axis=(1, 2))
    best = int(distance.argmin())
    return first + best, float(distance[best])


def test_the_seed_of_torchs_generator_is_found() -> None:
    seed, distance = search(by_torch)
    assert seed == SECRET % 2**32
    assert distance < 1e-6
    assert (by_torch(seed) == by_torch(SECRET)).all()  # and with it all weights


def test_our_seed_is_not() -> None:
    _, distance = search(ours)
    assert distance > 0.01


@pytest.mark.parametrize("bit", [32, 33, 40, 62, 63, 64, 128, 255])
def test_weights_depend_on_every_bit_of_the_seed(bit: int) -> None:
    other = SECRET ^ 1 << bit
    assert (ours(other) != ours(SECRET)).all()
    assert (by_torch(other) == by_torch(SECRET)).all()  # the control
