"""Time group operations and whole alignments, both parties in this process over the in-memory channel.

    python -m benchmarks.align                       10,000 ids a party, half of them shared
    python -m benchmarks.align --ids 100000 --threads 2
    python -m benchmarks.align --groups modp3072 --ids 200

CPU seconds are both parties' together. In memory the parties take turns, so wall time falls
with --threads only; over a network they compute at the same time.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise

from vfl_node.alignment.alignment import MemoryPins
from vfl_node.alignment.protocols import PROTOCOLS, align
from vfl_node.crypto.groups import GROUPS, group
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.workers import ThreadWorkers
from vfl_node.job import Align
from vfl_node.progress import Silent
from vfl_node.transport.channel import memory_channels, run_together


def operations(name: str, count: int) -> list[float]:
    """Microseconds of one core for a hash, a power and a decode."""
    g, workers = group(name), ThreadWorkers(1)
    scalar = g.draw(Randomness(bytes(32)))
    ids = [b"%d" % i for i in range(count)]
    times = [time.process_time()]
    hashed = g.hash_to_group(ids, b"benchmark")
    times.append(time.process_time())
    powers = g.power(hashed, scalar, workers)
    times.append(time.process_time())
    g.decode(powers)
    times.append(time.process_time())
    return [(after - before) / count * 1e6 for before, after in pairwise(times)]


def alignment(protocol: str, group_name: str, ids: int, threads: int) -> tuple[float, float, int]:
    """(wall seconds, CPU seconds of both parties, bytes both ways)."""
    tables = [b"%d" % i for i in range(ids)], [b"%d" % i for i in range(ids // 2, ids + ids // 2)]
    channels = memory_channels("active", "passive")
    workers = ThreadWorkers(threads)
    parties = []
    for number, (role, table, channel) in enumerate(zip(("active", "passive"), tables, channels, strict=True)):
        side = align(
            role,
            Align(protocol=protocol, group=group_name),
            channel,
            table,
            randomness=Randomness(bytes([number]) * 32),
            workers=workers,
            pins=MemoryPins(),
            progress=Silent(),
        )
        parties.append((side, channel))
    wall, cpu = time.perf_counter(), time.process_time()
    results = run_together(*parties)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if any(result.intersection != ids - ids // 2 for result in results):
        raise SystemExit(f"wrong result: {results}")
    return wall, cpu, sum(traffic.bytes_sent for channel in channels for traffic in channel.traffic.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=10_000, help="identifiers a party")
    parser.add_argument("--threads", type=int, default=1, help="threads for group operations")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=["curve25519"])
    chosen = parser.parse_args()

    print(f"{'group':12}{'hash µs':>10}{'power µs':>12}{'decode µs':>12}")
    for name in chosen.groups:
        hashing, power, decode = operations(name, 5000 if name == "curve25519" else 100)
        print(f"{name:12}{hashing:10.1f}{power:12.1f}{decode:12.1f}")
    print()
    print(f"{'protocol':12}{'group':12}{'ids':>8}{'threads':>9}{'wall s':>9}{'CPU s':>9}{'bytes/id':>10}")
    for name in chosen.groups:
        for protocol in PROTOCOLS:
            wall, cpu, size = alignment(protocol, name, chosen.ids, chosen.threads)
            print(f"{protocol:12}{name:12}{chosen.ids:8}{chosen.threads:9}{wall:9.2f}{cpu:9.2f}{size / chosen.ids:10.0f}")


if __name__ == "__main__":
    main()
