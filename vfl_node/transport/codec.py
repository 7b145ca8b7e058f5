"""Tensors as messages: raw little-endian bytes in C order, checked against what was expected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vfl_node.errors import ProtocolError
from vfl_node.transport.fields import Buffer, append_head, last_field
from vfl_node.transport.generated.vfl.v1 import training_pb2

MOST = 1e15
"""The largest size of a value that is sent or let in.

Inputs of a model are standardised and clipped, so a value of this size means that training has diverged, or that a peer wants
it to. Up to here the squares of 10⁸ values have a sum that float32 can hold (10³⁸): norms, distances and products of rows are
finite, so that neither a step nor an attack of the audit meets an infinity that a peer has made.
"""

_WIRE = {
    dtype: np.dtype(layout)
    for dtype, layout in (
        (torch.int32, "<i4"),
        (torch.float32, "<f4"),
        (torch.float64, "<f8"),
        (torch.int64, "<i8"),
        (torch.bfloat16, "<i2"),
    )
}
"""dtype → layout on the wire; bfloat16, which numpy does not have, is sent as 16-bit patterns."""

_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in _WIRE}


def encode(tensor: torch.Tensor, into: training_pb2.Tensor | None = None) -> training_pb2.Tensor:
    """A tensor of any device as a message.

    Args:
        tensor: float32, float64, int32, int64 or bfloat16, any shape.
        into: an empty message to fill, a field of a larger message; a new message would be copied into it.
    """
    message = training_pb2.Tensor() if into is None else into
    message.data = _values(tensor).tobytes()
    message.dtype = _NAMES[tensor.dtype]
    message.shape.extend(tensor.shape)
    return message


def encode_parts(tensor: torch.Tensor) -> tuple[bytes, memoryview]:
    """The bytes of a tensor's message: the beginning, and the values, which are not copied. The tensor is not empty."""
    data = _values(tensor).reshape(-1).view(np.uint8).data
    described = training_pb2.Tensor(dtype=_NAMES[tensor.dtype], shape=tensor.shape)
    return append_head(described, training_pb2.Tensor.DATA_FIELD_NUMBER, len(data)), data


@dataclass(frozen=True)
class Described:
    """A tensor's message whose values are where they arrived; attributes as of a ``Tensor``."""

    dtype: str
    shape: Sequence[int]
    data: Buffer


def parse_tensor(value: Buffer) -> Described | training_pb2.Tensor:
    """The message in the bytes ``value``, whose bounds were checked. Raises DecodeError: it is none."""
    place = last_field(value, training_pb2.Tensor.DATA_FIELD_NUMBER)
    if place is None:
        return training_pb2.Tensor.FromString(bytes(value))
    end, start = place
    head = training_pb2.Tensor.FromString(bytes(value[:end]))
    return Described(head.dtype, head.shape, value[start:])


def is_usable(tensor: torch.Tensor) -> bool:
    """Whether all values are finite, and none is larger than :data:`MOST`."""
    if not tensor.numel():
        return True
    if tensor.numel() == 1:
        return abs(tensor.item()) <= MOST
    low, high = torch.aminmax(tensor)
    return low.item() >= -MOST and high.item() <= MOST  # NaN is neither


def decode(message: training_pb2.Tensor | Described, *, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The tensor in a peer's message, on the CPU and writable; it uses the memory of a long message, if that is writable.

    Args:
        message: as received.
        dtype: the required dtype.
        shape: the required shape, every dimension.

    Raises:
        ProtocolError: another dtype or shape, or a payload of another length (``E_SHAPE``; raised
            before any memory is taken), or a value that is not finite or larger than :data:`MOST` (``E_NAN``).
    """
    if message.dtype != _NAMES[dtype] or list(message.shape) != list(shape):
        received = f"{message.dtype[:20]}{list(message.shape[:8])}"
        raise ProtocolError(f"a tensor {received} where {_words(dtype, shape)} was expected", code="E_SHAPE")
    expected_bytes = math.prod(shape) * dtype.itemsize
    data = message.data  # once: each access to a field of a message makes a copy
    if len(data) != expected_bytes:
        raise ProtocolError(
            f"a tensor {_words(dtype, shape)} with {len(data)} bytes of data where {expected_bytes} were expected",
            code="E_SHAPE",
        )
    values = np.frombuffer(data, dtype=_WIRE[dtype])
    in_place = values.flags.writeable and values.flags.aligned
    tensor = torch.from_numpy(values.astype(_WIRE[dtype].newbyteorder("="), copy=not in_place).reshape(shape))
    if dtype == torch.bfloat16:
        tensor = tensor.view(torch.bfloat16)
    if dtype.is_floating_point and not is_usable(tensor):
        raise ProtocolError(
            f"a tensor {_words(dtype, shape)} with values that are not finite, or beyond ±{MOST:.0e}", code="E_NAN"
        )
    return tensor


def _values(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.dtype not in _WIRE:
        raise TypeError(f"tensors of {tensor.dtype} do not travel")
    plain = tensor.detach().contiguous().view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    return np.ascontiguousarray(plain.numpy(force=True), dtype=_WIRE[tensor.dtype])


def _words(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{_NAMES[dtype]}{list(shape)}"
