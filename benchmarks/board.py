"""What pages that watch a job cost it: time of a step, with viewers and without, in one run between two nodes.

    python -m benchmarks.board [--viewers 20] [--pairs 8] [--window 5] [--out FILE]

Two nodes, a process each, train a split network over mutual TLS on loopback. Each pair is a window with viewers of the active
node's stream of the job and one without, in turns first and second. The viewers read all that comes, in the process of the
benchmark, so that they take their share of the processor. Time is that of the clock, and processor time of the active node:
where other programs run, only the second means much.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from typing_extensions import override

from benchmarks.measure import cpu_s, machine
from benchmarks.nodes import LOOPBACK, ROLES, Pair
from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.node.client import Client

ROWS, COLUMNS, BATCH, EPOCHS = 4096, 32, 256, 1_500
SETTLE_S = 1.0
JOB = f"""
name: watched
parties: {{active: active, passive: passive}}
align: {{protocol: psi}}
train: {{epochs: {EPOCHS}, batch_size: {BATCH}, bottom: [64], active_bottom: [64], top: [64]}}
evaluate: {{test_fraction: 0.2, metrics: [auc]}}
"""


class WatchedPair(Pair):
    """Two nodes with tables to train on."""

    @override
    def _meet(self) -> None:
        drawn, ids = np.random.default_rng(1), np.arange(ROWS)
        for role in ROLES:
            columns = {"id": ids, **{f"{role}_{at}": drawn.normal(size=ROWS) for at in range(COLUMNS)}}
            columns |= {"label": drawn.integers(2, size=ROWS)} if role == "active" else {}
            header, table = ",".join(columns), np.column_stack(list(columns.values()))
            formats = ["%d", *["%.6g"] * COLUMNS, *(["%d"] if role == "active" else [])]
            np.savetxt(self._folders[role] / "table.csv", table, header=header, fmt=formats, delimiter=",", comments="")
        super()._meet()

    @override
    def _start(self, name: str, **settings: Any) -> None:
        labelled = {"data": {"path": "table.csv", "label": "label"}, "compare": {"boosted_tree": False}}
        super()._start(name, **(settings | (labelled if name == "active" else {})))

    @property
    def pid(self) -> int:
        """Number of the active node's process."""
        return self._processes["active"].pid

    @property
    def place(self) -> tuple[str, str]:
        """Address and token of the active node's HTTP port."""
        token = (self._folders["active"] / "state" / "token").read_text().strip()
        return self._running("active")["http"], token


@contextmanager
def watching(place: tuple[str, str], job_id: str, viewers: int) -> Iterator[list[int]]:
    """A context in which so many viewers read the stream of a job; how many bytes they have read stands in the list."""
    (host, _, port), token = place[0].rpartition(":"), place[1]
    request = f"GET /api/jobs/{job_id}/events HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    connections = [socket.create_connection((host, int(port))) for _ in range(viewers)]
    read, over = [0], threading.Event()

    def pull() -> None:
        with selectors.DefaultSelector() as ready:
            for connection in connections:
                connection.sendall(request)
                ready.register(connection, selectors.EVENT_READ)
            while not over.is_set():
                read[0] += sum(len(cast(socket.socket, key.fileobj).recv(1 << 16)) for key, _ in ready.select(0.2))

    thread = threading.Thread(target=pull)
    thread.start()
    try:
        yield read
    finally:
        over.set()
        thread.join()
        for connection in connections:
            connection.close()


def step_ms(client: Client, job_id: str, pid: int, window_s: float) -> np.ndarray:
    """Milliseconds of a step: of the clock, and of the node's processor time."""
    time.sleep(SETTLE_S)
    began, before = np.array([time.monotonic(), cpu_s(pid)]), client.job(job_id)["done"]
    time.sleep(window_s)
    steps = client.job(job_id)["done"] - before
    return 1000 * (np.array([time.monotonic(), cpu_s(pid)]) - began) / steps


def compare(pairs: int, viewers: int, window_s: float) -> dict[str, float]:
    """Medians over pairs of windows, and the range of the ratios."""
    with WatchedPair(LOOPBACK) as nodes:
        client = Client(*nodes.place)
        job_id = client.submit(parse(JOB, Job, source="job").canonical())["id"]
        while not (job := client.job(job_id))["done"] or job["phase"] != "train":
            if job["error"]:
                raise SystemExit(job["error"]["message"])
            time.sleep(0.2)
        ratios, alone, moved, pid = [], [], [], nodes.pid
        for number in range(pairs):
            times: dict[bool, np.ndarray] = {}
            for watched in (number % 2 == 0, number % 2 == 1):
                if watched:
                    with watching(nodes.place, job_id, viewers) as read:
                        times[True] = step_ms(client, job_id, pid, window_s)
                    moved.append(read[0] / viewers / (window_s + SETTLE_S))
                else:
                    times[False] = step_ms(client, job_id, pid, window_s)
            ratios.append(times[True] / times[False])
            alone.append(times[False])
        client.cancel(job_id)
    row = {"viewers": viewers, "bytes_per_viewer_s": statistics.median(moved)}
    for at, clock in enumerate(("wall", "cpu")):
        low, middle, high = np.quantile([ratio[at] for ratio in ratios], (0, 0.5, 1))
        row |= {f"{clock}_ms": float(np.median([time[at] for time in alone]))}
        row |= {f"{clock}_ratio": float(middle), f"{clock}_least": float(low), f"{clock}_most": float(high)}
    return row


def main() -> None:
    """Measure, and print a row of a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--viewers", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--window", type=float, default=5.0, help="seconds")
    parser.add_argument("--out", type=Path, help="also as JSON")
    given = parser.parse_args()
    row = compare(given.pairs, given.viewers, given.window)
    print(f"{row['viewers']} viewers, {row['bytes_per_viewer_s']:,.0f} bytes a second each\n")
    print("| a step | without viewers, ms | with / without | in pairs of windows |\n|---|---|---|---|")
    for clock, words in (("wall", "by the clock"), ("cpu", "processor time of the node")):
        figures = f"{row[f'{clock}_ratio']:.3f} | {row[f'{clock}_least']:.3f} to {row[f'{clock}_most']:.3f}"
        print(f"| {words} | {row[f'{clock}_ms']:.1f} | {figures} |")
    if given.out:
        given.out.write_text(json.dumps({"machine": machine(), "rows": [row]}, indent=1))


if __name__ == "__main__":
    main()
