"""What joins a half of the network to the training without labels that a method of ``train.unaligned`` puts before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import numpy as np
from torch import Tensor, nn

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.models import architecture_of
from vfl_node.privacy.defences.defence import Leaving
from vfl_node.privacy.outgoing import Exit
from vfl_node.process import failpoints
from vfl_node.session.session import Session
from vfl_node.training.messages import check_step, decode_tensor
from vfl_node.training.network.half import NO_ROWS, Positions
from vfl_node.training.network.learner import Learner
from vfl_node.training.network.local import check_finite
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.split.config import Train
from vfl_node.training.split.conversations import Conversations
from vfl_node.training.unaligned.pretraining import PretrainedHalf, Pretraining, pretraining_of
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2


def unshared_rows(train: Train, alignment: Alignment, records: int) -> Positions:
    """Rows of a passive party's table of ``records`` that no peer has, ascending; none unless a method pretrains."""
    if not train.unaligned.epochs_before:
        return NO_ROWS
    return np.setdiff1d(np.arange(records), alignment.rows[alignment.owned]).astype(np.int64)


def make_pretraining(
    session: Session,
    alignment: Alignment,
    bottom: nn.Module | None,
    inputs: PositionedInput,
    training: Positions,
    outside: Positions,
    meeting: PretrainingMeeting,
    randomness: Randomness,
    repeat: int,
) -> Pretraining | None:
    """What this party does in this repeat before the training with labels.

    Args:
        session: whom it meets.
        alignment: its view of the shared rows.
        bottom: the network that is pretrained, on the device.
        inputs: its columns, encoded.
        training: shared positions trained on; it owns all of them.
        outside: rows of its table that are learnt from, too.
        meeting: its side of the messages.
        randomness: its own.
        repeat: number of the repeat.
    """
    train = Train.section_of(session.job)
    method = train.unaligned
    if not method.epochs_before:
        return None
    assert bottom is not None
    architecture = architecture_of(train.model, session.policy.models)
    own = np.concatenate([alignment.rows[training][alignment.owned[training]], outside])
    active = session.role == "active"
    theirs = architecture.cut_width(train.bottom, train.outputs)
    widths = architecture.cut_width(train.active_bottom, train.outputs) if active else theirs, theirs

    def learner(model: nn.Module, private: Randomness) -> Learner:
        return Learner(model, train, private, architecture.version)

    half = PretrainedHalf(
        active=active,
        bottom=bottom,
        widths=widths,
        shared=inputs.take,
        own=inputs.select(own).take,
        rows=len(own),
        outside=len(outside),
        batch_size=train.batch_size,
        exchange=meeting,
        training=learner,
        randomness=randomness.derive(f"pretraining/{repeat}"),
        device=session.machine.device,
        clock=session.machine.clock,
        finite=check_finite,
    )
    return pretraining_of(method, half)


class PretrainingMeeting:
    """One party's side of the messages before the training with labels.

    Args:
        session: whom it meets.
        projections: where projections leave.
        learn: the passive party's: send an embedding and learn by the gradient.
        conversations: the active party's.
    """

    def __init__(
        self,
        session: Session,
        projections: Exit,
        *,
        learn: Callable[[int, Positions], Awaitable[None]] | None = None,
        conversations: Conversations | None = None,
    ) -> None:
        self._channel, self._device = next(iter(session.data_peers.values())), session.machine.device
        self._first = session.role == "passive"
        self._projections, self._learn, self._conversations = projections, learn, conversations

    async def meet(self, number: int, positions: Positions, answer: Callable[[Tensor], Tensor] | None = None) -> None:
        """As :meth:`~vfl_node.training.unaligned.pretraining.PretrainingExchange.meet`."""
        if self._learn is not None:
            await self._learn(number, positions)
            return
        assert self._conversations is not None
        assert answer is not None
        (embedding,) = await self._conversations.embeddings(number, positions)
        await self._conversations.answer(number, check_finite(answer(embedding)))

    async def swap(self, number: int, positions: Positions, own: Tensor) -> Tensor:
        """As :meth:`~vfl_node.training.unaligned.pretraining.PretrainingExchange.swap`."""
        sent = self._projections.step(own, Leaving(f"step/{number}", positions))
        if self._first:
            await self._send(number, sent)
        message = await self._channel.receive(training_pb2.Projection)
        check_step(self._channel, message.step, number)
        theirs = decode_tensor(self._channel, message.tensor, tuple(own.shape)).to(self._device)
        if not self._first:
            await self._send(number, sent)
        self._projections.step_done(theirs)
        return theirs

    def tensors(self) -> dict[str, Tensor]:
        """As :meth:`~vfl_node.training.unaligned.pretraining.PretrainingExchange.tensors`: of the defences."""
        return self._projections.state()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As :meth:`~vfl_node.training.unaligned.pretraining.PretrainingExchange.restore`."""
        self._projections.restore(tensors)

    async def _send(self, number: int, projection: Tensor) -> None:
        failpoints.reach("projection")
        message = training_pb2.Projection(step=number)
        codec.encode(check_finite(projection), message.tensor)
        await self._channel.send(message)
