"""A node renews its certificate by itself, if the key of its own authority lies beside it, and follows up a new authority."""

from __future__ import annotations

from datetime import datetime, timedelta

import structlog

from vfl_node.errors import UsageError
from vfl_node.settings.node import Settings
from vfl_node.trust.keys import is_due, renew
from vfl_node.trust.succession import follow_up

log = structlog.get_logger()

TRIED_EVERY = timedelta(hours=6)
"""How often it is tried where it fails."""


class Renewal:
    """When the certificate of one node was last tried to be renewed.

    Args:
        settings: of the node.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tried: datetime | None = None

    def renew_if_due(self, until: datetime, now: datetime) -> None:
        """Renew the certificate that holds ``until`` then, where it ends soon; the log says why that fails. Never raises."""
        self._follow_up(now)
        if not is_due(self._settings, until, now) or (self._tried and now - self._tried < TRIED_EVERY):
            return
        self._tried = now
        try:
            log.info("certificate renewed", until=f"{renew(self._settings, now=now):%Y-%m-%d}")
        except (UsageError, OSError) as error:
            log.warning("the certificate could not be renewed", reason=getattr(error, "message", None) or str(error))

    def _follow_up(self, now: datetime) -> None:
        try:
            if follow_up(self._settings, now):
                log.info("the certificate is signed by the new authority from now on")
        except UsageError as error:
            log.warning("the renewal of the authority could not be finished", reason=error.message)
