"""What a check has found, in a form for people and one for programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from vfl_node.errors import VflError

Status = Literal["ok", "warn", "FAIL", "skipped"]

CHECKS: Mapping[int, str] = MappingProxyType(
    {
        1: "settings, policy, people",
        2: "keys and state",
        3: "certificate, card, revocation lists",
        4: "DNS",
        5: "port",
        6: "HTTP proxy",
        7: "who answers",
        8: "admission",
        9: "clock",
        10: "round trip and rate",
        11: "big messages",
        12: "idle connection",
        13: "way back",
        14: "releases",
        15: "data",
        16: "disk",
        17: "memory and CPU",
        18: "open files",
        19: "index, ledgers, backup",
        20: "cluster",
    }
)
"""Number of each check → its name."""

OF_PEERS = range(4, 15)
"""Numbers of the checks that are made once for each peer."""


@dataclass(frozen=True)
class Finding:
    """What one check has found.

    Attributes:
        number: of the check, a key of :data:`CHECKS`.
        status: ``ok``; ``warn``: it works, and may not for long, or only slowly; ``FAIL``: jobs will not run; ``skipped``: it
            was not measured.
        text: one sentence.
        hint: one thing to do; empty where nothing is.
        peer: whom it is about; empty: this machine.
        figures: what was measured, by names with units.
    """

    number: int
    status: Status
    text: str
    hint: str = ""
    peer: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the check."""
        return CHECKS[self.number]

    def describe(self) -> dict[str, Any]:
        """For a program: number, check, peer (or None), status, text, hint and figures."""
        said = {"status": self.status, "text": self.text, "hint": self.hint, "figures": dict(self.figures)}
        return {"number": self.number, "check": self.name, "peer": self.peer or None, **said}


def ok(number: int, text: str, **figures: Any) -> Finding:
    """All is well."""
    return Finding(number, "ok", text, figures=figures)


def warn(number: int, text: str, hint: str, **figures: Any) -> Finding:
    """It works, and may not for long, or only slowly."""
    return Finding(number, "warn", text, hint, figures=figures)


def fail(number: int, text: str, hint: str, **figures: Any) -> Finding:
    """Jobs will not run."""
    return Finding(number, "FAIL", text, hint, figures=figures)


def skip(number: int, reason: str, hint: str = "") -> Finding:
    """It was not measured, for this ``reason``."""
    return Finding(number, "skipped", reason, hint)


def failed_by(number: int, error: VflError, hint: str) -> Finding:
    """What an error of the product says; ``hint`` where the error has none."""
    return fail(number, f"{error.message} ({error.code})", error.hint or hint)


def guarded(number: int, check: Callable[[], Finding]) -> Finding:
    """What ``check`` finds. An error that it did not expect is no result: the check counts as not made."""
    try:
        return check()
    except VflError as error:
        return failed_by(number, error, f"see {error.code} in docs/reference/errors.md")
    except Exception as defect:  # noqa: BLE001 - one check that meets a defect must not hide the other ones
        return skip(number, f"the check itself met an error ({type(defect).__name__})", "report it with this node's release")


def worst(findings: list[Finding]) -> Status:
    """The worst status of all; what was skipped counts as well."""
    statuses = {each.status for each in findings}
    return "FAIL" if "FAIL" in statuses else "warn" if "warn" in statuses else "ok"
