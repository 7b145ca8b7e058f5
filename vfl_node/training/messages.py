"""What a party checks of a tensor that it receives, by whichever trainer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vfl_node.errors import ProtocolError
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2


def check_step(channel: Channel, step: int, expected: int) -> None:
    """Refuse a message of another step than ``expected``. Raises ProtocolError (``E_ORDER``)."""
    if step != expected:
        raise ProtocolError(f"{channel.peer} sent step {step} where step {expected} was due", code="E_ORDER")


def received(
    channel: Channel, tensor: training_pb2.Tensor, shape: Sequence[int], *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The tensor of ``shape`` in a message; raises as :func:`~vfl_node.transport.codec.decode` and names the peer."""
    try:
        return codec.decode(tensor, dtype=dtype, shape=shape)
    except ProtocolError as error:
        raise ProtocolError(f"{channel.peer} sent {error.message}", code=error.code) from None
