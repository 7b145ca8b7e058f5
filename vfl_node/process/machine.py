"""How much memory and how many cores this process may still take: of the machine, or of its control group if that is less."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
_M_ARENA_MAX = -8  # of malloc.h
_FILES = {  # most, used, and what of it is page cache, for both versions of control groups
    "": ("memory.max", "memory.current", "(?:in)?active_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_(?:in)?active_file"),
}


def free_bytes(proc: Path = _PROC, groups: Path = _GROUPS) -> float:
    """Bytes that can be taken without anything being swapped or killed; infinite where the system does not tell.

    Args:
        proc: where the system tells of processes.
        groups: where it tells of control groups.
    """
    free = math.inf
    with suppress(OSError):
        if match := re.search(r"^MemAvailable:\s+(\d+) kB", (proc / "meminfo").read_text(), re.MULTILINE):
            free = int(match[1]) * 1024
    inside = (_free_in_group(folder, *_FILES[kind]) for kind, folder in _own_groups("memory", proc, groups))
    return min(free, *inside, math.inf)


def machine_state(folder: Path) -> dict[str, int | None]:
    """``memory_free`` and ``disk_free`` (where ``folder`` lies), in bytes; None where the system does not tell."""
    memory, disk = free_bytes(), None
    with suppress(OSError):
        disk = shutil.disk_usage(folder).free
    return {"memory_free": int(memory) if math.isfinite(memory) else None, "disk_free": disk}


def count_cores(proc: Path = _PROC, groups: Path = _GROUPS) -> int:
    """How many whole cores this process may use, at least 1: by its affinity, and by the time that its control group allows.

    Args: as :func:`free_bytes`.
    """
    allowed = (_cores_of_group(folder) for _, folder in _own_groups("cpu", proc, groups))
    return max(1, int(min(len(os.sched_getaffinity(0)), *allowed, math.inf)))


def used_bytes() -> int:
    """Bytes of memory that this process holds."""
    status = (_PROC / "self" / "status").read_text()
    match = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def share_arenas() -> None:
    """Have the threads of this process share two arenas of the C library; nothing happens where it is not glibc.

    Else each thread takes its memory from one of eight a core, and a free piece in one is of no use to the others. A node whose
    jobs have a thread each would grow with every job.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


def give_memory_back() -> None:
    """Return to the system what the C library holds free; some milliseconds, and nothing where it is not glibc."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _own_groups(controller: str, proc: Path, groups: Path) -> Iterator[tuple[str, Path]]:
    """The control groups of this process, each with those around it: "" (version 2) or ``controller`` (1), and its folder."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, own = line.split(":", 2)
            kind = controller if controller in controllers.split(",") else controllers
            if kind in ("", controller):
                root = groups / kind
                inner = root / own.strip("/")
                yield from ((kind, folder) for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _cores_of_group(folder: Path) -> float:
    """How many cores' time a control group of either version may use; infinite where it has no limit, or does not say."""
    with suppress(OSError, ValueError, ZeroDivisionError):
        if (both := folder / "cpu.max").exists():
            quota, period = both.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        cores = int(quota) / int(period)
        return cores if cores > 0 else math.inf  # version 1 says -1
    return math.inf


def _free_in_group(folder: Path, most: str, used: str, cache: str) -> float:
    """What a control group may still take; its page cache can be given up. Infinite where it has no limit, or does not say."""
    with suppress(OSError, ValueError):
        limit = int((folder / most).read_text())
        cached = re.findall(rf"^{cache} (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
        return max(0, limit - int((folder / used).read_text()) + sum(map(int, cached)))
    return math.inf


def utc_now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
