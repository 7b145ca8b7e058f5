"""The gates: what a row makes of what was computed of its candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.layers import Dropout
from vfl_node.models.schema import InputSchema
from vfl_node.models.settings import LayerOptions
from vfl_node.training.candidates.config import Linked
from vfl_node.training.candidates.gates import FLOOR, ConvolutionMerge, SimilarityScale, WeightedMean, WeightGate, sort_gate
from vfl_node.training.candidates.network import ActiveNetwork, LinearCut, find_nearest

K, WIDTH, CHANNELS, KERNEL = 5, 3, 2, 4


def merge(options: LayerOptions | None = None) -> ConvolutionMerge:
    """A convolution that gives its numbers as they are, without hidden layers above."""
    made = ConvolutionMerge(K, WIDTH, channels=CHANNELS, kernel=KERNEL, sizes=(), outputs=1, options=options or LayerOptions())
    initialise(made, Randomness(bytes(32)))
    return made


def test_the_convolution_reads_kernel_less_one_zeros_before_and_after_the_candidates() -> None:
    made, seen = merge(), []
    made.convolution.register_forward_hook(lambda *of: seen.append(of[2]))
    with torch.no_grad():
        made.convolution.weight.zero_()
        made.convolution.bias.zero_()
        made.convolution.weight[0, 0, 0] = made.convolution.weight[1, 0, -1] = 1  # the first, and the last, of what it reads
        pairs, weights = torch.rand(2, K, WIDTH) + 1, torch.rand(2, K) + 1
        made(pairs, weights)
    (found,) = seen
    weighted, zeros = pairs * weights[:, :, None], torch.zeros(2, KERNEL - 1, WIDTH)
    assert found.shape == (2, CHANNELS, K + KERNEL - 1, WIDTH)
    torch.testing.assert_close(found[:, 0], torch.cat([zeros, weighted], dim=1))
    torch.testing.assert_close(found[:, 1], torch.cat([weighted, zeros], dim=1))


def test_the_merge_is_a_convolution_along_the_candidates_alone() -> None:
    made, pairs, weights = merge(), torch.rand(2, K, WIDTH), torch.rand(2, K)
    kernel, offset = made.convolution.weight[:, 0, :, 0], made.convolution.bias  # (channels, kernel)
    padded = torch.nn.functional.pad(pairs * weights[:, :, None], (0, 0, KERNEL - 1, KERNEL - 1))
    windows = padded.unfold(1, KERNEL, 1)  # (B, K + kernel - 1, l, kernel)
    found = torch.relu(torch.einsum("brlk,ck->bcrl", windows, kernel) + offset[None, :, None, None])
    torch.testing.assert_close(made(pairs, weights), made.output(found.flatten(1)))


def test_dropout_stands_before_and_after_hidden_layers() -> None:
    made = ConvolutionMerge(
        K, WIDTH, channels=CHANNELS, kernel=KERNEL, sizes=(6,), outputs=1, options=LayerOptions(dropout=0.5)
    )
    assert [type(layer).__name__ for layer in made.modules()].count("Dropout") == 2


@pytest.mark.parametrize(("method", "layers"), [("fedsim", 3 + 2), ("mean", 3)])
def test_each_hidden_layer_has_dropout_and_not_only_the_merge(small: Linked, method: str, layers: int) -> None:
    """The named deviation from the paper's code: of the local network and both bottoms, one hidden layer each, too."""
    train = small.model_copy(update={"method": method, "active_bottom": (16, 8)})
    networks: list[Any] = [ActiveNetwork(train, InputSchema(2, ()), np.ones((1, K), np.float32))]
    networks.append(LinearCut(InputSchema(2, ()), train.bottom, train))
    assert sum(type(layer).__name__ == "Dropout" for network in networks for layer in network.modules()) == layers


def test_masks_of_each_place_would_hide_equal_records_in_training_and_not_at_rest(small: Linked) -> None:
    bottom = LinearCut(InputSchema(2, ()), small.bottom, small.model_copy(update={"dropout": 0.3}))
    initialise(bottom, Randomness(bytes(32)))
    for layer in bottom.modules():
        if isinstance(layer, Dropout):
            layer.draw_from(Randomness(bytes(32)))
    twice = ModelInput(torch.ones(2, 2), torch.zeros(2, 0, dtype=torch.int64))
    assert not torch.equal(*bottom.train()(twice))
    assert torch.equal(*bottom.eval()(twice))


def test_candidates_in_any_order_give_the_same_prediction(small: Linked) -> None:
    network = ActiveNetwork(small, InputSchema(1, ()), np.ones((1, K), np.float32)).eval()
    initialise(network, Randomness(bytes(32)))
    own = ModelInput(torch.ones(3, 1), torch.zeros(3, 0, dtype=torch.int64))
    received, index, similarities = torch.randn(9, small.bottom[-1]), torch.randint(0, 9, (3, K)), torch.randn(3, K)
    given = network(own, received, index, similarities)
    torch.testing.assert_close(network(own, received, index.flip(1), similarities.flip(1)), given)
    assert not torch.allclose(network(own, received, index, similarities.flip(1)), given)


def test_the_largest_similarity_comes_last_and_equal_ones_keep_their_order() -> None:
    similarities = torch.tensor([[0.5, -1.0, 2.0, -1.0]])
    sorted_, index = sort_gate(similarities, torch.tensor([[10, 11, 12, 13]]))
    assert sorted_.tolist() == [[-1.0, -1.0, 0.5, 2.0]]
    assert index.tolist() == [[11, 13, 10, 12]]


def test_a_weight_is_a_sigmoid_of_ten_units_above_a_floor() -> None:
    gate = WeightGate(10)
    initialise(gate, Randomness(bytes(32)))
    assert [tuple(of.shape) for of in gate.parameters()] == [(10, 1), (10,), (1, 10), (1,)]
    scaled = torch.linspace(-1e4, 1e4, 12).view(3, 4)
    weights = gate(scaled)
    assert weights.shape == scaled.shape
    assert (weights > 0).all()
    assert (weights <= 1 + FLOOR).all()
    torch.nn.init.constant_(gate.output.bias, -1e4)
    torch.nn.init.zeros_(gate.output.weight)
    assert gate(scaled).unique().tolist() == pytest.approx([FLOOR])


def test_a_weighted_mean_divides_by_the_weights() -> None:
    pairs, weights = torch.tensor([[[1.0], [4.0]]]), torch.tensor([[1.0, 3.0]])
    assert WeightedMean()(pairs, weights).tolist() == [[(1 + 12) / 4]]


def test_similarities_are_scaled_by_those_of_real_candidates() -> None:
    similarities = np.array([[1.0, 3.0, 0.0], [5.0, 0.0, 0.0]], np.float32)
    scale = SimilarityScale(similarities)
    known = np.array([1.0, 3.0, 5.0])
    expected = (similarities - known.mean()) / known.std()  # a missing one is 0 before it is scaled
    torch.testing.assert_close(scale(torch.from_numpy(similarities)).numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("value", [0.0, 2.5])
def test_similarities_that_are_all_equal_are_scaled_to_numbers(value: float) -> None:
    similarities = np.full((4, 2), value, np.float32)
    assert SimilarityScale(similarities)(torch.from_numpy(similarities)).tolist() == [[0.0, 0.0]] * 4


def test_the_nearest_is_no_missing_candidate() -> None:
    assert find_nearest(torch.tensor([[-2.0, 0.0, -1.0], [0.0, 0.0, 0.0], [0.0, 3.0, 1.0]])).tolist() == [[2], [0], [1]]
