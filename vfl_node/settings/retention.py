"""How long a node keeps what ended jobs have left: ``retention``. Ledgers and logs are never pruned."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationInfo

from vfl_node.configuration.models import Frozen
from vfl_node.configuration.renamed import LASTING_NAMES

_EARLIER = {"keep_days": "jobs_days", "keep_jobs": "jobs_keep"}
"""Key of the release before, of the settings themselves → key of ``retention``."""

NOTICE_DAYS = 14
"""So many days before a model that is kept for predictions is pruned, it is named."""


class Retention(Frozen):
    """What is pruned every hour, and by ``vfl-node prune`` without other words."""

    jobs_days: float | None = Field(
        default=None,
        ge=0,
        description="for how many days an ended job is kept, with its report and model; None: for ever",
    )
    jobs_keep: int | None = Field(default=None, ge=0, description="how many ended jobs are kept; None: all")
    models_days: float | None = Field(
        default=None,
        ge=0,
        description="for how many days an ended job is kept whose model is kept for predictions, whatever the other keys say; "
        "None: for ever",
    )

    alignments_keep: int = Field(
        default=10,
        ge=0,
        description="of how many done jobs the alignment is kept, the last ones, for jobs that use it again (align.reuse)",
    )

    @property
    def models_soon(self) -> Retention | None:
        """Limits beyond which is what will be pruned within :data:`NOTICE_DAYS` with its model; None: none ever is."""
        return None if self.models_days is None else Retention(models_days=max(0.0, self.models_days - NOTICE_DAYS))


def read_earlier_retention(given: Mapping[str, Any], info: ValidationInfo) -> Mapping[str, Any]:
    """Settings in which ``keep_days`` and ``keep_jobs`` of the release before stand in ``retention``.

    Raises:
        ValueError: both forms stand together.
    """
    earlier = [key for key in _EARLIER if key in given]
    if not earlier:
        return given
    if "retention" in given:
        raise ValueError(f"{earlier[0]} is of an earlier version and stands in retention today: leave it out")
    if info.context != LASTING_NAMES:
        new = " and ".join(f"retention.{_EARLIER[key]}" for key in earlier)
        warnings.warn(f"{' and '.join(earlier)} of the settings: write {new}", FutureWarning, stacklevel=2)
    moved = {_EARLIER[key]: given[key] for key in earlier}
    return {**{key: value for key, value in given.items() if key not in _EARLIER}, "retention": moved}
