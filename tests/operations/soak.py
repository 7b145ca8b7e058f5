"""Two nodes at work for hours, with rotated certificates and kills: does anything grow? ``make soak``, MINUTES=120 by default.

    python -m tests.operations.soak --minutes 120 --seed 7 --out runs/soak

About 400 small jobs in two hours, at times drawn. In the first two thirds a node is killed (SIGKILL) every few minutes and
comes back. In the last third both live on, so that what grows slowly is seen. Both owners renew the certificate every ten
minutes.

Every 30 seconds, when no job is under way, it counts what the jobs before have left behind: memory (RSS), open files and
threads of both nodes from /proc, the size of the index and of SQLite's log beside it, and the series of /metrics. The exit
status is 0 if

- none of RSS, files and threads of a node grows: by the Theil-Sen slope, the median over all pairs of samples of one life of
  the process, it would grow in two hours by less than ``TOLERANCE``. A run of less than an hour is too short to judge that;
- the index is smaller than 5 MiB, and so is the log beside it (SQLite writes it anew from 4 MiB on);
- /metrics has 2,000 series at most;
- every job has ended as done, also those that were under way when a node was killed;
- the port shows each renewed certificate, without a restart;
- both ledgers verify, and no log has an error that a kill does not explain.

It writes samples to ``samples.jsonl`` as they come; at the end all to ``soak.json``, the table to ``soak.txt``, and both logs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from tests.conftest import make_trial
from tests.node.nodes import ENDED
from tests.trust.test_new_authority_nodes import Paired
from vfl_node.errors import UsageError

JOBS_A_MINUTE, SAMPLE_S, ROTATE_S, KILL_S = 400 / 120, 30.0, 600.0, (150.0, 330.0)
INDEX_BYTES, SERIES, LONG_S = 5 << 20, 2000, 3600.0
WARM_S = 300.0
"""A process grows at first: what it imports for each kind of job, and pools. Samples of a life count from then on."""
TOLERANCE = 0.10
"""Of the level. At rest files differ by one and memory by some hundredths, so noise stays below this. A leak does not: one file
or thread kept by each hundredth job is 4 in two hours, a fifth of what a node has; 130 KB kept by each job are a tenth of its
memory."""
AFTER_KILL_S = 60.0
"""So long after a kill an error in a log may come of it."""

TRAIN = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 2}\n"
T = TypeVar("T")
KINDS = [
    f"align: {{protocol: {protocol}}}\n{rest}" for protocol, rest in (("psi", ""), ("psu", ""), ("psi", TRAIN), ("psu", TRAIN))
]


@dataclass(frozen=True)
class Sample:
    """What a node has, at rest.

    Attributes:
        at: seconds since the run began.
        life: number of this process of the node, from 0.
        age_s: since this process was ready.
        jobs: how many had ended before.
    """

    at: float
    node: str
    life: int
    age_s: float
    jobs: int
    rss_mib: float
    files: int
    threads: int
    children: int
    index: int
    index_log: int
    series: int


def find_slope(samples: list[Sample], figure: str) -> tuple[float, int]:
    """Theil-Sen slope of a figure per second over pairs of one life, and of how many pairs it is the median."""
    slopes = [
        (getattr(b, figure) - getattr(a, figure)) / (b.at - a.at)
        for a, b in combinations(samples, 2)
        if a.life == b.life and b.at > a.at
    ]
    return (statistics.median(slopes) if slopes else 0.0), len(slopes)


class Soak:
    """The run.

    Args:
        nodes: both, running.
        minutes: how long it lasts.
        seed: of all that is drawn.
        out: folder for what it writes.
    """

    def __init__(self, nodes: Paired, minutes: float, seed: int, out: Path) -> None:
        self.out, self.nodes, self.length, self.chance = out, nodes, 60 * minutes, random.Random(seed)
        self.samples: list[Sample] = []
        self.kills: list[dict[str, Any]] = []
        self.rotations: list[dict[str, Any]] = []
        self.jobs: list[str] = []
        self.faults: list[str] = []
        self.lives = dict.fromkeys(nodes.roles, 0)
        self.born = dict.fromkeys(nodes.roles, 0.0)
        self.began = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self.began

    def log(self, what: str) -> None:
        print(f"{self.now() / 60:6.1f} min  {what}", flush=True)

    def draw_kills(self) -> Iterator[float]:
        """When a node is killed, in the first two thirds."""
        at = self.chance.uniform(*KILL_S) / 3
        while at < self.length * 2 / 3:
            yield at
            at += self.chance.uniform(*KILL_S)

    def play(self) -> None:
        """All of it; what happens at one time happens in the order of this list."""
        self.began = time.monotonic()
        events = [
            *((self.chance.uniform(0, self.length - 30), self.begin) for _ in range(round(JOBS_A_MINUTE * self.length / 60))),
            *((at, self.kill) for at in self.draw_kills()),
            *((at, self.rotate) for at in _every(min(ROTATE_S, self.length / 3), self.length - 5)),
            *((at, self.sample) for at in _every(SAMPLE_S, self.length)),
        ]
        for at, act in sorted(events, key=lambda event: event[0]):
            time.sleep(max(0.0, at - self.now()))
            act()
        self.rest(300)
        self.sample()

    def begin(self) -> None:
        """Submit a job."""
        text = self.chance.choice(KINDS)
        self.jobs.append(self.ask(lambda: self.nodes.submit(text)))

    def ask(self, question: Callable[[], T]) -> T:
        """An answer of a node, which on a busy machine may come late: it is asked up to five times, and the log says so."""
        for _ in range(4):
            try:
                return question()
            except UsageError as error:
                self.log(f"asked again: {error.message}")
                time.sleep(2)
        return question()

    def command(self, word: str, name: str, *words: str) -> tuple[int, str]:
        """Run a command of the owner of a node; its status, and what it says."""
        said = self.nodes.say(word, *words, "--config", str(self.nodes.config(name)))
        return said.wait(), "".join(said.communicate())

    def kill(self) -> None:
        """A node dies soon after a job has begun, and comes back a little later."""
        self.begin()
        time.sleep(self.chance.uniform(0, 4))
        name = self.chance.choice(list(self.nodes.roles))
        under_way = sum(view["state"] not in ENDED for view in self.ask(self.nodes.client("clinic").jobs))
        self.kills.append({"node": name, "at": time.time(), "under_way": under_way})
        self.nodes.kill(name)
        self.log(f"{name} is killed, {under_way} job(s) under way")
        time.sleep(self.chance.uniform(0.5, 5))
        self.nodes.start(name)
        self.lives[name] += 1
        self.born[name] = self.now()

    def rotate(self) -> None:
        """Both owners renew the certificate; the clinic's port shows the new one without a restart."""
        for name in self.nodes.roles:
            status, said = self.command("renew", name)
            if status:
                self.faults.append(f"renew at {name}: {said}")
        shown = _shown(self.nodes.running("clinic")["listen"])
        own = x509.load_pem_x509_certificate((self.nodes.folder / "clinic" / "keys" / "node.crt").read_bytes())
        if shown != own.public_bytes(Encoding.DER):
            self.faults.append(f"after the rotation at {self.now():.0f} s the port shows the certificate before")
        self.rotations.append({"at": self.now(), "sha256": hashlib.sha256(shown).hexdigest()[:16]})
        self.log(f"both certificates are renewed; {len(self.jobs)} jobs so far, {len(self.kills)} kills")

    def rest(self, seconds: float = 20.0) -> bool:
        """Wait until no job is under way and both are linked; False if that takes longer."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            with suppress(UsageError):  # a node that is busy answers late
                views = self.nodes.client("clinic").jobs()
                if all(view["state"] in ENDED for view in views) and all(map(self.nodes.connected, self.nodes.roles)):
                    return True
            time.sleep(0.5)
        return False

    def sample(self) -> None:
        """Count what each node has; not where jobs go on and on."""
        if not self.rest():
            return
        time.sleep(1)  # conversations end a moment after their job
        for name in self.nodes.roles:
            pid, state = self.nodes.processes[name].pid, self.nodes.folder / name / "state"
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            text = self.ask(lambda name=name: self.nodes.client(name)._fetch("GET", "/metrics")).decode()
            self.keep(
                Sample(
                    round(self.now(), 1),
                    name,
                    self.lives[name],
                    round(self.now() - self.born[name], 1),
                    len(self.jobs),
                    round(int(status["VmRSS"].split()[0]) / 1024, 1),
                    len(list(Path(f"/proc/{pid}/fd").iterdir())),
                    int(status["Threads"]),
                    len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()),
                    (state / "jobs.sqlite").stat().st_size,
                    sum(file.stat().st_size for file in state.glob("jobs.sqlite-wal")),
                    sum(not line.startswith("#") for line in text.splitlines()),
                )
            )

    def keep(self, sample: Sample) -> None:
        self.samples.append(sample)
        with (self.out / "samples.jsonl").open("a") as file:
            file.write(json.dumps(asdict(sample)) + "\n")

    def judge(self) -> list[dict[str, Any]]:
        """A row for each claim: what, its figure, its bound, and whether it holds."""
        rows: list[dict[str, Any]] = []

        def claim(what: str, figure: Any, bound: str, holds: bool) -> None:
            rows.append({"claim": what, "figure": figure, "bound": bound, "holds": holds})

        judged, warm = self.length >= LONG_S, min(WARM_S, self.length / 6)
        bound = f"< {TOLERANCE:.0%}" if judged else "not judged: too short"
        for name in self.nodes.roles:
            own = [each for each in self.samples if each.node == name]
            old = [each for each in own if each.age_s >= warm]
            for figure in ("rss_mib", "files", "threads"):
                slope, pairs = find_slope(old, figure)
                level = statistics.median(getattr(each, figure) for each in own)
                grows = slope * 7200 / level
                text = f"{level:.0f}, {100 * grows:+.1f} % in two hours ({pairs} pairs)"
                claim(f"{figure} of {name}", text, bound, not judged or (bool(pairs) and grows < TOLERANCE))
            claim(f"children of {name}", children := max(each.children for each in own), "0", children == 0)
            for figure in ("index", "index_log"):
                size = max(getattr(each, figure) for each in own)
                claim(f"{figure} of {name}", size, f"< {INDEX_BYTES}", size < INDEX_BYTES)
            claim(f"series of {name}", series := max(each.series for each in own), f"<= {SERIES}", series <= SERIES)
            status, said = self.command("ledger", name, "--verify")
            good = status == 0 and "are as they were written" in said
            claim(f"ledger of {name}", "verified" if good else said, "verified", good)
            ends = {view["id"]: view["state"] for view in self.ask(self.nodes.client(name).jobs)}
            done = sum(ends.get(job) == "done" for job in self.jobs)
            claim(f"jobs done at {name}", f"{done} of {len(self.jobs)}", "all", done == len(self.jobs))
            errors = list(self.unexplained(name))
            claim(f"errors in the log of {name}", errors[:5] or 0, "none but of kills", not errors)
        claim("kills", len(self.kills), ">= 1", bool(self.kills))
        claim("kills with a job under way", sum(bool(kill["under_way"]) for kill in self.kills), "-", True)
        claim("rotations", len({each["sha256"] for each in self.rotations}), "each shown", not self.faults)
        rows[-1]["figure"] = self.faults or rows[-1]["figure"]
        return rows

    def unexplained(self, name: str) -> Iterator[str]:
        """Errors in the log of a node, and lines that are no entry of it, that no kill explains."""
        for line in self.nodes.log(name).splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                yield line[:200]
                continue
            at = datetime.fromisoformat(entry["ts"].replace("Z", "+00:00")).timestamp()
            killed = any(0 <= at - kill["at"] <= AFTER_KILL_S for kill in self.kills)
            if entry["level"] in ("error", "critical") and not killed:
                yield line[:300]


def _every(seconds: float, last: float) -> Iterator[float]:
    return (number * seconds for number in range(1, int(last / seconds) + 1))


def _shown(address: str) -> bytes:
    """The certificate that a port shows."""
    host, _, port = address.rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)), timeout=20))


def main() -> int:
    """The run; the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "samples.jsonl").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="vfl-soak-") as folder:
        base, rows, broken = Path(folder), [], ""
        nodes = Paired(base, make_trial(base))
        nodes.as_users_start_them()
        budgets = {"everyone": {"budgets": {"alignments": 10_000, "trainings": 10_000, "changes": 10_000}}}
        nodes.configure("clinic", **budgets)
        soak = Soak(nodes, given.minutes, given.seed, given.out)
        try:
            nodes.start_both(**budgets)
            soak.play()
            rows = soak.judge()
        except Exception as error:  # noqa: BLE001 - what was seen until then is written
            broken = f"{type(error).__name__}: {error}"[:3000]
        finally:
            for name in nodes.roles:
                (given.out / f"{name}.log").write_text(nodes.log(name))
            nodes.end_all()
    holds = not broken and all(row["holds"] for row in rows)
    kept = {
        "minutes": given.minutes,
        "seed": given.seed,
        "broken": broken,
        "claims": rows,
        "kills": soak.kills,
        "rotations": soak.rotations,
        "jobs": len(soak.jobs),
        "samples": [asdict(each) for each in soak.samples],
    }
    (given.out / "soak.json").write_text(json.dumps(kept, indent=1) + "\n")
    lines = [f"{'ok  ' if row['holds'] else 'FAIL'}  {row['claim']:<28}  {row['figure']}  ({row['bound']})" for row in rows]
    lines += [f"FAIL  the run broke off: {broken}"] if broken else []
    table = "\n".join([*lines, "holds" if holds else "does not hold"])
    (given.out / "soak.txt").write_text(table + "\n")
    print(table)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
