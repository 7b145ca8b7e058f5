"""With initial weights that follow from a public seed the first embeddings give the features back; with private ones not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks.embedding_inversion import invert

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # within torch.func

ROWS, COLUMNS = 200, 8
PUBLIC, PRIVATE = b"seed that is printed in the job!", b"seed only the passive party has!"


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def bottom(seed: bytes, sizes: tuple[int, ...] = (64, 64), *, wide: bool = False) -> MlpBottom:
    network = MlpBottom(InputSchema(COLUMNS), sizes, wide=int(wide))
    initialise(network, Randomness(seed))
    return network


def embed(network: MlpBottom, x: Tensor) -> Tensor:
    return network(ModelInput.from_tensors(x))


def attack(secret: MlpBottom, believed: MlpBottom, *, starts: int = 4) -> tuple[Tensor, Tensor]:
    """Largest error of a feature in each row, and the error the attacker sees."""
    x = torch.from_numpy(Randomness(b"x" * 32).normal((ROWS, COLUMNS)))
    with torch.no_grad():
        received = embed(secret, x).double()
    network = believed.double()
    guess, error = invert(
        lambda row: embed(network, row),
        received,
        width=COLUMNS,
        randomness=Randomness(b"a" * 32),
        starts=starts,
        iterations=30,
    )
    assert guess.shape == x.shape
    return (guess - x).abs().amax(dim=1), error


@pytest.mark.parametrize("wide", [False, True])
def test_public_initial_weights_give_the_features_of_all_rows(wide: bool) -> None:
    worst, error = attack(bottom(PUBLIC, wide=wide), bottom(PUBLIC, wide=wide))
    assert (worst < 1e-3).sum() >= 0.98 * ROWS
    assert ((error < 1e-5) == (worst < 1e-3)).sum() >= 0.98 * ROWS  # and the attacker knows which


def test_private_initial_weights_give_no_row_at_all() -> None:
    worst, error = attack(bottom(PRIVATE), bottom(PUBLIC))
    assert (worst < 0.5).sum() == 0
    assert (error < 1e-2).sum() == 0


def test_a_cut_layer_narrower_than_the_columns_does_not_determine_them() -> None:
    worst, _ = attack(bottom(PUBLIC, (64, 4)), bottom(PUBLIC, (64, 4)), starts=1)
    assert (worst < 0.1).sum() <= 0.05 * ROWS


def test_the_same_randomness_gives_the_same_guess() -> None:
    received = torch.from_numpy(Randomness(b"x" * 32).uniform((5, 16)))
    network = bottom(PUBLIC, (16,)).double()
    guesses = [
        invert(
            lambda row: embed(network, row),
            received,
            width=COLUMNS,
            randomness=Randomness(b"a" * 32),
            starts=2,
            iterations=5,
        )[0]
        for _ in range(2)
    ]
    assert torch.equal(*guesses)
    assert torch.isfinite(guesses[0]).all()
