"""What a request for predictions takes between two real nodes on loopback, and where its time goes.

python -m benchmarks.serving [--records 10000] [--requests 100] [--clients 16] [--batch-size 256] [--to active]
    [--limit 1] [--sample]

For each direction two new nodes train for an epoch. Then the asker's owner asks

- for one record after the other, each in a batch that was not asked for before: the *first touch*,
- for the same records again,
- for 1,000 records at once,
- and with many clients at once for one record each, over connections that stay open.

Beside the wall time stands the CPU time of each node and of the clients, which are threads of this program: it holds also where
other programs run. ``--sample`` looks every 5 ms at what the threads of the nodes do, which itself takes a little, and prints
where their CPU time went.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import random
import runpy
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.measure import spelled
from benchmarks.nodes import LOOPBACK, ROLES
from benchmarks.predictions import MANY, Served
from vfl_node.execution.folder import JobFolder
from vfl_node.roles import Role
from vfl_node.training.prediction.batches import Batches

SAMPLE_S = 0.005
SHOWN = 30


class Serving(Served):
    """Two nodes with a model, one of which asks for predictions.

    Args:
        asker: which.
        records: of each party.
        batch_size: rows of an agreed batch.
        sample: whether to look at what the nodes' threads do.
        limit: ``attacks.rows`` of both nodes: then audits come before answers; None: they have none.
    """

    def __enter__(self) -> Serving:
        super().__enter__()
        return self

    def __init__(self, asker: Role, records: int, batch_size: int, *, sample: bool, limit: float | None) -> None:
        self._sample, self._limit = sample, limit
        super().__init__(LOOPBACK, records, batch_size)
        self.asker: Role = asker

    def _start(self, name: str, **settings: Any) -> None:
        limited = {} if self._limit is None else {"policy": {"preset": "trial", "everyone": {"attacks": {"rows": self._limit}}}}
        super()._start(name, **settings, **limited)

    def _vfl_node(self, name: str, arguments: list[str], **streams: Any) -> subprocess.Popen[bytes]:
        if not self._sample:
            return super()._vfl_node(name, arguments, **streams)
        command = [sys.executable, "-m", "benchmarks.serving", "--node", str(self._sampled(name)), *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams)

    def _sampled(self, name: str) -> Path:
        return self._folders[name] / "sampled.json"

    def one_of_each_batch(self) -> list[str]:
        """A record of the asker in each agreed batch, in a random order: to ask for it is a first touch."""
        folder = JobFolder(self._folders[self.asker] / "state" / "jobs" / self.model)
        loaded, stored = folder.load_alignment([role for role in ROLES if role != self.asker]), folder.predictor
        assert loaded is not None
        assert stored is not None
        alignment, numbers = loaded[0], self.records[self.asker]
        batches = Batches(bytes.fromhex(json.loads(stored.serving)["batches"]), len(alignment), self._batch_size)
        owned = np.flatnonzero(alignment.owned)
        chosen = {int(batches.find(owned[[place]])[0][0]): int(alignment.rows[owned[place]]) for place in range(len(owned))}
        drawn = random.Random(1).sample(sorted(chosen.values()), len(chosen))
        return list(spelled([numbers[row] for row in drawn]))

    def ask(self, ids: Sequence[str]) -> float:
        """Seconds of one request, over a new connection, as of the command line."""
        client = self.client(self.asker)
        began = time.perf_counter()
        client.predict(self.model, body_of(ids), lambda: None)
        return time.perf_counter() - began

    def ask_together(self, each: Sequence[Sequence[str]]) -> float:
        """Seconds until as many clients as there are lists have asked for one record after the other, all at once."""
        running = self._running(self.asker)["http"]
        host, token = running.split("//")[-1], (self._folders[self.asker] / "state" / "token").read_text().strip()
        begin, errors = threading.Barrier(len(each) + 1), list[str]()

        def ask_all(ids: Sequence[str]) -> None:
            connection = http.client.HTTPConnection(host, timeout=60)
            begin.wait()
            for id_ in ids:
                headers = {"Authorization": f"Bearer {token}"}
                connection.request("POST", f"/api/jobs/{self.model}/predictions", body_of([id_]), headers)
                answer = connection.getresponse()
                text = answer.read()
                if answer.status != 200:
                    errors.append(text.decode())
            connection.close()

        threads = [threading.Thread(target=ask_all, args=(ids,)) for ids in each]
        for thread in threads:
            thread.start()
        begin.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        if errors:
            raise SystemExit(f"{len(errors)} requests failed, one of them: {errors[0]}")
        return time.perf_counter() - began

    def cpu_s(self) -> dict[Role, float]:
        """CPU time of each node so far."""
        return self._cpu_s()

    def places(self, name: str) -> dict[str, float]:
        """Where a node's threads have spent how much of it; nothing without ``sample``."""
        path = self._sampled(name)
        return dict(json.loads(path.read_text())) if path.exists() else {}


def body_of(ids: Sequence[str]) -> bytes:
    """A request for these records."""
    return ("id\n" + "".join(f"{id_}\n" for id_ in ids)).encode()


@contextmanager
def sampling(out: Path) -> Iterator[None]:
    """Write into ``out`` where threads of this process have spent their CPU time, as JSON, once a second."""
    spent: collections.Counter[str] = collections.Counter()

    def look() -> None:
        written, own, before = time.monotonic(), threading.get_ident(), dict[int, float]()
        while True:
            time.sleep(SAMPLE_S)
            for thread, frame in sys._current_frames().items():
                if thread != own:
                    now = time.clock_gettime(time.pthread_getcpuclockid(thread))
                    spent[place_of(frame)] += max(now - before.get(thread, now), 0.0)  # type: ignore[assignment]
                    before[thread] = now
            if time.monotonic() - written > 1:
                written = time.monotonic()
                out.with_suffix(".tmp").write_text(json.dumps(spent))
                out.with_suffix(".tmp").replace(out)

    threading.Thread(target=look, daemon=True).start()
    yield


def place_of(frame: FrameType | None) -> str:
    """The function of this project in which a thread works, and what that calls."""
    assert frame is not None
    inner = frame.f_code.co_name
    while frame and "vfl_node" not in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None:
        return f"elsewhere: {inner}"
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name} ({inner})"


def measure(serving: Serving, what: str, run: Callable[[], Sequence[float]], rate: int = 0) -> None:
    """Print a row: median and 90 % of the seconds that ``run`` finds; with ``rate`` requests in all, requests a second."""
    before = {role: serving.places(role) for role in ROLES}
    began, cpu, own = time.perf_counter(), serving.cpu_s(), time.process_time()
    seconds = list(run())
    requests, after = rate or len(seconds), serving.cpu_s()
    each = [after[role] - cpu[role] for role in ROLES] + [time.process_time() - own]
    spent = " | ".join(f"{1000 * each_s / requests:.1f}" for each_s in each)
    wall = time.perf_counter() - began
    median, most = statistics.median(seconds), sorted(seconds)[int(0.9 * len(seconds))]
    times = f"{1000 * median:.1f} | {1000 * most:.1f}" if not rate else f"{rate / wall:.0f}/s | –"
    print(f"| {serving.asker} | {what} | {requests} | {times} | {spent} |", flush=True)
    for role in ROLES if any(before.values()) else ():
        time.sleep(1.2)
        ms = {place: 1000 * (s - before[role].get(place, 0.0)) / requests for place, s in serving.places(role).items()}
        places = sorted(ms, key=lambda place: -ms[place])[:SHOWN]
        print(f"    {role}: {sum(ms.values()):7.2f} CPU ms a request in threads of Python, of it")
        print("\n".join(f"    {role}: {ms[place]:7.2f}  {place}" for place in places))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--to", choices=ROLES)
    parser.add_argument("--limit", type=float)
    parser.add_argument("--sample", action="store_true")
    options = parser.parse_args()
    print("| to | what | requests | median ms | 90 % | CPU ms a request, active | passive | clients |")
    print("|---|---|---|---|---|---|---|---|")
    for role in [options.to] if options.to else ROLES:
        with Serving(role, options.records, options.batch_size, sample=options.sample, limit=options.limit) as serving:
            measure_all(serving, options)


def measure_all(serving: Serving, options: argparse.Namespace) -> None:
    """Print the rows of one direction."""
    new, drawn = serving.one_of_each_batch(), random.Random(2)
    serving.ask(new[:1])  # begins the service
    ids = [new[1 + place % (len(new) - 1)] for place in range(options.requests)]
    first = ids[: len(new) - 1]
    measure(serving, "one record, first touch", lambda: [serving.ask([id_]) for id_ in first])
    measure(serving, "one record, again", lambda: [serving.ask([id_]) for id_ in ids])
    numbers = serving.records[serving.asker]
    many = min(MANY, options.records)
    several = [list(spelled(drawn.sample(numbers, many))) for _ in range(max(2, options.requests // 10))]
    measure(serving, f"{many} records", lambda: [serving.ask(each) for each in several])
    each = [list(spelled(drawn.choices(numbers, k=options.requests))) for _ in range(options.clients)]
    measure(
        serving,
        f"one record, {options.clients} clients at once",
        lambda: [serving.ask_together(each)],
        rate=options.clients * options.requests,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--node"]:
        path, sys.argv = Path(sys.argv[2]), ["vfl-node", *sys.argv[3:]]
        with sampling(path):
            runpy.run_module("vfl_node", run_name="__main__")
    else:
        main()
