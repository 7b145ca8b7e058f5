"""The hours in which the policy lets a job begin."""

from __future__ import annotations

from collections.abc import Callable

from vfl_node.errors import PeerError
from vfl_node.execution.live import Stop
from vfl_node.job import Job
from vfl_node.node.others import Others
from vfl_node.node.turns import Turn
from vfl_node.progress import HoursAwaited, Progress
from vfl_node.settings.node import Settings
from vfl_node.trust.manifest import VALID_DAYS

LOOK_S = 1.0
"""How often a job that waits looks whether it may begin, or is cancelled."""


class Hours:
    """Whether a job may begin now. Once it has begun, it goes on at any hour.

    Args:
        settings: of this node.
        job: the job.
        others: its other parties.
    """

    def __init__(self, settings: Settings, job: Job, others: Others) -> None:
        self._settings, self._others = settings, others
        self._partners = job.parties.others(settings.name)

    @property
    def closed(self) -> bool:
        """Whether the policy does not let it begin at this hour."""
        return not self._others.begun and not self._settings.rules.is_open(self._partners)

    def await_open(self, turn: Turn, stop: Stop, progress: Progress, on_wait: Callable[[], object]) -> None:
        """Wait until the policy lets the job begin.

        Args:
            turn: of the job, which wants no place meanwhile.
            stop: the owner's wish.
            progress: follows the job.
            on_wait: called again and again meanwhile.

        Raises:
            PeerError: its consents end before (``E_CONSENT``).
            VflError: the owner wants it to end.
        """
        with turn.held_back():
            while self.closed:
                progress.emit(HoursAwaited())
                if self._others.consents.expired:
                    text = f"the job has not begun within {VALID_DAYS} days"
                    hint = "look at the hours of both parties' policies, then submit it again"
                    raise PeerError(text, code="E_CONSENT", hint=hint, for_peer=text)
                stop.wait(LOOK_S)
                on_wait()
