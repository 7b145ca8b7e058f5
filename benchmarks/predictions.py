"""How long a prediction takes between two real nodes, from the request over HTTP to the answer.

python -m benchmarks.predictions [--records 10000] [--requests 200] [--batch-size 256] [--wan TOOL]

Two nodes train for an epoch and keep the model. Then each asks for one known record after the other, every time over a
new connection to its own node, as the command line does; and for many records at once.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from pathlib import Path

import yaml

from benchmarks.measure import sets, spelled
from benchmarks.nodes import LOOPBACK, MBIT_S, ROLES, RTT_MS, Pair, Places, wan
from vfl_node.node.client import Client
from vfl_node.roles import Role

COLUMNS = {"active": 8, "passive": 24}
JOB = """\
name: bench
parties: {active: active, passive: passive}
train: {bottom: [128, 128], active_bottom: [32], top: [128, 128], epochs: 1, batch_size: 1024}
"""
MANY = 1000


class Served(Pair):
    """Two nodes with a model.

    Args:
        places: where each runs.
        records: of each party; half of them both have.
        batch_size: rows of an agreed batch.
    """

    def __init__(self, places: Places, records: int, batch_size: int) -> None:
        super().__init__(places)
        self._batch_size = batch_size
        self.records = dict(zip(ROLES, sets(records), strict=True))

    def __enter__(self) -> Served:
        for role, numbers in self.records.items():
            self._folders[role].mkdir()
            write_table(self._folders[role] / "table.csv", numbers, COLUMNS[role], labels=role == "active")
        super().__enter__()
        job = yaml.safe_load(JOB) | {"serve": {"to": "both", "batch_size": self._batch_size}}
        self.model = self.client("active").submit(yaml.safe_dump(job))["id"]
        for role in ROLES:
            (*_, view) = self.client(role).watch(self.model)
            if view["state"] != "done":
                self.__exit__()
                raise SystemExit(f"training at {role}: {view['error']}")
        return self

    def client(self, role: Role) -> Client:
        """That of a node."""
        return Client(self._running(role)["http"], (self._folders[role] / "state" / "token").read_text())

    def latencies(self, role: Role, requests: int, records: int, seed: int = 1) -> list[float]:
        """Seconds of each of ``requests`` for as many random ``records``; the first, which begins the service, is left out."""
        client, drawn = self.client(role), random.Random(seed)
        found = []
        for _ in range(requests + 1):
            ids = "".join(f"{id_}\n" for number in drawn.sample(self.records[role], records) for id_ in spelled([number]))
            began = time.perf_counter()
            client.predict(self.model, f"id\n{ids}".encode(), lambda: None)
            found.append(time.perf_counter() - began)
        return found[1:]


def write_table(path: Path, numbers: range, columns: int, *, labels: bool) -> None:
    """A CSV file of an id column, some of numbers and, at the active party, one of labels."""
    with path.open("w") as table:
        names = [*(f"x{c}" for c in range(columns)), *(["label"] if labels else [])]
        table.write(f"id,{','.join(names)}\n")
        for number, id_ in zip(numbers, spelled(numbers), strict=True):
            cells = [str((number * (2 * c + 3)) % 101) for c in range(columns)] + ([str(number % 2)] if labels else [])
            table.write(f"{id_},{','.join(cells)}\n")


def histogram(latencies_s: list[float], width: int = 40) -> list[str]:
    """Lines of a histogram whose ranges double, in milliseconds."""
    steps = [math.floor(2 * math.log2(1000 * latency)) for latency in latencies_s]
    counts = {step: steps.count(step) for step in range(min(steps), max(steps) + 1)}
    most = max(counts.values())
    return [
        f"{2 ** (step / 2):8.1f} to {2 ** ((step + 1) / 2):7.1f} ms  {'█' * math.ceil(width * count / most)} {count}"
        for step, count in counts.items()
    ]


def quantiles(latencies_s: list[float]) -> str:
    """In milliseconds: median, 90 and 99 %, the longest."""
    cuts = statistics.quantiles(latencies_s, n=100, method="inclusive")
    return " | ".join(f"{1000 * value:.1f}" for value in (cuts[49], cuts[89], cuts[98], max(latencies_s)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--wan", help="tool for a slow link, see benchmarks.nodes.wan")
    options = parser.parse_args()
    if options.wan:
        with wan(options.wan) as places:
            measure(places, f"{RTT_MS} ms, {MBIT_S} Mbit/s", options)
    else:
        measure(LOOPBACK, "loopback", options)


def measure(places: Places, where: str, options: argparse.Namespace) -> None:
    """Print latencies of both directions."""
    drawn = []
    print("| where | to | records | requests | median ms | 90 % | 99 % | most |\n|---|---|---|---|---|---|---|---|")
    with Served(places, options.records, options.batch_size) as served:
        for role in ROLES:
            for records in (1, min(MANY, options.records)):
                requests = options.requests if records == 1 else max(2, options.requests // 10)
                latencies = served.latencies(role, requests, records)
                print(f"| {where} | {role} | {records} | {requests} | {quantiles(latencies)} |", flush=True)
                drawn += [f"\n{where}, to {role}, {records} of {options.records} records:", *histogram(latencies)]
    print("\n".join(drawn))


if __name__ == "__main__":
    main()
