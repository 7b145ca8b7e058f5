"""Checks 16 to 18: whether this machine has room for a job: disk, memory, cores, open files."""

from __future__ import annotations

import math
import os
import platform
import re
import resource
import time
from contextlib import suppress
from pathlib import Path

from vfl_node.crypto.kernels import kernel
from vfl_node.errors import UsageError
from vfl_node.estimate.memory import mebibytes
from vfl_node.node.doctor.finding import Finding, fail, ok, warn
from vfl_node.node.doctor.need import JobNeed
from vfl_node.node.running import running
from vfl_node.process.files import temporary_place
from vfl_node.process.machine import count_cores, free_bytes
from vfl_node.settings.node import MOST_SERVICES, Settings

RESERVE = 1.2
"""Free space of a disk must be so many times what is estimated."""

LEAST_DISK_BYTES = 64 << 20
"""What a node takes of its disk with nothing but small jobs: index, ledgers, reports."""

LEAST_INODES = 10_000

MEMORY_SHORT = 1.3
"""Free memory that is less than so many times the estimate is little."""

OPEN_FILES = 130
"""Files that a node has open beside its streams: libraries, logs, the index, connections without a known caller."""

STEAL = 0.1
"""Share of its time that a virtual machine waits for a core before that is worth a word."""

STEAL_S = 0.3
"""For how long that is measured."""

_PROC = Path("/proc")


def check_disk(settings: Settings, need: JobNeed) -> Finding:
    """Check 16: the free space of the state folder and of temporary files against what a job takes."""
    state = next(path for path in (settings.state_dir, *settings.state_dir.parents) if path.is_dir())
    wanted = max(LEAST_DISK_BYTES, RESERVE * need.disk_bytes)
    found, figures = [], {"wanted_bytes": int(wanted)}
    for what, folder in (("state_dir", state), ("temporary files", temporary_place())):
        about = os.statvfs(folder)
        free, inodes = about.f_bavail * about.f_frsize, about.f_favail if about.f_files else None
        figures[f"{what.split()[0]}_free_bytes"] = free
        most = LEAST_DISK_BYTES if what != "state_dir" else wanted
        found.append((free / most, f"{what} ({folder}) has {mebibytes(free)} free", inodes))
    share, text, _ = min(found)
    text = f"{text}, {need.words} needs {mebibytes(wanted)}"
    hint = "free space, or move state_dir to a larger disk; a quota counts as a full disk"
    if share < 1:
        return fail(16, text, hint, **figures)
    few = [(left, f"{said}, and room for {left:,} files only") for _, said, left in found if _are_few(left)]
    if few:
        left, text = min(few)
        return (warn if left else fail)(16, text, "remove files, or make a file system with more inodes", **figures)
    return warn(16, text, hint, **figures) if share < 2 else ok(16, text, **figures)


def _are_few(inodes: int | None) -> bool:
    return inodes is not None and inodes < LEAST_INODES


def check_memory(settings: Settings, need: JobNeed) -> Finding:
    """Check 17: free memory against what a job takes; cores, and the time that others take of them."""
    free = free_bytes()
    if settings.resources.memory_mib is not None:
        free = min(free, settings.resources.memory_mib << 20)
    cores, stolen, chosen = count_cores(), stolen_share(), kernel().name
    figures = {"cores": cores, "kernel": chosen, "wanted_bytes": need.memory_bytes, "system": platform.release()}
    if stolen is not None:
        figures["stolen_share"] = round(stolen, 3)
    busy = f", and other machines take {100 * stolen:.0f} % of their time" if stolen and stolen > STEAL else ""
    cpu = f"{cores} cores, kernel {chosen}{busy}"
    if math.isinf(free):
        return warn(17, f"the system does not tell how much memory is free; {cpu}", "set resources.memory_mib", **figures)
    figures["free_bytes"] = int(free)
    needs = f"{need.words} needs {mebibytes(need.memory_bytes)}" if need.memory_bytes else "the node has what it needs"
    text = f"{mebibytes(free)} of memory free, {needs}; {cpu}"
    hint = "free memory, raise the limit of the container, or give the job smaller batches"
    if free < need.memory_bytes:
        return fail(17, text, hint, **figures)
    if free < MEMORY_SHORT * need.memory_bytes:
        return warn(17, text, hint, **figures)
    if busy:
        return warn(17, text, "ask who runs the virtual machines for cores of its own", **figures)
    return ok(17, text, **figures)


def stolen_share(proc: Path = _PROC, seconds: float = STEAL_S) -> float | None:
    """Share of the cores' time that a hypervisor gives to others now; None where the system does not tell."""
    before = _ticks(proc)
    time.sleep(seconds)
    after = _ticks(proc)
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


def _ticks(proc: Path) -> tuple[int, int] | None:
    """Stolen and all ticks of all cores."""
    with suppress(OSError, ValueError, IndexError):
        ticks = [int(word) for word in (proc / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        return ticks[7], sum(ticks)
    return None


def check_files(settings: Settings, proc: Path = _PROC) -> Finding:
    """Check 18: how many files this process, or the running node, may open against what a node with its peers opens."""
    wanted = settings.streams_per_party * max(1, len(settings.connected)) + OPEN_FILES + MOST_SERVICES
    whose, most = "this user's processes", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    with suppress(UsageError, OSError, KeyError):
        limits = (proc / str(running(settings)["pid"]) / "limits").read_text()
        if match := re.search(r"^Max open files\s+(\d+|unlimited)", limits, re.MULTILINE):
            whose, most = "the running node", int(match[1]) if match[1].isdecimal() else resource.RLIM_INFINITY
    if most == resource.RLIM_INFINITY:
        return ok(18, f"{whose} may open any number of files", wanted=wanted)
    text = f"{whose} may open {most:,} files, and a node with these peers opens up to {wanted:,}"
    hint = "raise the limit: ulimit -n, or LimitNOFILE of the service"
    figures = {"limit": most, "wanted": wanted}
    if most < wanted:
        return fail(18, text, hint, **figures)
    return warn(18, text, hint, **figures) if most < 2 * wanted else ok(18, text, **figures)


def is_running(settings: Settings, proc: Path = _PROC) -> bool:
    """Whether the node of these settings runs on this machine."""
    try:
        return (proc / str(running(settings)["pid"])).exists()
    except (UsageError, ValueError, KeyError):
        return False
