"""Two real nodes, a process each, over mutual TLS: on loopback, or in two network namespaces with a slow link between.

A job that only aligns is submitted by the command line, as an owner would. Each node reads its
table from a CSV file of five columns. What a process has spent is read from /proc when the job
is submitted, when its node says that the alignment begins, and when the job is done.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import Row, Run, check, cpu_s, ladder_us, length, operations, peak_bytes, sets, spelled, terms
from vfl_node.job import Job, Parties
from vfl_node.node.setup import certify, init
from vfl_node.settings import Role

ROLES: tuple[Role, Role] = ("active", "passive")
RTT_MS, MBIT_S = 20, 100

_START_S, _STOP_S, _LOOK_S = 60.0, 10.0, 0.05


@dataclass(frozen=True)
class Place:
    """Where a node runs.

    Attributes:
        command: begins every command there.
        host: its address.
    """

    command: tuple[str, ...]
    host: str


Places = Mapping[Role, Place]

LOOPBACK: Places = dict.fromkeys(ROLES, Place((), "127.0.0.1"))


@contextlib.contextmanager
def wan(tool: str) -> Iterator[Places]:
    """Two network namespaces joined by a slow link, for as long as the context lasts; needs root.

    Args:
        tool: a command. ``TOOL up FOLDER RTT_MS MBIT_S`` makes the namespaces ``wan-a`` (10.98.0.1) and
            ``wan-b`` (10.98.0.2), ``TOOL down FOLDER`` removes them.
    """
    with tempfile.TemporaryDirectory(prefix="vfl-bench-wan-") as folder:
        try:
            subprocess.run([tool, "up", folder, str(RTT_MS), str(MBIT_S)], check=True, stdout=subprocess.DEVNULL)
            a, b = (Place(("ip", "netns", "exec", f"wan-{side}"), f"10.98.0.{i}") for i, side in enumerate("ab", 1))
            yield {"active": a, "passive": b}
        finally:
            subprocess.run([tool, "down", folder], check=False, stdout=subprocess.DEVNULL)


def protocol_row(protocol: str, group: str, ids: int, start_up: int, places: Places) -> Row:
    """One job between two new nodes, and before it a small one."""
    where, rate = ("loopback", None) if places is LOOPBACK else (f"{RTT_MS} ms, {MBIT_S} Mbit/s", MBIT_S)
    before = ladder_us()
    with Pair(places) as pair:
        few = pair.run(protocol, group, start_up)
        many = pair.run(protocol, group, ids)
    return Row("vfl-node", where, rate, protocol, group, (before + ladder_us()) / 2, many, few)


class Pair:
    """Two nodes that know one another; a context manager that ends them.

    Args:
        places: where each runs.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._scratch = tempfile.TemporaryDirectory(prefix="vfl-bench-")
        self._folders: dict[Role, Path] = {role: Path(self._scratch.name, role) for role in ROLES}
        self._processes: dict[Role, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Pair:
        try:
            for role, folder in self._folders.items():
                init(role, role, folder)
            certify(list(self._folders.values()), Path(self._scratch.name, "authority"))
            self._start("active", listen=f"{self._places['active'].host}:0", peers={"passive": {}})
            address = self._running("active")["listen"]
            self._start("passive", peers={"active": {"address": address}}, accept_jobs_from=["active"])
            self._running("passive")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._scratch.cleanup()

    def run(self, protocol: str, group: str, ids: int) -> Run:
        """One job, from its submission until both have their reports."""
        for role, numbers in zip(ROLES, sets(ids), strict=True):
            _write_table(self._folders[role] / "table.csv", numbers)
        job = Job(
            name=f"{protocol}-{ids}", parties=Parties(active="active", passive=("passive",)), align=terms(protocol, group, ids)
        )
        spec = self._folders["active"] / "job.yaml"
        spec.write_text(yaml.safe_dump(job.model_dump(mode="json")))

        submitted, aligning = self._cpu_s(), dict[Role, float]()
        began = time.perf_counter()
        command = ["submit", str(spec), "--config", str(self._config("active")), "--wait"]
        with self._vfl_node("active", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            while process.poll() is None:
                for role in self._aligning(job.name) - aligning.keys():
                    aligning[role] = cpu_s(self._processes[role].pid)
                time.sleep(_LOOK_S)
            wall_s, done = time.perf_counter() - began, self._cpu_s()
            said = process.stdout.read().decode() if process.stdout else ""
        if process.returncode:
            raise SystemExit(said)

        reports = {role: self._report(role, said.split()[0]) for role in ROLES}
        for report in reports.values():
            check(job.name, report["rows"], length(protocol, ids))
        return Run(
            ids=ids,
            wall_s=wall_s,
            align_s=max(report["seconds"] for report in reports.values()),
            cpu_s={role: done[role] - submitted[role] for role in ROLES},
            align_cpu_s={role: done[role] - aligning.get(role, submitted[role]) for role in ROLES},
            peak_bytes={role: peak_bytes(self._processes[role].pid) for role in ROLES},
            sent_bytes={role: reports[role]["bytes_sent"] for role in ROLES},
            operations=operations(protocol, ids),
        )

    def _start(self, role: Role, **settings: Any) -> None:
        folder, config = self._folders[role], yaml.safe_load(self._config(role).read_text())
        config.pop("listen")
        config |= {"data": {"path": "table.csv"}, "http": "127.0.0.1:0", "peer_wait_s": 60, "limits": {"min_set_size": 1}}
        self._config(role).write_text(yaml.safe_dump(config | settings))
        with (folder / "log").open("wb") as log:
            command = ["--role", role, "--config", str(self._config(role))]
            self._processes[role] = self._vfl_node(role, command, stdout=log, stderr=log)

    def _vfl_node(self, role: Role, arguments: list[str], **streams: Any) -> subprocess.Popen[bytes]:
        command = [*self._places[role].command, sys.executable, "-m", "vfl_node", *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams)

    def _running(self, role: Role) -> dict[str, Any]:
        """Where the node listens, once it does."""
        path, limit = self._folders[role] / "state" / "running.json", time.monotonic() + _START_S
        while not path.exists():
            if self._processes[role].poll() is not None or time.monotonic() > limit:
                raise SystemExit(f"the {role} node did not start:\n{self._log(role)}")
            time.sleep(_LOOK_S)
        return json.loads(path.read_text())

    def _aligning(self, job: str) -> set[Role]:
        """The parties that say that the job's alignment has begun: both have read their tables then."""
        begun = [f'"job": "{job}-', '"event": "phase"', '"phase": "align"']
        return {role for role in ROLES if any(all(part in line for part in begun) for line in self._log(role).splitlines())}

    def _cpu_s(self) -> dict[Role, float]:
        return {role: cpu_s(process.pid) for role, process in self._processes.items()}

    def _report(self, role: Role, job_id: str) -> dict[str, Any]:
        path = self._folders[role] / "state" / "jobs" / job_id / "artefacts" / "report.json"
        return json.loads(path.read_text())["alignment"]

    def _config(self, role: Role) -> Path:
        return self._folders[role] / "node.yaml"

    def _log(self, role: Role) -> str:
        return (self._folders[role] / "log").read_text(errors="replace")


def _write_table(path: Path, numbers: range) -> None:
    """A CSV file of an id column and four of numbers."""
    with path.open("w") as table:
        table.write("id,a,b,c,d\n")
        table.writelines(
            f"{id_},{i % 97},{i % 89},{i % 83}.5,{i % 2}\n" for i, id_ in zip(numbers, spelled(numbers), strict=True)
        )
