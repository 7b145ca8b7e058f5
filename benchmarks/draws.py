"""Random numbers from a party's stream: how many a core makes in a second of its time.

OMP_NUM_THREADS=1 python -m benchmarks.draws
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from vfl_node.crypto.randomness import Randomness

COUNT, ROUNDS = 4_000_000, 5


def rates(count: int = COUNT, rounds: int = ROUNDS) -> Iterator[dict[str, Any]]:
    """Millions a second of CPU time of each kind, the best of so many rounds."""
    stream = Randomness(bytes(32))
    kinds: dict[str, Callable[[], object]] = {
        "64-bit words": lambda: stream.uint64(count),
        "uniform, float64": lambda: stream.uniform((count,)),
        "normal, float32": lambda: stream.normal((count,)),
    }
    for kind, draw in kinds.items():
        draw()
        times = []
        for _ in range(rounds):
            begun = time.process_time()
            draw()
            times.append(time.process_time() - begun)
        yield {"kind": kind, "millions_a_second": count / min(times) / 1e6}


def main() -> None:
    """Print the table of docs/reference/benchmarks/index.md."""
    print("| draw | millions a second |\n|---|---|")
    for row in rates():
        print(f"| {row['kind']} | {row['millions_a_second']:.0f} |")


if __name__ == "__main__":
    main()
