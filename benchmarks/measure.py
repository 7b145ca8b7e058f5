"""What the benchmarks align, what a run of it is, and the yardstick: one X25519 ladder.

Speeds of machines differ, and drift; so every row holds the CPU time of one ladder of libsodium
too, measured right before and after it in the same process.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base

import vfl_node
from vfl_node.alignment.plan import plan_of
from vfl_node.job import Align, ObfuscatedSet
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.roles import Role

T = TypeVar("T")

_LADDERS = 400
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """One alignment, as it was measured.

    Attributes:
        ids: identifiers a party.
        wall_s: from the order to the result at both parties, reading the tables included if there are any.
        align_s: of it, the alignment.
        cpu_s: by process (a party's, or ``both``), user and system time in ``wall_s``.
        align_cpu_s: the same in ``align_s``.
        peak_bytes: by process, the most resident memory since it began, libraries included.
        sent_bytes: by party, serialised messages.
        operations: group operations of both parties; None where that is another library's affair.
    """

    ids: int
    wall_s: float
    align_s: float
    cpu_s: dict[str, float]
    align_cpu_s: dict[str, float]
    peak_bytes: dict[str, int]
    sent_bytes: Mapping[Role, float]
    operations: int | None


@dataclass(frozen=True)
class Row:
    """A run and the same with few identifiers, which takes what any run takes.

    Attributes:
        system: whose implementation.
        where: ``memory`` (both parties in one process), or what lies between two nodes.
        mbit_s: what the link between them carries each way; None: what this machine does.
        kernel: that of the group operations (``VFL_KERNEL``); empty for another library.
        protocol: as in a job.
        group: as in a job.
        ladder_us: CPU time of one X25519 ladder, microseconds, the mean of before and after.
        run: what counts.
        start_up: what is to be taken off it.
    """

    system: str
    where: str
    mbit_s: float | None
    kernel: str
    protocol: str
    group: str
    ladder_us: float
    run: Run
    start_up: Run


def sets(ids: int) -> tuple[range, range]:
    """Both parties' identifiers as numbers; half of each set is shared."""
    return range(ids), range(ids // 2, ids + ids // 2)


def shared(ids: int) -> int:
    """How many are in both sets."""
    return ids - ids // 2


def spelled(numbers: Iterable[int]) -> Iterator[str]:
    """Twelve digits each, as customer numbers are."""
    return (f"{number:012d}" for number in numbers)


def terms(protocol: str, group: str, ids: int) -> Align:
    """The job's alignment section."""
    obfuscation = ObfuscatedSet(size=length("apsi", ids)) if protocol == "apsi" else None
    return Align.model_validate({"protocol": protocol, "group": group, "obfuscation": obfuscation})


def length(protocol: str, ids: int) -> int:
    """Length of the shared order; apsi's obfuscated set has seven in ten of the passive party's identifiers."""
    return {"psu": 2 * ids - shared(ids), "apsi": ids * 7 // 10}.get(protocol, shared(ids))


def alone(function: Callable[..., T], *arguments: Any) -> T:
    """``function(*arguments)`` in a new process, so that its peak of memory is its own; libraries are loaded once for all."""
    context = get_context("forkserver")
    context.set_forkserver_preload([function.__module__])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def check(what: str, found: int, expected: int) -> None:
    """A wrong result is not worth its time. Raises SystemExit."""
    if found != expected:
        raise SystemExit(f"{what}: wrong result, {found} rows instead of {expected}")


def operations(protocol: str, ids: int) -> int:
    """Group operations of both parties."""
    return sum(plan_of(ALIGNMENTS[protocol]).counts(ids, ids, length(protocol, ids)).powers.values())


def ladder_us() -> float:
    """CPU time of one X25519 ladder, from bytes to bytes, one core, microseconds; the median of nine batches."""
    key, u = bytes(range(32)), crypto_scalarmult_base(bytes(range(32, 64)))
    batches = []
    for _ in range(9):
        began = time.thread_time()
        for _ in range(_LADDERS):
            u = crypto_scalarmult(key, u)
        batches.append((time.thread_time() - began) / _LADDERS * 1e6)
    return statistics.median(batches)


def peak_bytes(pid: int | str = "self") -> int:
    """The most resident memory of a process so far: VmHWM; pages of mapped files count."""
    return next(
        1024 * int(line.split()[1])
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmHWM:")
    )


def cpu_s(pid: int) -> float:
    """User and system time of a process and the children it has waited for, to a tick of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * _TICK_S


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "vfl_node": vfl_node.__version__,
    }
