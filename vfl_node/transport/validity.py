"""When a certificate is valid. A handshake checks that once, and a link may outlive it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

WARN_BEFORE = timedelta(days=30)
"""There is a warning for a certificate that expires sooner."""


@dataclass(frozen=True)
class Validity:
    """The time in which a certificate is valid; both ends in UTC."""

    since: datetime
    until: datetime

    @classmethod
    def of(cls, certificate: x509.Certificate) -> Validity:
        """That of ``certificate``. Raises one of :data:`vfl_node.transport.identity.MALFORMED` for a malformed one."""
        return cls(certificate.not_valid_before_utc, certificate.not_valid_after_utc)

    def fault(self, whose: str, now: datetime, *, clock: str = "this node's clock") -> str:
        """Why the certificate, ``whose`` it is, cannot be used by ``clock``, which says ``now``; empty if it can."""
        if now < self.since:
            return f"{whose} is valid only from {_text(self.since)}, and {clock} says {_text(now)}"
        return f"{whose} expired on {_text(self.until)} ({clock} says {_text(now)})" if now >= self.until else ""

    def warning(self, what: str, now: datetime) -> str:
        """That the certificate, which is ``what``, expires soon; empty if it does not."""
        left = self.until - now
        return f"{what} expires on {_text(self.until)}, in {left.days} days: renew it" if left < WARN_BEFORE else ""


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
