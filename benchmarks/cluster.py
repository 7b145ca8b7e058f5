"""Powers of a list by the Ray cluster of a node's settings, beside threads of this machine.

    python -m benchmarks.cluster --config node.yaml [--rows 1000000] [--rounds 3]

The list is computed in parts, as an alignment computes it, so that memory holds one of them. The list and its parts are the
same for both, and they take turns. Prints a table in Markdown, and fails if a byte differs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from benchmarks.tables import head, line
from vfl_node.crypto.build import describe_build
from vfl_node.crypto.groups import group
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Engine
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.engines.threads import Threads
from vfl_node.settings.reading import load_settings

PART_ROWS = 1 << 20


def seconds(engine: Engine, rows: int) -> tuple[float, bytes]:
    """By the clock, for powers of so many checked elements, and a digest of them."""
    curve, digest, spent = group("curve25519"), sha256(), 0.0
    scalar = curve.draw(Randomness(bytes(32)).derive("scalar"))
    for begin in range(0, rows, PART_ROWS):
        ids = [b"%d" % number for number in range(begin, min(rows, begin + PART_ROWS))]
        elements = curve.hash_to_group(ids, b"benchmark")
        began = time.perf_counter()
        for block in curve.powers(elements, scalar, engine, check=True):
            digest.update(block.tobytes())
        spent += time.perf_counter() - began
    return spent, digest.digest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="a node's settings with an engine of kind ray")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    settings = load_settings(chosen.config).engine
    if settings.kind != "ray" or settings.workers is None:
        raise SystemExit("these settings have no cluster (engine.kind: ray)")
    took: dict[str, list[float]] = {"threads": [], "cluster": []}
    with closing(Threads(settings.workers)) as threads, closing(Cluster(settings, describe_build)) as cluster:
        seconds(cluster, 1000)  # starts its workers
        for _ in range(chosen.rounds):
            found = {name: seconds(engine, chosen.rows) for name, engine in (("threads", threads), ("cluster", cluster))}
            if len({digest for _, digest in found.values()}) > 1:
                raise SystemExit("the cluster's powers are others than those of threads")
            for name, (spent, _) in found.items():
                took[name].append(spent)
    print(*head("", "rows", "s, median", "least", "most", "of threads"), sep="\n")
    alone = statistics.median(took["threads"])
    for name, each in took.items():
        middle = statistics.median(each)
        times = (f"{spent:.2f}" for spent in (middle, min(each), max(each), middle / alone))
        print(line(f"{name}, {settings.workers}", f"{chosen.rows:,}", *times))


if __name__ == "__main__":
    main()
