"""How a job ends at one node: who decides that, and in which state a failure leaves it.

Until this party's part is stored any party can end the job. Afterwards the active one decides alone, until all are known to
have stored theirs (:mod:`vfl_node.execution.finish`): so either the job is done at all parties, or at none. Whatever another
party says or sends to one that waits for the active one's word only means that it is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from vfl_node.errors import Cancelled, Paused, PeerError, PeerLost, ProtocolError, VflError
from vfl_node.execution.live import Stop
from vfl_node.execution.outcome import JobOutcome
from vfl_node.node.faults import JOB_DONE, RESUMABLE, explain
from vfl_node.node.states import State

log = structlog.get_logger()


class Ending:
    """The end of one job.

    Args:
        active: the job's active party.
        own: this party.
        outcome: what the job has left here so far.
        stop: ends the work on the job.

    Attributes:
        decides: whether this is the active party.
    """

    def __init__(self, active: str, own: str, outcome: JobOutcome, stop: Stop) -> None:
        self.decides = own == active
        self._active, self._outcome, self._stop = active, outcome, stop

    @property
    def bound(self) -> bool:
        """Whether only the active party's word ends the job here: this one's part is stored."""
        return self._outcome.sealed and not self.decides

    def end_with(self, error: VflError) -> bool:
        """End the job with ``error``, if this party may still decide that; returns whether it may."""
        in_time = self._outcome.end_with(error, decides=self.decides)
        if in_time:
            self._stop.ask(error)
        return in_time

    def hear(self, peer: str, error: VflError) -> bool:
        """``peer`` says that the job has ended with ``error``; returns whether it ends here."""
        if peer == self._active:
            self._stop.ask(error)
            return True
        return self.end_with(error)

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """A context that may end a job only with what may end it here; anything else is a loss, from which it goes on."""
        try:
            yield
        except Exception as cause:
            error = explain(cause)
            if isinstance(error, Paused) or not self._is_undecided(error):
                raise
            if error.code == VflError.default_code:
                log.exception("internal error", job=self._outcome.path.name)
            raise PeerLost(error.message, hint=error.hint, for_peer=error.for_peer) from None

    def judge(self, failure: VflError) -> tuple[State, VflError | None]:
        """The state of a job whose run broke off with ``failure``, and the error to show.

        A wish to end it goes first, and one to pause it for a cause of its own, which often is what broke it off.
        """
        outcome, wish = self._outcome, self._stop.wish
        if wish and not isinstance(wish, Paused):
            failure = wish
        if outcome.confirmed or (failure.code == JOB_DONE and outcome.whole):
            return "done", None
        if wish and wish.code != Paused.default_code:
            failure = wish
        if isinstance(failure, Paused):
            return "paused", failure if failure.code != Paused.default_code else None
        if failure.code == Cancelled.default_code:
            return "cancelled", failure
        if self._is_undecided(failure) or (isinstance(failure, PeerLost) and outcome.sealed):
            text = f"this party's part is stored, and it is not known whether all others have stored theirs: {failure.message}"
            hint = failure.hint or "it goes on when the others are back, or by vfl-node resume JOB"
            hint = f"/health says under peers what keeps one away now, such as another version; {hint}"
            return "unconfirmed", PeerLost(text, code="E_UNCONFIRMED", hint=hint)
        return "failed", failure

    def _is_undecided(self, error: VflError) -> bool:
        """Whether ``error`` would end for good a job of which this party has stored its part, and may not end it.

        Of others only the active party may; an error of this party's own, such as a table that is gone, is no reason any more.
        """
        others = isinstance(error, PeerError | ProtocolError)
        final = error.code not in RESUMABLE and error is not self._stop.wish
        return self._outcome.sealed and final and not (others and self.decides)
