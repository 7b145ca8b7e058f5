"""Federations of two or three real nodes, each a process, as a user starts them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from vfl_node.node.client import Client
from vfl_node.node.setup import certify, init

Program = Callable[[list[str], Path], Any]
"""Starts a node with these arguments, which writes to this log; a process, as of :class:`subprocess.Popen`."""


FORKS = multiprocessing.get_context("forkserver")

TWO = {"clinic": "active", "lab": "passive"}
THREE = TWO | {"notary": "coordinator"}


class Child:
    """A process forked from one that has imported a node, a tenth of a start's work; as a :class:`subprocess.Popen`."""

    def __init__(self, run: Callable[..., None], *arguments: Any) -> None:
        self._process = FORKS.Process(target=run, args=arguments, daemon=True)
        self._process.start()
        self.kill = self._process.kill

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)


class Federation:
    """A clinic that listens and a lab that dials, each a process; and a notary, where it has a part, that both dial.

    Attributes:
        programs: name → what it runs as a node.
    """

    def __init__(self, folder: Path, trial: Any, roles: Mapping[str, str] = TWO) -> None:
        self.folder = folder
        self.trial = trial
        self.roles = roles
        self.processes: dict[str, Any] = {}
        self.programs: dict[str, Program] = dict.fromkeys(roles, self.command(sys.executable, "-m", "vfl_node"))
        for name, role in roles.items():
            init(name, role, folder / name)  # type: ignore[arg-type]
            self.configure(name, listen=None, **({"data": {"path": str(trial.files[name])}} if name in trial.files else {}))
        certify([folder / name for name in roles], folder / "authority")

    def configure(self, name: str, **settings: Any) -> Path:
        path = self.folder / name / "node.yaml"
        config = yaml.safe_load(path.read_text()) | {"http": "127.0.0.1:0", "peer_wait_s": 30} | settings
        path.write_text(yaml.safe_dump(config))
        return path

    def start(self, name: str, **settings: Any) -> None:
        path = self.configure(name, **settings)
        (self.folder / name / "state" / "running.json").unlink(missing_ok=True)
        arguments = ["--role", self.roles[name], "--config", str(path)]
        self.processes[name] = self.programs[name](arguments, self.folder / f"{name}.log")
        limit = time.monotonic() + 60
        while not (self.folder / name / "state" / "running.json").exists():
            assert self.processes[name].poll() is None, (self.folder / f"{name}.log").read_text()
            assert time.monotonic() < limit
            time.sleep(0.05)

    def start_both(self, **lab: Any) -> None:
        self.start("clinic", listen="127.0.0.1:0", peers={"lab": {}})
        address = self.running("clinic")["listen"]
        self.configure("clinic", listen=address)  # found there again after a restart
        self.start("lab", **({"peers": {"clinic": {"address": address}}, "accept_jobs_from": ["clinic"]} | lab))

    def start_three(self, **settings: Any) -> None:
        """The clinic and the lab may submit jobs at the others."""
        accepted = {"accept_jobs_from": ["clinic", "lab"]}
        self.start("notary", listen="127.0.0.1:0", peers={"clinic": {}, "lab": {}}, **accepted, **settings)
        notary = {"notary": {"address": self.running("notary")["listen"]}}
        self.start("clinic", listen="127.0.0.1:0", peers={"lab": {}} | notary, accept_jobs_from=["lab"], **settings)
        clinic = {"clinic": {"address": self.running("clinic")["listen"]}}
        for name in ("notary", "clinic"):
            self.configure(name, listen=self.running(name)["listen"])  # found there again after a restart
        self.start("lab", peers=clinic | notary, accept_jobs_from=["clinic"], **settings)
        self.wait_until(lambda: all(self.connected(name) for name in self.roles))

    def connected(self, name: str) -> bool:
        """Whether its links with all others are up."""
        return all(peer["online"] for other, peer in self.client(name).health()["peers"].items() if other in self.roles)

    def running(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name / "state" / "running.json").read_text())

    def client(self, name: str) -> Client:
        return Client(self.running(name)["http"], (self.folder / name / "state" / "token").read_text())

    def submit(self, text: str = "") -> str:
        return self.client("clinic").submit(self.trial.job(text).canonical())["id"]

    def view(self, name: str, job_id: str) -> dict[str, Any]:
        """The job as ``name`` sees it; empty before it has heard of it."""
        return next((view for view in self.client(name).jobs() if view["id"] == job_id), {})

    def in_training(self, name: str, job_id: str) -> bool:
        """Whether both are: the active party trains a model alone before, and hears nothing meanwhile."""
        view = self.view(name, job_id)
        return bool(view.get("phase") == "train" and view["done"])

    def end(self, name: str, job_id: str) -> dict[str, Any]:
        return list(self.client(name).watch(job_id))[-1]

    def report(self, name: str, job_id: str) -> dict[str, Any]:
        return json.loads((self.job_folder(name, job_id) / "artefacts" / "report.json").read_text())

    def job_folder(self, name: str, job_id: str) -> Path:
        return self.folder / name / "state" / "jobs" / job_id

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        self.processes[name].send_signal(number)
        return self.processes[name].wait(15)

    def end_all(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    @staticmethod
    def command(*words: str) -> Program:
        def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
            with log.open("ab") as file:
                return subprocess.Popen([*words, *arguments], stdout=file, stderr=file, stdin=subprocess.DEVNULL)

        return start

    @staticmethod
    def wait_until(condition: Any, seconds: float = 30) -> None:
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit, "did not happen in time"
            time.sleep(0.05)


@pytest.fixture
def ram() -> Iterator[Path]:
    """A folder in memory, where there is such a thing: a disk makes whoever writes durably wait."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def forked() -> Iterator[Callable[..., Child]]:
    """Starts processes that have imported a node; what they run may be of a module beside this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        # What a node imports, what an optimiser imports when it is first made, and this program itself.
        FORKS.set_forkserver_preload(["vfl_node.cli", "vfl_node.node.service", "torch._dynamo", "pytest"])
        yield Child


@pytest.fixture(scope="module")
def federations(trial: Any) -> Iterator[Callable[..., Federation]]:
    """Makes federations, whose processes end with the module."""
    made: list[Federation] = []

    def make(folder: Path, roles: Mapping[str, str] = TWO) -> Federation:
        made.append(Federation(folder, trial, roles))
        return made[-1]

    yield make
    for federation in made:
        federation.end_all()


@pytest.fixture
def federation(tmp_path: Path, trial: Any) -> Iterator[Federation]:
    made = Federation(tmp_path, trial)
    yield made
    made.end_all()
