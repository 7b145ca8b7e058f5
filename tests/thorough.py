"""How much a test tries: a part in `make test`, all of it in `make test-all`.

For tests that go through many like cases, such as a cut before each message of a job. The part is drawn from all of them
evenly, so that each phase and each kind of case stays in it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = bool(os.environ.get("VFL_THOROUGH"))
"""Whether tests try all of it; `make test-all` says so."""

Case = TypeVar("Case")


def every(step: int, of: Sequence[Case]) -> Sequence[Case]:
    """Each ``step``-th of the cases and the last one; all of them where tests are thorough."""
    if THOROUGH or not of:
        return of
    return [*of[:-1:step], of[-1]]


def examples(count: int, *, fewer: int) -> int:
    """How many examples of a property are tried: ``count`` where tests are thorough, else ``fewer``."""
    return count if THOROUGH else fewer
