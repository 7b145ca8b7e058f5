"""Why an owner refuses a job, in one word."""

from __future__ import annotations

from enum import Enum


class RefusalReason(str, Enum):
    """All that the other parties are told."""

    data = "data"
    purpose = "purpose"
    budget = "budget"
    time = "time"
    other = "other"
