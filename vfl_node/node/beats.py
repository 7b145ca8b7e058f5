"""What a node says with each beat of a link: whether the jobs with that peer have got on since the last one, and no more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from vfl_node.node.peer_state import PeerState
from vfl_node.node.pulse import Pulse
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat


class Beats:
    """The beats of one node. Safe to use from several threads.

    Args:
        states: of its peers.
        lock: guards them.
        steps: gives, for each job under way in which a peer takes part, a number that changes whenever it makes progress here.
        relays: whether others wait for each other through this node, as through an active one.
    """

    def __init__(
        self,
        states: Mapping[str, PeerState],
        lock: threading.Condition,
        *,
        steps: Callable[[str], Mapping[str, int]],
        relays: bool,
    ) -> None:
        self._states, self._lock, self._steps, self._relays = states, lock, steps, relays
        self._pulse = Pulse()

    def next(self, peer: str) -> Beat:
        """What to tell ``peer`` now. It is one bit, so a beat does not tell how much there is to do."""
        with self._lock:
            state, now = self._states[peer], self._position(peer)
            before, state.told = state.told, now
        return Beat(progressed=before not in (None, now))

    def _position(self, peer: str) -> object:
        """What changes while this node computes, makes progress with a job of ``peer``, sends or receives for one.

        An active node has others wait for each other that have no conversation, so there it changes, too, while another party
        of such a job makes progress.
        """
        steps = self._steps(peer)
        pieces = [pipe.pieces for state in self._states.values() for pipe, job in state.pipes.items() if job in steps]
        others = [state for name, state in self._states.items() if self._relays and name != peer]
        moves = [state.moves for state in others if not steps.keys().isdisjoint(state.pipes.values())]
        return bool(steps) and self._pulse.spells(), sum(steps.values()), sum(pieces), sum(moves)
