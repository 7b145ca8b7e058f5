"""Real nodes, a process each, over mutual TLS: on loopback, or in network namespaces with slow links between.

Of two nodes, a job that only aligns is submitted by the command line, as an owner would. Each node reads its
table from a CSV file of five columns. What a process has spent is read from /proc when the job
is submitted, when its node says that the alignment begins, and when the job is done.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import yaml
from typing_extensions import Self

from benchmarks.measure import Row, Run, check, cpu_s, ladder_us, length, operations, peak_bytes, sets, spelled, terms
from vfl_node.crypto.kernels import kernel
from vfl_node.job import Job, Parties
from vfl_node.node.setup import certify, init
from vfl_node.roles import Role

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
WITH_COORDINATOR: tuple[Role, Role, Role] = (*ROLES, "coordinator")


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


@contextlib.contextmanager
def slow_triangle(program: str) -> Iterator[Places]:
    """Three network namespaces, each two of them joined by a slow link, for as long as the context lasts; needs root.

    Args:
        program: ``PROGRAM A B DELAY_US BITS_S LOSS_PPM QUEUE_MS`` makes the TUN devices A and B, says so in a line, and joins
            them, with this delay and rate each way, as long as it runs.
    """
    namespaces = [f"vfl-{role}" for role in WITH_COORDINATOR]
    hosts = [f"10.97.0.{place}" for place in range(1, 4)]
    links = []
    try:
        for namespace in namespaces:
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        for ends in itertools.combinations(range(3), 2):
            devices = [f"vfl-{own}-{peer}" for own, peer in (ends, ends[::-1])]
            command = [program, *devices, str(RTT_MS * 500), str(MBIT_S * 1_000_000), "0", "200"]
            link = subprocess.Popen(command, stdout=subprocess.PIPE)
            links.append(link)
            assert link.stdout
            link.stdout.readline()
            for own, peer, device in zip(ends, ends[::-1], devices, strict=True):
                _ip("link", "set", device, "netns", namespaces[own])
                _ip("-n", namespaces[own], "addr", "add", hosts[own], "peer", hosts[peer], "dev", device)
                _ip("-n", namespaces[own], "link", "set", device, "up", "txqueuelen", "2000")
        places = [Place(("ip", "netns", "exec", *namespace), host) for *namespace, host in zip(namespaces, hosts, strict=True)]
        yield dict(zip(WITH_COORDINATOR, places, strict=True))
    finally:
        for link in links:
            link.terminate()
            link.wait()
        for namespace in namespaces:
            subprocess.run(["ip", "netns", "del", namespace], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def protocol_row(protocol: str, group: str, ids: int, start_up: int, places: Places) -> Row:
    """One job between two new nodes, and before it a small one."""
    where, rate = ("loopback", None) if places is LOOPBACK else (f"{RTT_MS} ms, {MBIT_S} Mbit/s", MBIT_S)
    before = ladder_us()
    with Pair(places) as pair:
        few = pair.run(protocol, group, start_up)
        many = pair.run(protocol, group, ids)
    return Row("vfl-node", where, rate, kernel().name, protocol, group, (before + ladder_us()) / 2, many, few)


class Nodes:
    """Nodes that are processes of this machine; a context manager that ends them.

    Args:
        places: where each runs, by its name.
        roles: of those whose name is not their role.
    """

    def __init__(self, places: Mapping[str, Place] | Places, roles: Mapping[str, Role] = MappingProxyType({})) -> None:
        self._places: dict[str, Place] = dict(places.items())
        self._roles: dict[str, Role] = {name: roles.get(name, cast(Role, name)) for name in self._places}
        self._scratch = tempfile.TemporaryDirectory(prefix="vfl-bench-")
        self._folders = {name: Path(self._scratch.name, name) for name in self._places}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._make_keys()
            self._meet()
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

    def _make_keys(self) -> None:
        """A folder for each, with certificates of one authority."""
        for name, folder in self._folders.items():
            init(name, self._roles[name], folder, mode="shared")
        certify(list(self._folders.values()), Path(self._scratch.name, "authority"))

    def _meet(self) -> None:
        """Start all nodes."""
        raise NotImplementedError

    def _start(self, name: str, **settings: Any) -> None:
        folder, config = self._folders[name], yaml.safe_load(self._config(name).read_text())
        config.pop("listen")
        config |= {"http": "127.0.0.1:0", "peer_wait_s": 60, "policy": {"preset": "trial"}}
        self._config(name).write_text(yaml.safe_dump(config | settings))
        with (folder / "log").open("wb") as log:
            command = ["--role", self._roles[name], "--config", str(self._config(name))]
            self._processes[name] = self._vfl_node(name, command, stdout=log, stderr=log)

    def _vfl_node(self, name: str, arguments: list[str], **streams: Any) -> subprocess.Popen[bytes]:
        command = [*self._places[name].command, sys.executable, "-m", "vfl_node", *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **streams)

    def _running(self, name: str) -> dict[str, Any]:
        """Where the node listens, once it does."""
        path, limit = self._folders[name] / "state" / "running.json", time.monotonic() + _START_S
        while not path.exists():
            if self._processes[name].poll() is not None or time.monotonic() > limit:
                raise SystemExit(f"the {name} node did not start:\n{self._log(name)}")
            time.sleep(_LOOK_S)
        return json.loads(path.read_text())

    def _reported(self, name: str, job_id: str) -> dict[str, Any]:
        """A node's report of a job."""
        return json.loads((self._folders[name] / "state" / "jobs" / job_id / "artefacts" / "report.json").read_text())

    def _config(self, name: str) -> Path:
        return self._folders[name] / "node.yaml"

    def _log(self, name: str) -> str:
        return (self._folders[name] / "log").read_text(errors="replace")


class Three(Nodes):
    """Two data parties and a coordinator."""

    def run(self, job: Mapping[str, Any], tables: Mapping[Role, Path]) -> dict[str, Any]:
        """The active party's report of a job over these tables."""
        for role, table in tables.items():
            shutil.copy(table, self._folders[role] / "table.parquet")
        spec = self._folders["active"] / "job.yaml"
        spec.write_text(yaml.safe_dump(dict(job)))
        command = ["submit", str(spec), "--config", str(self._config("active")), "--wait"]
        with self._vfl_node("active", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            said = process.stdout.read().decode() if process.stdout else ""
        if process.returncode:
            raise SystemExit(said)
        return self._reported("active", said.split()[0])

    def _meet(self) -> None:
        table = {"data": {"path": "table.parquet"}}
        listen = {role: f"{place.host}:0" for role, place in self._places.items()}
        self._start("coordinator", listen=listen["coordinator"], peers={"active": {}, "passive": {}})
        known = {"coordinator": {"address": self._running("coordinator")["listen"]}}
        labelled = {"data": {**table["data"], "label": "label"}}
        self._start("active", listen=listen["active"], peers={**known, "passive": {}}, **labelled)
        known["active"] = {"address": self._running("active")["listen"]}
        self._start("passive", peers=known, **table)
        self._running("passive")


class Pair(Nodes):
    """Two nodes that know one another."""

    def __init__(self, places: Places) -> None:
        super().__init__({role: places[role] for role in ROLES})

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

        reports = {role: self._reported(role, said.split()[0])["alignment"] for role in ROLES}
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

    def _meet(self) -> None:
        table = {"data": {"path": "table.csv"}}
        self._start("active", listen=f"{self._places['active'].host}:0", peers={"passive": {}}, **table)
        address = self._running("active")["listen"]
        self._start("passive", peers={"active": {"address": address}}, **table)
        self._running("passive")

    def _aligning(self, job: str) -> set[Role]:
        """The parties that say that the job's alignment has begun: both have read their tables then."""
        begun = [f'"job": "{job}-', '"event": "phase"', '"phase": "align"']
        return {role for role in ROLES if any(all(part in line for part in begun) for line in self._log(role).splitlines())}

    def _cpu_s(self) -> dict[Role, float]:
        return {role: cpu_s(self._processes[role].pid) for role in ROLES}


def _write_table(path: Path, numbers: range) -> None:
    """A CSV file of an id column and four of numbers."""
    with path.open("w") as table:
        table.write("id,a,b,c,d\n")
        table.writelines(
            f"{id_},{i % 97},{i % 89},{i % 83}.5,{i % 2}\n" for i, id_ in zip(numbers, spelled(numbers), strict=True)
        )
