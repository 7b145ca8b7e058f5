"""What must not change from one attempt of a job to the next."""

from __future__ import annotations

from typing import Protocol

from vfl_node.errors import StateError


class Pins(Protocol):
    """Digests that must not change between attempts of one job.

    The second round of a union answers any request with its evaluation under secret
    keys; a *different* request in a later attempt would turn that into an oracle. And a
    share of the coin toss could be chosen by a party that knows the other one's already.
    """

    def check(self, name: str, digest: bytes) -> None:
        """Store ``digest`` under ``name`` the first time; afterwards it must be the same.

        Raises:
            StateError: another digest is stored (``E_REPLAY``).
        """


class MemoryPins:
    """Pins that live as long as the object."""

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}

    def check(self, name: str, digest: bytes) -> None:
        """As :meth:`Pins.check`."""
        if self._digests.setdefault(name, digest) != digest:
            raise StateError(
                f"{name} differs from an earlier attempt of this job",
                code="E_REPLAY",
                hint="a job may be resumed only with the same request; submit a new job",
            )


class PinsOfPart:
    """The pins of a part of a job that would have the same names as those of other parts.

    Args:
        pins: of the job.
        part: what it is.
    """

    def __init__(self, pins: Pins, part: str) -> None:
        self._pins, self._part = pins, part

    def check(self, name: str, digest: bytes) -> None:
        """As :meth:`Pins.check`."""
        self._pins.check(f"{self._part}: {name}", digest)
