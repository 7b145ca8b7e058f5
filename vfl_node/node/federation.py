"""A whole federation on one machine, to try a job on one's own files.

Each party is a separate process of the ordinary node, connected by mutual TLS with certificates made for this one run. So a
trial exercises the same code that several organisations would run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import yaml

from vfl_node.errors import PeerError, UsageError, VflError
from vfl_node.execution.extras import NO_EXTRAS, Extras
from vfl_node.execution.outcome import JobOutcome, artefact_folders, clear_artefacts, copy_artefacts
from vfl_node.execution.trial import Trial, write_trial
from vfl_node.job import Job
from vfl_node.node.client import Client
from vfl_node.node.setup import certify, init
from vfl_node.process.files import private_folder, scratch_folder
from vfl_node.roles import Role
from vfl_node.settings.node import Settings, peers_in, role_in

START_S = 60.0
PR_SET_PDEATHSIG = 1

_LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec nothing may be
STOP_S = 9.0
PEER_WAIT_S = 10.0
CONNECTION = {"listen", "http", "peers", "insecure_loopback", "tls", "state_dir"}
"""Keys of settings that follow from how the processes meet."""


class LocalFederation:
    """Every party of a job as a process of this machine; a context manager that ends them all.

    Args:
        job: the job; party names come from it.
        settings: party name → its settings, as :func:`vfl_node.execution.private.trial_settings` makes them.
        logs: folder for one JSON-lines log per party.
        extras: what is made besides.
    """

    def __init__(
        self,
        job: Job,
        settings: Mapping[str, Settings],
        *,
        logs: Path,
        extras: Extras = NO_EXTRAS,
    ) -> None:
        self._extras = extras.prepare(job)
        self._job = job
        self._settings = settings
        self._logs = logs
        self._folder = scratch_folder("vfl-federation-")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: dict[str, Client] = {}

    def __enter__(self) -> LocalFederation:
        try:
            private_folder(self._logs)
            parties = self._job.parties
            folders = {name: self._folder / name for name in parties.all}
            for name, folder in folders.items():
                init(name, cast(Role, role_in(parties, name)), folder, mode="shared")
            certify(list(folders.values()), self._folder / "authority")
            # The coordinator listens, the active party dials it and listens, passive ones dial both and do not meet each other.
            listening = [parties.coordinator, parties.active] if parties.coordinator else [parties.active]
            known: dict[str, dict[str, str]] = {}
            for name in [*listening, *parties.passive]:
                peers: dict[str, Any] = {
                    peer: {"relayed": True} if address.relayed else known.get(peer, {})
                    for peer, address in peers_in(parties, name).items()
                }
                self._start(name, {"peers": peers} | ({"listen": "127.0.0.1:0"} if name in listening else {}))
                if name in listening:
                    known[name] = {"address": self._await_up(name)["listen"]}
            for name in parties.passive:
                self._await_up(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with _ignore_interrupts():
            for process in self._processes.values():
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            limit = time.monotonic() + STOP_S
            for process in self._processes.values():
                try:
                    process.wait(max(0.1, limit - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, out: Path, on_view: Callable[[dict[str, Any]], None]) -> dict[str, Path]:
        """Submit the job at the active party, follow it, and gather every party's artefacts in ``out``, then make the extras.

        Args:
            out: the active party's artefacts; the others' lie in ``out/<party>``.
            on_view: called with the active party's view of the job as it moves on.

        Returns:
            Party → folder of its artefacts.

        Raises:
            VflError: the job failed, or a party's process ended, or an extra cannot be made.
        """
        active, *others = self._job.parties.all
        gathered = artefact_folders(self._job, out)
        clear_artefacts(gathered.values())
        submitted = self._clients[active].submit(yaml.safe_dump(self._job.model_dump(mode="json")))
        view = self._follow(active, submitted, on_view)
        if view["state"] != "done":
            error = view["error"] or {"code": "E_JOB", "message": f"the job ended as {view['state']}", "hint": ""}
            raise VflError(self._error_text(error["message"], view["id"]), code=error["code"], hint=error["hint"] or "")
        for name in others:
            self._follow(name, view, lambda _: None)
        for name, out_of_it in gathered.items():
            copy_artefacts(JobOutcome(self._folder / name / "state" / "jobs" / view["id"]).artefacts, out_of_it)
        if self._extras.wanted:
            from vfl_node.node.ended_trial import make_extras  # it reads tables and models

            make_extras(self._extras, self._job, view["id"], self._folder, gathered)
        return gathered

    def _start(self, name: str, settings: dict[str, Any]) -> None:
        folder = self._folder / name
        trial = self._extras.make_trial(name)
        if trial != Trial():
            write_trial(folder / "state", trial)
        config = yaml.safe_load((folder / "node.yaml").read_text())
        config.pop("listen", None)
        config |= {
            "http": "127.0.0.1:0",
            "peer_wait_s": PEER_WAIT_S,
            **self._settings[name].model_dump(mode="json", exclude_unset=True, exclude=CONNECTION),
            **settings,
        }
        (folder / "node.yaml").write_text(yaml.safe_dump(config))
        (self._logs / f"{name}.log").unlink(missing_ok=True)
        with (self._logs / f"{name}.log").open("xb") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "vfl_node", "--role", config["role"], "--config", str(folder / "node.yaml")],
                stdin=subprocess.DEVNULL,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},  # owners' models
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches this process first, which ends the nodes in order
                preexec_fn=_end_with_parent,
            )

    def _await_up(self, name: str) -> dict[str, Any]:
        path = self._folder / name / "state" / "running.json"
        limit = time.monotonic() + START_S
        while not path.exists():
            status = self._processes[name].poll()
            if status is not None or time.monotonic() > limit:
                raise self._not_started(name)
            time.sleep(0.05)
        running: dict[str, Any] = json.loads(path.read_text())
        token = self._folder / name / "state" / "token"
        self._clients[name] = Client(running["http"], token.read_text())
        return running

    def _follow(self, name: str, view: dict[str, Any], on_view: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Follow the job at ``name`` to its end, while every party's process is watched; the last view."""
        try:
            for newest in self._clients[name].watch(view["id"]):
                view = newest
                on_view(view)
                self._check_processes(view)
        except UsageError:  # the node does not answer, perhaps because its process has died
            self._check_processes(view)
            raise
        return view

    def _check_processes(self, view: dict[str, Any]) -> None:
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None:
                how = f"by signal {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
                raise PeerError(
                    f"{name} was lost in phase {view['phase']!r}: its process ended {how}",
                    code="E_PEER_LOST",
                    hint=f"its log is {self._logs / (name + '.log')}",
                )

    def _error_text(self, message: str, job_id: str) -> str:
        """The error of the active party, and after it those of other parties on this machine that say something else."""
        for name in self._job.parties.all[1:]:
            try:
                error = self._clients[name].job(job_id)["error"]
            except VflError:
                continue
            if error and error["message"] not in message:
                message += f"\n  at {name}: {error['message']} [{error['code']}]"
                if error["hint"]:
                    message += f"\n  hint: {error['hint']}"
        return message

    def _not_started(self, name: str) -> UsageError:
        """The error that a node's command printed before it ended; else the last line of its log."""
        log = (self._logs / f"{name}.log").read_text(errors="replace").strip()
        if said := _PRINTED.search(log):
            message, code, hint = said.groups(default="")
            return UsageError(f"{name} did not start: {message}", code=code, hint=hint)
        return UsageError(log.rpartition("\n")[2][:500] or f"{name} did not start", code="E_START")


_PRINTED = re.compile(r"^error: (.+) \[(E_\w+)\](?:\n {2}hint: (.+))?\Z", re.MULTILINE)
"""An error as a command prints it: message, code and hint."""


def _end_with_parent() -> None:
    """Ask the kernel to end this child process when its parent dies, in whatever way."""
    with contextlib.suppress(OSError, AttributeError):
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore a second Ctrl-C while processes are ended and keys are removed."""
    if threading.current_thread() is not threading.main_thread():  # where no signal arrives, and none may be set
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
