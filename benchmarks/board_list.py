"""The overview of a node with very many jobs in its store, over its HTTP port: milliseconds and bytes.

    python -m benchmarks.board_list [--jobs 5000] [--repeats 20]

Every job has ended, and has a report of the size of a small training's; none of them is read.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from vfl_node.configuration.models import parse
from vfl_node.job import Job
from vfl_node.node.service import Node
from vfl_node.settings.node import Peer, Settings
from vfl_node.web.app import create_app
from vfl_node.web.server import Server

PAGES = {
    "the overview": "/",
    "the same, by state": "/?state=ended",
    "the same, by result": "/?sort=-metric",
    "the same, a search": "/?search=insurer",
    "a page of JSON": "/api/jobs?size=50",
    "all jobs as JSON": "/api/jobs",
}
REPORT_BYTES = 100_000
STATES = ("done", "done", "done", "failed", "cancelled")


def fill(node: Node, jobs: int) -> None:
    """Put ended jobs into the store of ``node``: three of five are done and have a report."""
    store, drawn, now = node._store, random.Random(1), datetime.now(timezone.utc)
    for number in range(jobs):
        purpose = f"purpose: 'Question {number}: do columns of {('lab', 'insurer')[number % 2]} help?'"
        text = f"name: job-{number}\n{purpose}\nparties: {{active: clinic, passive: lab}}\ntrain: {{epochs: 30}}\n"
        began = now - timedelta(minutes=10 * (jobs - number))
        ended = (began + timedelta(seconds=drawn.randrange(5, 500))).isoformat(timespec="seconds")
        record, state = store.add(parse(text, Job, source="job"), submitter="clinic"), STATES[number % len(STATES)]
        done, value = state == "done", drawn.uniform(0.5, 1)
        metric = {"name": "auc", "value": value, "low": value - 0.02, "high": value + 0.02, "alone": 0.7, "same_rows": True}
        metrics = {"federated": {"auc": value}, "alone": {"auc": 0.7}}
        figures = {"started": ended, "seconds": 3.0, "metric": metric, "metrics": metrics, "helped": "yes"}
        figures["leaks"] = {"labels": "high", "membership": "some", "columns": "not_measured"}
        failed: dict[str, Any] = {"code": "E_LEAK", "message": "a limit was reached", "hint": "see its log"}
        store.update(
            record,
            state=state,
            submitted=began.isoformat(timespec="seconds"),
            finished=ended,
            figures=json.dumps(figures) if done else None,
            **({} if done else failed),
        )
        if done:
            folder = store.job_folder(record)
            folder.artefacts.mkdir(parents=True, exist_ok=True)
            (folder.artefacts / "report.json").write_bytes(b" " * REPORT_BYTES)
            folder.seal()


@contextmanager
def node_with(jobs: int) -> Iterator[tuple[int, str]]:
    """Port and token of a node with so many jobs."""
    with tempfile.TemporaryDirectory() as folder:
        peers = {name: Peer() for name in ("lab", "insurer")}
        state = Path(folder, "state")
        settings = Settings(
            name="clinic", role="active", state_dir=state, peers=peers, listen="127.0.0.1:0", insecure_loopback=True
        )
        node = Node(settings)
        fill(node, jobs)
        server = Server(create_app(node, token=node.token), "127.0.0.1", 0)
        server.start()
        yield server.port, node.token
        server.stop()
        node.stop()


def measure(port: int, token: str, path: str, repeats: int) -> tuple[list[float], list[float], int]:
    """Seconds of each answer after a first one, by the clock and of CPU, and the bytes of its body."""
    seconds, busy, size = list[float](), list[float](), 0
    for _ in range(repeats + 1):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        began, worked = time.perf_counter(), time.process_time()
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        size = len(answer.read())
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - worked)
        connection.close()
        if answer.status != 200:
            raise SystemExit(f"{path}: status {answer.status}")
    return seconds[1:], busy[1:], size


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=20)
    given = parser.parse_args()
    with node_with(given.jobs) as (port, token):
        print(f"| {given.jobs:,} jobs | CPU | by the clock | least | kB |\n|---|---|---|---|---|")
        for title, path in PAGES.items():
            seconds, busy, size = measure(port, token, path, given.repeats)
            times = (statistics.median(busy), statistics.median(seconds), min(seconds))
            print(
                f"| {title}, `{path}` | {' | '.join(f'{1000 * value:.0f} ms' for value in times)} | {size / 1000:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
