"""How much memory a job takes of this node, whether its owner allows that, and what the jobs under way have reserved.

A job comes from a peer, and with it the sizes of the networks, of a batch, how many steps there are. So before anything
of it is begun, here and after every restart, what it takes is estimated and compared: with the owner's limits
(``size.parameters`` and ``size.steps`` of its policy, ``resources.memory_mib``), and with what this machine or its control
group has free beyond what other jobs have reserved and not yet taken. See docs/guides/estimate-a-job.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

from vfl_node.data.tables import Table
from vfl_node.errors import StateError
from vfl_node.estimate.memory import UNPROTECTED, Need, check_limits, mebibytes, need, shape_of
from vfl_node.job import Job
from vfl_node.job.costs import TableShape
from vfl_node.models import NONE_DECLARED
from vfl_node.process.machine import free_bytes, used_bytes
from vfl_node.process.tensors import TORCH_BYTES, torch_is_loaded
from vfl_node.roles import Role
from vfl_node.settings.limits import Limits
from vfl_node.settings.protection import Protection


class MemoryShort(StateError):
    """A job needs more memory than is free (``E_MEMORY``).

    Attributes:
        needed: bytes that it needs.
        passes: whether they would be free if no other job had any.
    """

    needed = 0.0
    passes = False


class Budget:
    """The memory that the jobs of one node have reserved. Thread safe.

    Args:
        memory_mib: the most that all jobs together may take; None: what is free.
        models: of its settings: name → ``module:Class`` of an architecture.
        protection: of its settings.
    """

    def __init__(
        self, memory_mib: int | None, models: Mapping[str, str] = NONE_DECLARED, protection: Protection = UNPROTECTED
    ) -> None:
        self._memory_mib, self._models, self._protection = memory_mib, models, protection
        self._idle_bytes, self._light = used_bytes(), not torch_is_loaded()
        self._reserved: dict[str, int] = {}
        self._services: set[str] = set()
        self._lock = threading.Lock()

    def reserve(self, job_id: str, job: Job, role: Role, table: Table | None, limits: Limits, model: Job | None = None) -> None:
        """Set the memory aside that the job takes, until :meth:`release`.

        ``limits``: for the job. ``model``: as for :func:`need`.

        Raises:
            PolicyError: it is larger than the owner allows (``E_POLICY``).
            UsageError: it names a model that this node does not have (``E_EXTENSION``).
            StateError: there is not as much (``E_MEMORY``).
        """
        with self._lock:
            self._reserved.pop(job_id, None)
            self._reserved[job_id] = self.fit(job, role, shape_of(table), limits, model)
            if job.is_service:
                self._services.add(job_id)

    def fit(self, job: Job, role: Role, table: TableShape, limits: Limits, model: Job | None = None) -> int:
        """How many bytes the job needs, if they are free, and those of torch if it is not loaded yet.

        Args and Raises as :meth:`reserve`.
        """
        check_limits(job, role, limits, table, self._models)
        needed = need(job, role, table, model, self._models, self._protection)
        free, others = self._free(TORCH_BYTES if job.needs_torch and not torch_is_loaded() else 0), sum(self._reserved.values())
        if needed.bytes > free:
            raise _memory_error(needed, free, others)
        return needed.bytes

    @property
    def free_bytes(self) -> float:
        """How many bytes are left for one more job."""
        return self._free()

    def _free(self, loading: int = 0) -> float:
        """The same, where so many bytes of libraries are still to be loaded, which are no part of what jobs may have."""
        others = sum(list(self._reserved.values()))
        idle = self._idle_bytes + (TORCH_BYTES if self._light and torch_is_loaded() else 0)
        pending = max(0, others - max(0, used_bytes() - idle))  # reserved, and not taken yet
        free = free_bytes() - pending - loading
        return max(0, free if self._memory_mib is None else min(free, (self._memory_mib << 20) - others))

    @property
    def reserved_bytes(self) -> int:
        """What all jobs together have reserved."""
        with self._lock:
            return sum(self._reserved.values())

    def count_fitting(self) -> float:
        """How many jobs fit into memory that need as much as the largest of those that have reserved some; at least 1.

        Services of predictions are none of them: they take no place, and what they have reserved is not free.
        """
        with self._lock:
            sizes = [size for job_id, size in self._reserved.items() if job_id not in self._services]
        return max(1, (self.free_bytes + sum(sizes)) / max(sizes)) if any(sizes) else math.inf

    def release(self, job_id: str) -> None:
        """The job takes none any more. Idempotent."""
        with self._lock:
            self._reserved.pop(job_id, None)
            self._services.discard(job_id)


def _memory_error(needed: Need, free: float, others: int) -> MemoryShort:
    besides = f", beside {mebibytes(others)} that other jobs have reserved" if others else ""
    error = MemoryShort(
        f"this job needs about {mebibytes(needed.bytes)} of memory ({needed}); {mebibytes(free)} are free{besides}",
        code="E_MEMORY",
        hint="free memory, let other jobs end, or raise resources.memory_mib; then go on: vfl-node resume JOB",
        for_peer="it has too little memory free for this job",
    )
    error.needed, error.passes = needed.bytes, others > 0 and needed.bytes <= free + others
    return error
