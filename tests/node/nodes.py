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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import vfl_node
from tests.node import forked_node
from vfl_node.cli import main
from vfl_node.errors import VflError
from vfl_node.node import federation
from vfl_node.node.client import Client
from vfl_node.node.setup import certify, init
from vfl_node.process import failpoints

Program = Callable[[list[str], Path], Any]
"""Starts a node with these arguments, which writes to this log; a process, as of :class:`subprocess.Popen`."""


FORKS = multiprocessing.get_context("forkserver")
PACKAGE = Path(vfl_node.__file__).parent
IN_A_JOB = [
    ".".join(("vfl_node", *path.relative_to(PACKAGE).with_suffix("").parts))
    for package in ("alignment", "data", "execution", "models", "privacy", "training")
    for path in sorted((PACKAGE / package).rglob("*.py"))
    if path.name != "__init__.py"
]
"""What a node imports when a job needs it: a fifth of the work of a small job, which each start would repeat."""

# What a node imports, and this program itself.
FORKS.set_forkserver_preload(["vfl_node.cli", "vfl_node.node.serving", *IN_A_JOB, "pytest", "tests.node.preloaded"])

GENEROUS_S = 240.0
"""How long anything may take that a test waits for: on a machine that does much else, nothing is late."""

ENDED = ("done", "failed", "cancelled")

TWO = {"clinic": "active", "lab": "passive"}
THREE = TWO | {"notary": "coordinator"}


LEFT = {"artefacts", "alignment", "rows", "split", "synthetic", "columns"}
"""What a done job may leave in its folder: its report and model, what was noted of its columns, and what a job needs
that uses its alignment again."""


def accepting(*submitters: str) -> list[dict[str, Any]]:
    """Lines ``approve`` of a policy by which jobs of these run without asking."""
    return [{"name": "accepted", "when": {"submitters": [*submitters]}, "by": "rule"}]


NOBODY_ELSE = {"name": "nobody else", "by": "nobody"}
"""A last line ``approve``, by which nobody is asked about other jobs: they are refused."""


def at_least(rows: int) -> dict[str, int]:
    """Limits on how small sets may be, one's own and a partner's."""
    return {"min_own_rows": rows, "min_peer_rows": rows}


class Child:
    """A process forked from one that has imported a node, a tenth of a start's work; as a :class:`subprocess.Popen`."""

    def __init__(self, run: Callable[..., None], *arguments: Any, context: Any = FORKS) -> None:
        self._process = context.Process(target=run, args=arguments, daemon=True)
        self._process.start()
        self.kill = self._process.kill
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        return self.poll()

    def send_signal(self, number: int) -> None:
        assert self._process.pid
        os.kill(self._process.pid, number)


class TrialNodes(SimpleNamespace):
    """In place of :mod:`subprocess` where ``vfl-node run`` starts its nodes, which are forked instead."""

    DEVNULL, STDOUT, TimeoutExpired = subprocess.DEVNULL, subprocess.STDOUT, subprocess.TimeoutExpired

    def Popen(self, words: list[str], *, env: dict[str, str], stdout: Any, preexec_fn: Any, **_: Any) -> Child:
        return Child(
            _trial_node, preexec_fn, env, words[words.index("vfl_node") + 1 :], Path(stdout.name), context=self.context
        )


def _trial_node(first: Callable[[], None], environment: dict[str, str], arguments: list[str], log: Path) -> None:
    os.setsid()
    first()
    forked_node.run(environment, arguments, log)


class Command:
    """``vfl-node`` with ``words``, in a process forked from one that has imported it.

    Args:
        words: of the command.
        real_nodes: whether nodes that it starts are new processes of Python, as for a user, and not forked as well.
        folder: in which it runs; the one of these tests where it is None.
        environment: more variables.
    """

    def __init__(self, *words: str | Path, real_nodes: bool = False, folder: Path | None = None, **environment: str) -> None:
        self._words = list(map(str, words))
        self._outputs = tempfile.TemporaryDirectory()
        self._said = Path(self._outputs.name, "out"), Path(self._outputs.name, "err")
        given = self._words, dict(os.environ) | environment, self._said, real_nodes, folder or Path.cwd()
        self._process = FORKS.Process(target=_run, args=given)  # no daemon, which may have no children
        self._process.start()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        """It is over, whatever it was about."""
        self._process.kill()
        self._process.join()
        self._outputs.cleanup()

    def ended(self) -> subprocess.CompletedProcess[str]:
        """Wait for its end."""
        self._process.join(GENEROUS_S)
        out, err = (path.read_text() for path in self._said)
        assert self._process.exitcode is not None, f"{self._words} did not end: {err[-3000:]}"
        return subprocess.CompletedProcess(self._words, self._process.exitcode, out, err)


def command(*words: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """A :class:`Command` from its start to its end."""
    with Command(*words, **how) as started:
        return started.ended()


def _run(words: list[str], environment: dict[str, str], said: tuple[Path, Path], real_nodes: bool, folder: Path) -> None:
    os.chdir(folder)
    if not real_nodes:
        federation.subprocess = TrialNodes(context=multiprocessing.get_context("fork"))  # type: ignore[assignment]
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate((Path(os.devnull), *said)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.argv = ["vfl-node", *words]
    main()


class Federation:
    """A clinic that listens and a lab that dials, each a process; and a notary, where it has a part, that both dial.

    The processes are forked from one that has imported a node; :meth:`as_users_start_them` has them started by a command.

    Attributes:
        programs: name → what it runs as a node.
        failpoints: name → what happens to it, from its next start to the one after (:mod:`vfl_node.process.failpoints`).
    """

    def __init__(self, folder: Path, trial: Any, roles: Mapping[str, str] = TWO) -> None:
        self.folder = folder
        self.trial = trial
        self.roles = roles
        self.processes: dict[str, Any] = {}
        self.failpoints: dict[str, str] = {}
        self.programs: dict[str, Program] = dict.fromkeys(roles, self._fork)
        for name, role in roles.items():
            init(name, role, folder / name, mode="shared")  # type: ignore[arg-type]
            self.configure(name, listen=None, **({"data": {"path": str(trial.files[name])}} if name in trial.files else {}))
        certify([folder / name for name in roles], folder / "authority")

    peer_wait_s = GENEROUS_S

    def configure(
        self,
        name: str,
        *,
        policy: Mapping[str, Any] | None = None,
        accepts: Sequence[str] | None = None,
        everyone: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        """Write settings of a node beside those that it has, and its policy.

        Args:
            name: of the node.
            policy: in place of its policy.
            accepts: whose jobs the policy lets run without asking, whatever else it says of jobs.
            everyone: limits, in place of those of the policy for everyone.
            **settings: key → value.
        """
        path = self.folder / name / "node.yaml"
        if self.roles.get(name) == "active":
            settings = {"compare": {"boosted_tree": False}} | settings  # scikit-learn takes a second to load in every process
        config = (
            yaml.safe_load(path.read_text())
            | {"http": "127.0.0.1:0", "peer_wait_s": self.peer_wait_s, "quarantine_after": 99}
            | settings
        )
        path.write_text(yaml.safe_dump(config))
        file = path.with_name(config["policy"])
        rules = dict(yaml.safe_load(file.read_text()) if policy is None else policy)
        if accepts is not None:
            rules["approve"] = accepting(*accepts)
        if everyone is not None:
            rules["everyone"] = everyone
        if "coordinator" in self.roles.values():
            rules["everyone"] = self._trusting(rules.get("everyone", {}))
        file.write_text(yaml.safe_dump(rules))
        return path

    def _trusting(self, everyone: Mapping[str, Any]) -> dict[str, Any]:
        """These limits, and those of nodes that train with a coordinator over and over."""
        coordinators = [name for name, role in self.roles.items() if role == "coordinator"]
        budgets = {"epsilon": None} | everyone.get("budgets", {})
        return {"coordinators": coordinators, "unbounded_models": "any"} | everyone | {"budgets": budgets}

    def start(self, name: str, **settings: Any) -> None:
        path = self.configure(name, **settings)
        (self.folder / name / "state" / "running.json").unlink(missing_ok=True)
        arguments = ["--role", self.roles[name], "--config", str(path)]
        with pytest.MonkeyPatch.context() as patch:  # of what the process inherits
            patch.setenv(failpoints.VARIABLE, self.failpoints.pop(name, ""))
            self.processes[name] = self.programs[name](arguments, self.folder / f"{name}.log")
        limit = time.monotonic() + GENEROUS_S
        while not (self.folder / name / "state" / "running.json").exists():
            assert self.processes[name].poll() is None, (self.folder / f"{name}.log").read_text()
            assert time.monotonic() < limit
            time.sleep(0.05)

    def start_both(self, **lab: Any) -> None:
        self.start("clinic", listen="127.0.0.1:0", peers={"lab": {}})
        address = self.running("clinic")["listen"]
        self.configure("clinic", listen=address)  # found there again after a restart
        self.start("lab", **({"peers": {"clinic": {"address": address}}, "accepts": ["clinic"]} | lab))

    def start_three(self, **settings: Any) -> None:
        """The clinic and the lab may submit jobs at the others."""
        self.start("notary", listen="127.0.0.1:0", peers={"clinic": {}, "lab": {}}, accepts=["clinic", "lab"], **settings)
        notary = {"notary": {"address": self.running("notary")["listen"]}}
        self.start("clinic", listen="127.0.0.1:0", peers={"lab": {}} | notary, accepts=["lab"], **settings)
        clinic = {"clinic": {"address": self.running("clinic")["listen"]}}
        for name in ("notary", "clinic"):
            self.configure(name, listen=self.running(name)["listen"])  # found there again after a restart
        self.start("lab", peers=clinic | notary, accepts=["clinic"], **settings)
        self.wait_until(lambda: all(self.connected(name) for name in self.roles))

    def start_several(self, **settings: Any) -> None:
        """The clinic, and a notary if there is one, listen; passive parties dial them, and know each other as relayed."""
        listening = [name for name, role in self.roles.items() if role != "passive"]
        known: dict[str, dict[str, Any]] = {}
        for name in [*listening, *(name for name in self.roles if name not in listening)]:
            passive = name not in listening
            peers = {
                other: {"relayed": True} if passive and other not in listening else known.get(other, {})
                for other in self.roles.keys() - {name}
            }
            self.start(name, listen=None if passive else "127.0.0.1:0", peers=peers, accepts=list(peers), **settings)
            if not passive:
                known[name] = {"address": self.running(name)["listen"]}
                self.configure(name, listen=known[name]["address"])  # found there again after a restart
        self.wait_until(lambda: all(map(self.connected, self.roles)))

    def connected(self, name: str) -> bool:
        """Whether its links with all others are up."""
        peers = self.client(name).health()["peers"]
        return all(peer["online"] is not False for other, peer in peers.items() if other in self.roles)  # None: relayed

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
        """The last view of the job, of which ``name`` may still have to hear."""
        self.wait_until(lambda: self.view(name, job_id))
        return list(self.client(name).watch(job_id))[-1]

    def dies_in(self, name: str, job_id: str, status: int = -signal.SIGKILL) -> None:
        """Wait until the process of ``name`` has ended with ``status``; a job that ends before it does is at fault."""
        process, view = self.processes[name], {}
        ended_at = float("inf")
        while process.poll() is None:
            with suppress(VflError, FileNotFoundError):  # of one that ends
                view = self.view(name, job_id)
            ended_at = min(ended_at, time.monotonic()) if view.get("state") in ENDED else float("inf")
            assert time.monotonic() < ended_at + 20, (view, self.log(name)[-3000:])
            time.sleep(0.2)  # whoever asks more often slows down what it waits for
        assert process.poll() == status

    def report(self, name: str, job_id: str) -> dict[str, Any]:
        return json.loads((self.job_folder(name, job_id) / "artefacts" / "report.json").read_text())

    def job_folder(self, name: str, job_id: str) -> Path:
        return self.folder / name / "state" / "jobs" / job_id

    def log(self, name: str) -> str:
        """What it has written; nothing before it has begun."""
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        self.processes[name].send_signal(number)
        status = self.processes[name].wait(GENEROUS_S)
        assert status is not None, f"{name} did not end at signal {number}"
        return status

    def end_all(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()

    def as_users_start_them(self) -> None:
        """From now on."""
        self.programs = dict.fromkeys(self.roles, self.command(sys.executable, "-m", "vfl_node"))

    @staticmethod
    def _fork(arguments: list[str], log: Path) -> Child:
        return Child(forked_node.run, dict(os.environ), arguments, log)

    @staticmethod
    def command(*words: str) -> Program:
        def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
            with log.open("ab") as file:
                return subprocess.Popen([*words, *arguments], stdout=file, stderr=file, stdin=subprocess.DEVNULL)

        return start

    @staticmethod
    def is_cleared(folder: Path) -> bool:
        """Whether a done job has left nothing else than :data:`LEFT`, such as its secrets."""
        return "artefacts" in (names := {path.name for path in folder.iterdir()}) and names <= LEFT

    @staticmethod
    def wait_until(condition: Any, seconds: float = GENEROUS_S) -> None:
        limit, pause = time.monotonic() + seconds, 0.02
        while not condition():
            assert time.monotonic() < limit, "did not happen in time"
            time.sleep(pause)
            pause = min(1.2 * pause, 0.2)  # whoever asks often slows down what it waits for
