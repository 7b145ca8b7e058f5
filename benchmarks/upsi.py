"""Unbalanced PSI of 1,000 ids against a million: the first job of a key period, and a later one.

    python -m benchmarks.upsi                        some seconds
    python -m benchmarks.upsi --served 10000000      ten million, about ten times as long
    python -m benchmarks.upsi --added 1000           and a third job, to whose list 1,000 ids have come

Both parties run in one process on one thread, over channels in memory, with lists on the disk. So the times are those of both
parties, one after the other, without a wire; bytes are those that would travel.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.sessions import TWO, limits_from, session
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.protocols import align
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.threads import Threads
from vfl_node.job import Align
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.settings.limits import QueryLimits
from vfl_node.transport.memory import memory_channels, run_together


@dataclass(frozen=True)
class Measured:
    """One job.

    Attributes:
        asked: ids of the party that asks.
        served: ids of the other one.
        shared: ids that both have, as they found.
        wall_s: of both parties, one after the other.
        cpu_s: likewise.
        sent_bytes: by the party that asks.
        received_bytes: by the party that asks.
        peak_mib: most resident memory of the process so far.
    """

    asked: int
    served: int
    shared: int
    wall_s: float
    cpu_s: float
    sent_bytes: int
    received_bytes: int
    peak_mib: int


def measure(folder: Path, asked: int, served: int, added: int = 0) -> list[Measured]:
    """Two jobs, each with other ids of the party that asks, half of which are shared; a third with ``added`` ids."""
    memories = [MemoryOfOneRun(Randomness(bytes([i]) * 32)) for i in range(2)]
    found = []
    for number in range(3 if added else 2):
        many = Identifiers.from_items(b"id%011d" % i for i in range(served + (added if number == 2 else 0)))
        start = served - asked // 2 - number * asked
        few = Identifiers.from_items(b"id%011d" % i if i < served else b"no%011d" % i for i in _ids(start, asked, served))
        found.append(_run(folder, number, few, many, memories, deltas=added > 0))
    return found


def _ids(start: int, asked: int, served: int) -> list[int]:
    half = asked // 2
    return [*range(start, start + half), *range(served, served + asked - half)]


def _run(
    folder: Path, number: int, few: Identifiers, many: Identifiers, memories: list[MemoryOfOneRun], *, deltas: bool
) -> Measured:
    limits = limits_from(1).model_copy(update={"queries_per_peer": QueryLimits(deltas=deltas)})
    channels = memory_channels(*TWO.data, job_id=f"job-{number}")
    sides = []
    for place, (name, channel, ids) in enumerate(zip(TWO.data, channels, (few, many), strict=True)):
        own = session(
            name,
            {channel.peer: channel},
            Randomness(bytes([number, place]) * 16),
            align=Align(protocol="upsi"),
            folder=folder / name / str(number),
            cached=folder / name / "cached",
            memories={channel.peer: memories[place]},
            pins=MemoryPins(),
            limits=limits,
            workers=Threads(1),
        )
        sides.append((align(own, OwnRecords(ids)), channel))
    wall, cpu = time.perf_counter(), time.process_time()
    results = run_together(*sides)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    for result in results:
        if isinstance(result, BaseException):
            raise result
    active, passive = (result for result in results if isinstance(result, Alignment))
    if few.choose(active.rows) != many.choose(passive.rows):
        raise RuntimeError("the parties disagree on their shared records")
    traffic = channels[0].traffic["align"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return Measured(
        len(few), len(many), len(active), round(wall, 3), round(cpu, 3), traffic.bytes_sent, traffic.bytes_received, peak
    )


def main() -> None:
    """Measure, print, and write what was measured."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--asked", type=int, default=1_000)
    given.add_argument("--served", type=int, default=1_000_000)
    given.add_argument("--added", type=int, default=0)
    given.add_argument("--out", type=Path)
    options = given.parse_args()
    with tempfile.TemporaryDirectory(prefix="upsi-") as folder:
        found = [asdict(each) for each in measure(Path(folder), options.asked, options.served, options.added)]
    for line in found:
        print(json.dumps(line), flush=True)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
