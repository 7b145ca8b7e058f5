"""Row 63: two hundred jobs in the same processes."""

from __future__ import annotations

import os
from pathlib import Path

from rows import row
from world import NAMES, World, parties_of

JOBS, WARM = 200, 40
MOST_GROWN_MIB = 32


def held(world: World, name: str) -> tuple[float, int, int]:
    """MiB of memory, open descriptors and threads of a node."""
    process = Path("/proc", str(world.federation.processes[name].pid))
    pages = int((process / "statm").read_text().split()[1])
    return (
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        len(list((process / "fd").iterdir())),
        len(list((process / "task").iterdir())),
    )


@row(
    "63",
    f"{JOBS} jobs of three kinds, one after another in the same processes",
    must=f"R; memory grows by less than {MOST_GROWN_MIB} MiB after the first {WARM}; descriptors and threads are given back",
    how="the nodes' `/proc`, after the first jobs and after the last",
)
def soak(world: World) -> tuple[str, int, str]:
    world.all_up()
    kinds = ("split", "on psi", "hidden")  # side by side: none of them breaks what another promises
    at_first, processes = {}, dict(world.federation.processes)
    for number in range(JOBS):
        kind = kinds[number % len(kinds)] if number < WARM or number % 20 < len(kinds) else "split"
        world.clean(kind)
        job_id = world.submit(kind)
        world.same(kind, job_id)
        for name in parties_of(kind):
            folder = world.federation.job_folder(name, job_id)
            world.federation.wait_until(lambda folder=folder: world.federation.is_cleared(folder))
        if number + 1 == WARM:
            at_first = {name: held(world, name) for name in NAMES}
    grown = {}
    for name in NAMES:
        if world.federation.processes[name] is not processes[name]:
            raise AssertionError(f"{name} was started again")
        memory, files, threads = (last - first for last, first in zip(held(world, name), at_first[name], strict=True))
        if memory > MOST_GROWN_MIB or files > 8 or threads > 8:
            raise AssertionError(f"{name}: {memory:.0f} MiB, {files} descriptors and {threads} threads more")
        grown[name] = f"{memory:+.1f} MiB"
    return "R", JOBS, ", ".join(f"{name} {change}" for name, change in grown.items())
