"""Tensors there and back, and what a hostile peer may send instead."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import ProtocolError
from vfl_node.transport.codec import MOST, decode, encode
from vfl_node.transport.generated.vfl.v1 import training_pb2

DTYPES = [torch.float32, torch.float64, torch.int64, torch.bfloat16]


@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 5), max_size=4),
    seed=st.binary(min_size=32, max_size=32),
)
def test_round_trip(dtype: torch.dtype, shape: list[int], seed: bytes) -> None:
    tensor = (torch.from_numpy(Randomness(seed).normal(tuple(shape))).double() * 1e6).to(dtype)
    message = training_pb2.Tensor.FromString(encode(tensor).SerializeToString())
    found = decode(message, dtype=dtype, shape=shape)
    assert found.dtype == dtype
    assert torch.equal(found, tensor)


def test_layout_on_the_wire() -> None:
    message = encode(torch.tensor([[1.0, -2.0]]))
    assert (message.dtype, list(message.shape), message.data.hex()) == ("float32", [1, 2], "0000803f000000c0")
    assert encode(torch.tensor([1], dtype=torch.int64)).data.hex() == "0100000000000000"
    assert encode(torch.tensor([1.0], dtype=torch.bfloat16)).data.hex() == "803f"


def test_views_and_gradients_travel_by_value() -> None:
    weights = torch.arange(6.0).reshape(2, 3).requires_grad_()
    assert decode(encode(weights.T), dtype=torch.float32, shape=(3, 2)).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_the_result_is_writable_and_independent() -> None:
    message = encode(torch.zeros(3))
    found = decode(message, dtype=torch.float32, shape=(3,))
    found += 1
    assert decode(message, dtype=torch.float32, shape=(3,)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "message",
    [
        training_pb2.Tensor(dtype="float64", shape=[2], data=bytes(16)),
        training_pb2.Tensor(dtype="float32", shape=[1, 2], data=bytes(8)),
        training_pb2.Tensor(dtype="float32", shape=[3], data=bytes(12)),
        training_pb2.Tensor(dtype="float32", shape=[], data=bytes(4)),
        training_pb2.Tensor(dtype="float32", shape=[10**12], data=bytes(8)),
        training_pb2.Tensor(dtype="float32", shape=[2**32, 2**32], data=b""),
        training_pb2.Tensor(dtype="float32", shape=[2], data=bytes(7)),
        training_pb2.Tensor(dtype="float32", shape=[2], data=bytes(9)),
        training_pb2.Tensor(dtype="float32", shape=[2], data=b""),
        training_pb2.Tensor(dtype="object", shape=[2], data=bytes(8)),
        training_pb2.Tensor(),
    ],
)
def test_another_shape_is_refused(message: training_pb2.Tensor) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(message, dtype=torch.float32, shape=(2,))
    assert caught.value.code == "E_SHAPE"


def test_a_shape_bomb_takes_no_memory() -> None:
    """Even where the caller itself expects 4 TB, the payload is checked before anything is allocated."""
    message = training_pb2.Tensor(dtype="float32", shape=[10**12], data=b"1234")
    with pytest.raises(ProtocolError, match="4000000000000 were expected"):
        decode(message, dtype=torch.float32, shape=(10**12,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1.1 * MOST, -1e38])
def test_values_that_are_not_finite_are_refused(dtype: torch.dtype, value: float) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(encode(torch.tensor([0.0, value], dtype=dtype)), dtype=dtype, shape=(2,))
    assert caught.value.code == "E_NAN"


def test_other_kinds_of_tensor_do_not_travel() -> None:
    with pytest.raises(TypeError, match="float16"):
        encode(torch.zeros(2, dtype=torch.float16))
