"""What two data parties send each other in an iteration, checked on receipt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vfl_node.crypto.paillier import ciphertexts as homomorphic
from vfl_node.crypto.paillier.keys import Ciphertexts, PublicKey
from vfl_node.errors import ProtocolError
from vfl_node.process import failpoints
from vfl_node.training.glm.side import Floats
from vfl_node.transport import codec
from vfl_node.transport.channel import Channel
from vfl_node.transport.generated.vfl.v1 import training_pb2


async def send_scores(channel: Channel, step: int, scores: Floats) -> None:
    """Send linear scores float64[B, K] in clear."""
    failpoints.reach("forward")
    await channel.send(training_pb2.Scores(step=step, tensor=codec.encode(torch.from_numpy(scores))))


async def receive_scores(channel: Channel, step: int, rows: int, outputs: int) -> Floats:
    """Linear scores float64[rows, outputs].

    Raises:
        ProtocolError: another step (``E_ORDER``), shape (``E_SHAPE``), or values that are not finite (``E_NAN``).
    """
    message = await channel.receive(training_pb2.Scores)
    _check(channel, message.step, step)
    with _name_peer(channel):
        return codec.decode(message.tensor, dtype=torch.float64, shape=(rows, outputs)).numpy()


async def send_encrypted(channel: Channel, step: int, tensor: str, ciphertexts: Ciphertexts) -> None:
    """Send a column of ciphertexts."""
    failpoints.reach("residual")
    await channel.send(training_pb2.Encrypted(step=step, tensor=tensor))
    await channel.send_rows(ciphertexts, count=len(ciphertexts), width=ciphertexts.shape[1])


async def receive_encrypted(channel: Channel, step: int, tensor: str, count: int, public: PublicKey) -> Ciphertexts:
    """A column of ``count`` ciphertexts.

    Raises:
        ProtocolError: another step or tensor (``E_ORDER``), count (``E_COUNT``), or bytes that are no ciphertext of this
            key (``E_CIPHERTEXT``).
    """
    message = await channel.receive(training_pb2.Encrypted)
    _check(channel, message.step, step)
    if message.tensor != tensor:
        raise ProtocolError(f"{channel.peer} sent other ciphertexts than the {tensor} that were due", code="E_ORDER")
    ciphertexts = await channel.receive_rows(width=public.width, count=count)
    check_ciphertexts(channel, public, ciphertexts)
    return ciphertexts


def check_ciphertexts(channel: Channel, public: PublicKey, ciphertexts: Ciphertexts) -> None:
    """Refuse rows from the peer that are not ciphertexts. Raises ProtocolError (``E_CIPHERTEXT``), which names the peer."""
    with _name_peer(channel):
        homomorphic.check(public, ciphertexts)


async def send_end(channel: Channel, step: int, *, last: bool) -> None:
    """Say that an iteration is over, and whether it was the last."""
    await channel.send(training_pb2.IterationEnd(step=step, last=last))


async def receive_end(channel: Channel, step: int) -> bool:
    """Whether iteration ``step``, which is over, was the last. Raises ProtocolError (``E_ORDER``)."""
    message = await channel.receive(training_pb2.IterationEnd)
    _check(channel, message.step, step)
    return message.last


@contextmanager
def _name_peer(channel: Channel) -> Iterator[None]:
    """Name the peer in errors about what it sent."""
    try:
        yield
    except ProtocolError as error:
        raise ProtocolError(f"from {channel.peer}: {error.message}", code=error.code, hint=error.hint) from None


def _check(channel: Channel, step: int, expected: int) -> None:
    if step != expected:
        raise ProtocolError(f"{channel.peer} sent iteration {step} where {expected} was due", code="E_ORDER")
