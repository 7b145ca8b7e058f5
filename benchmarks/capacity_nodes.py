"""Jobs between real nodes, and what they take: CPU seconds of all their processes, memory, what is stored and what is sent."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.measure import cpu_s, peak_bytes
from benchmarks.nodes import Nodes, Place
from vfl_node.node.setup import init
from vfl_node.roles import Role
from vfl_node.settings.reading import load_settings
from vfl_node.transport.credentials import Credentials, load_credentials
from vfl_node.trust import pending
from vfl_node.trust.keys import own_card

ACTIVE, COORDINATOR = "clinic", "notary"
OTHERS = ("lab", "insurer", "bank", "shop")
"""Names of passive parties."""

COLUMNS = 16
"""Columns of each party, all of them numbers."""

NO_TREE: dict[str, Any] = {"compare": {"boosted_tree": False}}
"""Settings of the active party's node: scikit-learn would train a model of its own there, which is no part of the job."""

_HERE, _LOOK_S = Place((), "127.0.0.1"), 0.1


class MeasuredNodes(Nodes):
    """An active party, so many passive ones, and a coordinator where one has a part; one thread each.

    Args:
        passive: how many there are.
        coordinated: whether there is a coordinator.
    """

    def __init__(self, passive: int, *, coordinated: bool) -> None:
        self.passive = OTHERS[:passive]
        self.coordinator = COORDINATOR if coordinated else None
        roles: dict[str, Role] = {COORDINATOR: "coordinator"} if coordinated else {}
        roles[ACTIVE] = "active"
        for name in self.passive:
            roles[name] = "passive"
        super().__init__(dict.fromkeys(roles, _HERE), roles)
        self.data = (ACTIVE, *self.passive)
        self._written = 0

    def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """One job, over the tables that lie there, and what it takes; raises SystemExit if it fails."""
        spec = self._folders[ACTIVE] / "job.yaml"
        spec.write_text(yaml.safe_dump(dict(job)))
        stored, spent = self._stored(), {name: self._cpu_s(name) for name in self._processes}
        for process in self._processes.values():
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak begins anew
        began = time.monotonic()
        command = ["submit", str(spec), "--config", str(self._config(ACTIVE)), "--wait"]
        with (
            _Peaks({name: process.pid for name, process in self._processes.items()}, self._folders) as peaks,
            self._vfl_node(ACTIVE, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as submitter,
        ):
            said = submitter.stdout.read().decode() if submitter.stdout else ""
        if submitter.returncode:
            raise SystemExit("\n".join([said, *(self._log(name)[-2000:] for name in self._processes)]))
        wall_s, job_id = time.monotonic() - began, said.split()[0]
        self._await_end(job_id)
        reports = {name: self._reported(name, job_id) for name in self._processes}
        return {
            "wall_s": wall_s,
            "cpu_s": {name: self._cpu_s(name) - before for name, before in spent.items()},
            "peak_bytes": {name: peak_bytes(process.pid) + peaks.workers[name] for name, process in self._processes.items()},
            "disk_bytes": {name: most - stored[name] for name, most in peaks.stored.items()},
            "kept_bytes": {name: size - stored[name] for name, size in self._stored().items()},
            "sent_bytes": {
                name: sum(phase["bytes_sent"] for phase in report["phases"].values()) for name, report in reports.items()
            },
            "rows": reports[ACTIVE]["alignment"]["rows"],
        }

    def kept(self) -> dict[str, int]:
        """What the active party has for good: bytes of the index in use, of ledgers and their entries, and of other files."""
        state = self._folders[ACTIVE] / "state"
        with closing(sqlite3.connect(f"file:{state / 'jobs.sqlite'}?mode=ro", uri=True)) as index:
            size, pages, free = (
                index.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_size", "page_count", "freelist_count")
            )
        ledgers = [path.read_bytes() for path in state.glob("partners/*/ledger.log")]
        partners = folder_bytes(state / "partners")
        reports = sum(path.stat().st_size for path in state.glob("jobs/*/artefacts/report.*"))
        return {
            "index": size * (pages - free),
            "ledger": sum(map(len, ledgers)),
            "entries": sum(text.count(b"\n") for text in ledgers),
            "partners": partners - sum(map(len, ledgers)),
            "reports": reports,
            "other files of jobs": folder_bytes(state / "jobs") - reports,
        }

    def write_tables(self, rows: int) -> None:
        """So many records a party, all of them new: half are those of all parties, the others are of each alone."""
        rng, shared = np.random.default_rng(0), rows - rows // 2
        self._written += 1  # an earlier job may forbid another protocol over the same records
        score = np.zeros(shared)
        for place, name in enumerate(reversed(self.data)):
            values = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
            score += values[:shared] @ rng.normal(size=COLUMNS) / COLUMNS
            apart = np.arange(rows - shared) + (place + 1) * 10**9
            ids = pa.array([f"{self._written:03d}{number:012d}" for number in (*range(shared), *apart)])
            table: dict[str, Any] = {"id": ids, **{f"{name}{column}": values[:, column] for column in range(COLUMNS)}}
            if name == ACTIVE:
                odds = np.concatenate([score, np.zeros(rows - shared)])
                table["label"] = (rng.random(rows) < 1 / (1 + np.exp(-2 * odds))).astype(np.int8)
            pq.write_table(pa.table(table), self._folders[name] / "table.parquet")

    def _meet(self) -> None:
        self.write_tables(100)
        known: dict[str, dict[str, Any]] = {}
        for name in self._folders:
            relayed = self.passive if name in self.passive else ()
            peers = {
                other: {"relayed": True} if other in relayed else known.get(other, {})
                for other in self._folders
                if other != name
            }
            data = {"data": {"path": "table.parquet"}} if name in self.data else {}
            if name == ACTIVE:
                data = {"data": {**data["data"], "label": "label"}, **NO_TREE}
            listen = {} if name in self.passive else {"listen": "127.0.0.1:0"}
            self._start(name, peers=peers, **listen, **data)
            place = self._running(name)
            known[name] = {} if name in self.passive else {"address": place["listen"]}

    def _await_end(self, job_id: str) -> None:
        """All nodes have their reports."""
        limit = time.monotonic() + 60
        while not all(
            (self._folders[name] / "state" / "jobs" / job_id / "artefacts" / "report.html").exists() for name in self._processes
        ):
            if time.monotonic() > limit:
                raise SystemExit(f"no report of {job_id} at some node")
            time.sleep(0.05)
        time.sleep(0.3)  # the index is told of the end

    def _cpu_s(self, name: str) -> float:
        pid = self._processes[name].pid
        return sum(map(cpu_s, (pid, *children(pid))))

    def _stored(self) -> dict[str, int]:
        return {name: folder_bytes(folder / "state") for name, folder in self._folders.items()}


class PairedNodes(MeasuredNodes):
    """An active and a passive party, each its own authority, whose owners have compared words: their ledgers are signed."""

    def __init__(self) -> None:
        super().__init__(1, coordinated=False)

    def _make_keys(self) -> None:
        for name, folder in self._folders.items():
            init(name, self._roles[name], folder)

    def _meet(self) -> None:
        self.write_tables(100)
        (lab,), words = self.passive, ("acorn", "zebra")
        cards = {name: own_card(_credentials(self._config(name))) for name in self.data}
        clinic_settings, lab_settings = (load_settings(self._config(name)) for name in (ACTIVE, lab))
        pending.accept(clinic_settings, pending.keep(clinic_settings, cards[lab], None, "passive", words))
        self._start(ACTIVE, listen="127.0.0.1:0", data={"path": "table.parquet", "label": "label"}, **NO_TREE)
        address = self._running(ACTIVE)["listen"]
        pending.accept(lab_settings, pending.keep(lab_settings, cards[ACTIVE], address, "active", words))
        self._start(lab, data={"path": "table.parquet"})
        self._running(lab)


def _credentials(config: Path) -> Credentials:
    settings = load_settings(config)
    assert settings.tls
    return load_credentials(settings.tls, name=settings.name, federation=settings.federation, peers=settings.authorities)


class _Peaks(threading.Thread):
    """Looks all the time how much nodes store, and what memory their child processes have.

    Attributes:
        stored: by party, the most bytes in its folder of state.
        workers: by party, the most memory of all its children together.
    """

    def __init__(self, pids: Mapping[str, int], folders: Mapping[str, Path]) -> None:
        super().__init__(daemon=True)
        self._pids, self._folders, self._over = pids, folders, threading.Event()
        self.stored, self.workers = dict.fromkeys(pids, 0), dict.fromkeys(pids, 0)

    def __enter__(self) -> _Peaks:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(_LOOK_S):
            for name, pid in self._pids.items():
                held = folder_bytes(self._folders[name] / "state") + nameless_bytes(pid)
                self.stored[name] = max(self.stored[name], held)
                self.workers[name] = max(self.workers[name], sum(map(resident_bytes, children(pid))))


def children(pid: int) -> list[int]:
    """Processes that this one has started and not waited for."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            found += map(int, path.read_text().split())
    return found


def resident_bytes(pid: int) -> int:
    """Memory of a process now; 0 if it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def nameless_bytes(pid: int) -> int:
    """Bytes of files on a disk that a process has open and that have no name any more, such as divided lists."""
    total = 0
    with suppress(OSError):  # the process has ended
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                found = path.stat()
                if S_ISREG(found.st_mode) and not found.st_nlink and "/memfd:" not in str(path.readlink()):
                    total += found.st_size
    return total


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below it, at this moment."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # removed meanwhile
                total += Path(place, name).lstat().st_size
    return total
