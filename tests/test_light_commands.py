"""Commands that only talk to a node start within a fraction of a second: they import nothing of what the node computes with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any

import pytest

from tests.compared_runs import a_report, store
from vfl_node.execution.live import AT_REST
from vfl_node.node.running import OWNERS_SOCKET, announce

JOB = "name: trial\nparties: {active: clinic, passive: lab}\ntrain: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"

TABLES = {"numpy", "pyarrow", "duckdb", "sqlalchemy", "scipy", "sklearn"}
HEAVY = TABLES | {"torch", "grpc", "google", "uvicorn", "starlette", "jinja2", "safetensors", "nacl"}
"""What no command imports that only talks to a node."""

CHILD = """
import json, sys
from vfl_node.cli import main
ended = []
for words in json.load(sys.stdin):
    sys.argv = ["vfl-node", *words]
    try:
        main()
        ended.append(0)
    except SystemExit as end:
        ended.append(end.code or 0)
with open("modules", "w") as file:
    json.dump([ended, list(sys.modules)], file)
"""


class Answers(BaseHTTPRequestHandler):
    """A node that has trained one job, as far as the commands ask."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        view = AT_REST | {"id": "trial-1", "state": "done", "parties": ["clinic", "lab"], "submitted": "", "predict": None}
        view |= {"took_s": 1.0, "error": None, "report": False, "metrics": {}}
        answers: dict[str, Any] = {
            "/health": {"status": "ok", "budgets": {"peers": {"lab": None}, "models": {}}},
            "/api/tickets": {"ticket": "t"},
            "/api/jobs": {"jobs": [view]} if self.command == "GET" else view,
            "/api/prune": {"jobs": []},
            "/api/tokens": {"tokens": []} if self.command == "GET" else {"token": "vfl_t"},
        }
        body = json.dumps(answers.get(self.path.partition("?")[0], view)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class OverSocket(UnixStreamServer):
    """Serves over a Unix socket, whose clients have no address."""

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = super().get_request()
        return connection, ("", 0)


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """Of a node that seems to run: its socket and its HTTP port answer."""
    state = tmp_path / "state"
    state.mkdir()
    file = tmp_path / "clinic.yaml"
    file.write_text("name: clinic\nrole: active\nlisten: 127.0.0.1:0\npeers: {lab: {}}\ninsecure_loopback: true\n")
    servers = [HTTPServer(("127.0.0.1", 0), Answers), OverSocket(str(state / OWNERS_SOCKET), Answers)]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    announce(state, listen="127.0.0.1:9", http=f"127.0.0.1:{servers[0].server_address[1]}")
    yield file
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        thread.join()
        server.server_close()


def imported(folder: Path, *commands: list[object], refused: Collection[str] = ()) -> set[str]:
    """Top-level names of the modules that commands import, one after the other in a process of their own.

    Those of ``refused`` end with a user's mistake, and all others well.
    """
    given = json.dumps([list(map(str, words)) for words in commands])
    child = [sys.executable, "-c", CHILD]
    done = subprocess.run(child, input=given, capture_output=True, text=True, cwd=folder, env=os.environ, check=True)
    ended, modules = json.loads((folder / "modules").read_text())
    assert ended == [2 if words[0] in refused else 0 for words in commands], (commands, done.stderr)
    return {name.partition(".")[0] for name in modules}


HELP = ("--help", "run --help", "--version", "submit --help", "predict --help", "check --help", "plan --help")
ASKED = ("jobs", "prune --days 1", "budget", "watch trial-1", "cancel trial-1", "resume trial-1", "board", "budgets")
ASKED += ("token list", "token create anna --roles viewer", "token revoke anna", "audit-log", "trace trial-1")


def test_help_and_commands_to_a_node_are_light(tmp_path: Path, config: Path) -> None:
    """What this node answers is no trace, which the command says."""
    job, records = tmp_path / "job.yaml", tmp_path / "records.csv"
    job.write_text(JOB)
    records.write_text("id\na\n")
    http = json.loads((tmp_path / "state" / "running.json").read_text())["http"]
    predict = ["predict", "trial-1", "--data", records, "--out", tmp_path / "out.csv", "--config", config]
    wanted: list[list[object]] = [[*of.split(), "--config", config] for of in ASKED]
    wanted += [list(of.split()) for of in HELP]
    wanted += [predict, [*predict, "--align"], ["submit", job, "--node", http, "--wait"]]
    modules = imported(tmp_path, *wanted, refused=["trace"])
    assert "vfl_node" in modules
    assert HEAVY.isdisjoint(modules), "which one it is: run these commands one by one"


def test_a_comparison_is_light(tmp_path: Path) -> None:
    """Only a paired interval needs numbers."""
    runs = [store(tmp_path / name, a_report(name)) for name in ("first", "second")]
    assert HEAVY.isdisjoint(imported(tmp_path, ["compare", *runs]))
    runs = [store(tmp_path / name, a_report(seeded=True)) for name in ("third", "fourth")]
    assert imported(tmp_path, ["compare", *runs]) & HEAVY == {"numpy"}


def test_an_estimate_of_an_alignment_needs_no_torch(tmp_path: Path, config: Path) -> None:
    """It counts the records of the node's table and measures the machine; only a job that trains a network has one timed."""
    job, table = tmp_path / "job.yaml", tmp_path / "table.csv"
    job.write_text("name: trial\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}\n")
    table.write_text("id,age\n" + "".join(f"r{row},{row}\n" for row in range(100)))
    config.write_text(config.read_text() + f"data: {{path: {table}}}\n")
    modules = imported(tmp_path, ["estimate", job, "--config", config, "--passive", 100])
    assert {"torch", "grpc", "uvicorn", "starlette", "scipy", "sklearn"}.isdisjoint(modules)


def test_a_check_needs_neither_torch_nor_grpc(tmp_path: Path, config: Path) -> None:
    """It reads the table, which needs numbers; with a job also what an estimate needs."""
    job, table = tmp_path / "job.yaml", tmp_path / "table.csv"
    job.write_text(JOB)
    table.write_text("id,age,label\n" + "".join(f"r{row},{row},{row % 2}\n" for row in range(100)))
    config.write_text(config.read_text() + f"data: {{path: {table}}}\n")
    by_settings = ["check", "--config", config]
    assert imported(tmp_path, ["check", table], by_settings) & HEAVY == {"numpy", "pyarrow"}
    assert imported(tmp_path, [*by_settings, "--job", job, "--json"]) & HEAVY <= {"numpy", "pyarrow", "google"}


def test_an_invalid_job_is_refused_before_anything_heavy(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("name: trial\ntrain: {epochs: never}\n")
    wanted = (["submit", job], ["estimate", job], ["run", job, "--data", "active=a.csv", "--out", "out"])
    assert HEAVY.isdisjoint(imported(tmp_path, *wanted, refused=["submit", "estimate", "run"]))


def test_a_plan_that_no_way_fits_needs_nothing_heavy(tmp_path: Path) -> None:
    """What each way tells is known without what computes it; the manifest knows the largest message."""
    words = "plan --active 1000 --passive 1000 --task binary --may-learn-shared none --third-party no --same-id no"
    assert imported(tmp_path, words.split(), refused=["plan"]) & HEAVY <= {"google"}


def test_the_package_itself_is_light(tmp_path: Path) -> None:
    listed = "import sys, vfl_node; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True, env=os.environ)
    assert HEAVY.isdisjoint(shown.stdout.split())


def test_a_node_starts_without_what_it_trains_with() -> None:
    """It has what reads tables and talks with peers; tests/node/test_without_torch.py has it align, and then train."""
    listed = "import sys, vfl_node.node.serving; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True, env=os.environ)
    assert HEAVY & set(shown.stdout.split()) == (
        {"numpy", "pyarrow", "grpc", "google", "uvicorn", "starlette", "jinja2", "safetensors"}
    )
