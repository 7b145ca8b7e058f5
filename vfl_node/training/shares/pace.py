"""What a party computes for a byte of training in shares: constants, since its steps are many and of many kinds."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.job import Job
from vfl_node.job.costs import Operations, Passes, TableShape
from vfl_node.models import NONE_DECLARED
from vfl_node.roles import DataRole

BYTE_S = {"byte": 13e-9, "dealt byte": 7e-9}
"""CPU seconds for a byte: at a data party of those that it sends and gets, at the coordinator of those that it deals."""


class SharesPace:
    """Seconds of work on one core. Nothing is measured, so the arguments are not needed."""

    def __init__(self, job: Job, tables: Mapping[DataRole, TableShape], models: Mapping[str, str] = NONE_DECLARED) -> None:
        pass

    def __call__(self, work: Passes | Operations) -> float:
        """The seconds of all bytes."""
        assert isinstance(work, Operations)
        return work.count * BYTE_S[work.kind]
