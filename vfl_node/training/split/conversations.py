"""The active party's conversations with the passive ones in one repeat: embeddings come in, gradients go out.

Every passive party sends its embedding without waiting for another one, so that all of them compute at once; the active party
takes them in the order of the job. Gradients leave by a way out of their own for each peer: what the defences draw for one peer
must not be what they draw for another, or two peers could subtract what protects the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.models import cut_width
from vfl_node.models.storage import join_parts, split_parts
from vfl_node.privacy.defences.defence import Leaving, Sender
from vfl_node.privacy.peers import AuditOfPeers
from vfl_node.session.session import Session
from vfl_node.training.messages import check_step, decode_tensor, receive_tensor, send_tensor
from vfl_node.training.network.half import Positions, way_out
from vfl_node.training.network.local import check_finite
from vfl_node.training.split.config import Train
from vfl_node.transport.generated.vfl.v1 import training_pb2


class Conversations:
    """With each passive party, in the order of the job.

    Args:
        session: the active party's.
        sender: its half, of which the gradients are.
        draws: as for :func:`~vfl_node.training.network.half.way_out`.
        repeat: number of the repeat.
        audit: its attacks on what is sent.

    Attributes:
        widths: of the embedding of each.
        exits: where the gradients for each leave.
        sent: gradients that left in the newest step, float32[B, d] for each.
    """

    def __init__(self, session: Session, sender: Sender, draws: Randomness, repeat: int, audit: AuditOfPeers) -> None:
        self._channels, self._device = session.data_peers, session.machine.device
        self.widths = [cut_width(Train.section_of(session.job))] * len(self._channels)
        several = len(self._channels) > 1
        self.exits = {
            peer: way_out(session, sender, draws.derive(f"to {peer}") if several else draws, repeat, audit.peer_audit(peer))
            for peer in self._channels
        }
        self.sent: list[Tensor] = []

    async def embeddings(self, number: int, positions: Positions) -> list[Tensor]:
        """Embeddings of step ``number``, of the rows at ``positions``: float32[B, d] of each passive party.

        Raises:
            ProtocolError: one of them, whom it names, sent another step (``E_ORDER``) or shape (``E_SHAPE``), or a value that
                is not finite or too large (``E_NAN``).
        """
        embeddings = []
        for channel, width in zip(self._channels.values(), self.widths, strict=True):
            message, tensor = await receive_tensor(channel, training_pb2.Embedding)
            check_step(channel, message.step, number)
            embeddings.append(decode_tensor(channel, tensor, (len(positions), width)).to(self._device))
        return embeddings

    async def send(self, number: int, gradients: Sequence[Tensor], leaving: Leaving) -> None:
        """Send to each passive party its gradient of step ``number``, float32[B, d], as the defences leave it.

        Raises:
            DataError: training has diverged (``E_DIVERGED``).
        """
        ways = self.exits.values()
        self.sent = [way.step(check_finite(gradient), leaving) for way, gradient in zip(ways, gradients, strict=True)]
        for channel, way, gradient in zip(self._channels.values(), ways, self.sent, strict=True):
            left = check_finite(gradient) if way.defends else gradient
            await send_tensor(channel, training_pb2.Gradient(step=number), left)

    async def answer(self, number: int, gradient: Tensor) -> None:
        """Send the only passive party a gradient of step ``number``, float32[B, d], that depends on no label: undefended."""
        (channel,) = self._channels.values()
        await send_tensor(channel, training_pb2.Gradient(step=number), gradient)

    def step_done(self) -> None:
        """Show the observers what left in this step."""
        for way in self.exits.values():
            way.step_done()

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold of the defences."""
        return join_parts({peer: way.state() for peer, way in self.exits.items()})

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`state` gave."""
        for peer, of_peer in split_parts(state, self.exits).items():
            self.exits[peer].restore(of_peer)
