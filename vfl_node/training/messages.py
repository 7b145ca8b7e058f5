"""Messages with tensors, by whichever trainer: whether a batch fits into one, and what a party checks of what it receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from vfl_node.errors import ProtocolError, UsageError
from vfl_node.transport import codec
from vfl_node.transport.bounds import MAX_FRAME_BYTES
from vfl_node.transport.channel import Channel
from vfl_node.transport.frames import LONG_BYTES
from vfl_node.transport.generated.vfl.v1 import training_pb2

Message = training_pb2.Embedding | training_pb2.Gradient
M = TypeVar("M", training_pb2.Embedding, training_pb2.Gradient)


def check_step(channel: Channel, step: int, expected: int) -> None:
    """Refuse a message of another step than ``expected``. Raises ProtocolError (``E_ORDER``)."""
    if step != expected:
        raise ProtocolError(f"{channel.peer} sent step {step} where step {expected} was due", code="E_ORDER")


async def send_tensor(channel: Channel, message: Message, tensor: Tensor) -> None:
    """Send ``message``, of a type whose last field is ``tensor`` and empty yet, with a tensor; no message copies a long one."""
    number = message.DESCRIPTOR.fields_by_name["tensor"].number
    if tensor.nbytes < LONG_BYTES:
        codec.encode(tensor, message.tensor)
        await channel.send(message)
    else:
        await channel.send_with(message, number, *codec.encode_parts(tensor))


async def receive_tensor(channel: Channel, kind: type[M]) -> tuple[M, training_pb2.Tensor | codec.Described]:
    """The next message, of a type whose last field is ``tensor``, and that tensor's message; a long one is not copied.

    Raises:
        VflError: as :meth:`~vfl_node.transport.channel.Channel.receive`.
    """
    message, value = await channel.receive_apart(kind, kind.DESCRIPTOR.fields_by_name["tensor"].number)
    if value is None:
        return message, message.tensor
    try:
        return message, codec.parse_tensor(value)
    except DecodeError:
        raise ProtocolError(f"{channel.peer} sent a tensor that cannot be parsed") from None


def decode_tensor(
    channel: Channel, tensor: training_pb2.Tensor | codec.Described, shape: Sequence[int], *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The tensor of ``shape`` in a message; raises as :func:`~vfl_node.transport.codec.decode` and names the peer."""
    try:
        return codec.decode(tensor, dtype=dtype, shape=shape)
    except ProtocolError as error:
        raise ProtocolError(f"{channel.peer} sent {error.message}", code=error.code) from None


FRAME_HEAD_BYTES = 1 << 10
"""More than a frame has beside the values of its tensors."""


def check_batch_fits(rows: int, row_bytes: int, *, cause: str, setting: str = "train.batch_size", narrower: str) -> None:
    """Refuse, before anything is trained, batches of ``rows`` rows that one message cannot hold.

    Args:
        rows: of a batch.
        row_bytes: that each has in the message.
        cause: what makes a row as large, for errors: "at a cut layer of width 128".
        setting: the job's key that sets ``rows``, for errors.
        narrower: what else makes a message smaller, for errors.

    Raises:
        UsageError: they are too large (``E_SIZE``).
    """
    most = (MAX_FRAME_BYTES - FRAME_HEAD_BYTES) // row_bytes
    if rows > most:
        raise UsageError(
            f"a batch of {rows} rows {cause} has {row_bytes * rows} bytes, more than one message "
            f"may have ({MAX_FRAME_BYTES}); at most {most} rows fit",
            code="E_SIZE",
            hint=f"set {setting} to at most {most}, or {narrower}",
            for_peer="the job's batches are too large for one message",
        )
