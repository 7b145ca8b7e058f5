"""What a party checks of a tensor that it receives, by whichever trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from vfl_node.errors import ProtocolError
from vfl_node.transport import codec
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
        await channel.send_with(message, number, *codec.in_parts(tensor))


async def receive_tensor(channel: Channel, kind: type[M]) -> tuple[M, training_pb2.Tensor | codec.Described]:
    """The next message, of a type whose last field is ``tensor``, and that tensor's message; a long one is not copied.

    Raises:
        VflError: as :meth:`~vfl_node.transport.channel.Channel.receive`.
    """
    message, value = await channel.receive_apart(kind, kind.DESCRIPTOR.fields_by_name["tensor"].number)
    if value is None:
        return message, message.tensor
    try:
        return message, codec.described(value)
    except DecodeError:
        raise ProtocolError(f"{channel.peer} sent a tensor that cannot be parsed") from None


def received(
    channel: Channel, tensor: training_pb2.Tensor | codec.Described, shape: Sequence[int], *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The tensor of ``shape`` in a message; raises as :func:`~vfl_node.transport.codec.decode` and names the peer."""
    try:
        return codec.decode(tensor, dtype=dtype, shape=shape)
    except ProtocolError as error:
        raise ProtocolError(f"{channel.peer} sent {error.message}", code=error.code) from None
