"""How much of an alignment's CPU time the thread of the job takes: the part that more cores cannot make shorter.

    python -m benchmarks.main_thread --ids 300000 --protocols psi psu

Both parties run in one process and in turns, with one worker each; figures are for one party. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.measure import alone, check, ladder_us, length
from benchmarks.memory import ROLES, sides_of
from benchmarks.tables import head, line, number
from vfl_node.transport.memory import memory_channels, run_together


def measured(protocol: str, ids: int) -> tuple[float, float, float]:
    """Microseconds of CPU time an identifier of one party, of all threads and of the job's; and those of a ladder."""
    channels, before = memory_channels(*ROLES), ladder_us()
    with tempfile.TemporaryDirectory(prefix="vfl-bench-") as scratch:
        sides = sides_of(protocol, "curve25519", ids, 1, channels, Path(scratch))
        everywhere, here = time.process_time(), time.thread_time()
        results = run_together(*sides)
        everywhere, here = time.process_time() - everywhere, time.thread_time() - here
    for result in results:
        if isinstance(result, Exception):
            raise result
        check(protocol, len(result), length(protocol, ids))
    return everywhere / ids / 2 * 1e6, here / ids / 2 * 1e6, (before + ladder_us()) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=300_000, help="identifiers a party")
    parser.add_argument("--protocols", nargs="+", default=["psi", "psu"])
    chosen = parser.parse_args()
    print(*head("protocol", "CPU µs an id", "in ladders", "job's thread µs an id", "its share"), sep="\n")
    for protocol in chosen.protocols:
        everywhere, here, ladder = alone(measured, protocol, chosen.ids)
        print(line(protocol, *map(number, (everywhere, everywhere / ladder, here)), f"{here / everywhere:.0%}"))


if __name__ == "__main__":
    main()
