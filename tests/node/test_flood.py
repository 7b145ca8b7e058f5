"""A flood of connections without a certificate, at a node that may open few descriptors: its job ends as ever."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import limited_node
import pytest

from vfl_node.models import storage

DESCRIPTORS = 256
JOB = "align: {protocol: psi}\ntrain: {bottom: [8], epochs: 20, batch_size: 16}\nevaluate: {test_fraction: 0.3}\n"
FLOOD = """
import resource, socket, sys, threading, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
port, end, made = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), []
def flood():
    held = []
    while time.monotonic() < end:
        try:
            held.append(socket.create_connection(("127.0.0.1", port), 1))
            made.append(1)
        except OSError:
            time.sleep(0.005)
        if len(held) > 100:
            held.pop(0).close()
threads = [threading.Thread(target=flood) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(made))
"""


@pytest.fixture(scope="module")
def federation(federations: Any, forked: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = federations(tmp_path_factory.mktemp("flood"))
    for name in made.roles:
        (made.folder / f"{name}-seed").mkdir()
        made.programs[name] = partial(forked, limited_node.run, made.folder / f"{name}-seed", DESCRIPTORS)
    made.start_both()
    made.wait_until(lambda: made.connected("lab"))
    return made


def outcome(federation: Any, job_id: str) -> Any:
    found = {}
    for name in federation.roles:
        view = federation.end(name, job_id)
        assert view["state"] == "done", (view, federation.log(name)[-3000:])
        weights, _ = storage.load(federation.job_folder(name, job_id) / "artefacts" / "model.safetensors")
        found[name] = federation.report(name, job_id)["metrics"], {key: of.numpy().tobytes() for key, of in weights.items()}
    return found


def descriptors(federation: Any) -> int:
    return len(list(Path(f"/proc/{federation.processes['clinic'].pid}/fd").iterdir()))


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_a_flood_of_connections_disturbs_no_job(federation: Any, seconds: int) -> None:
    expected = outcome(federation, federation.submit(JOB))
    port = federation.running("clinic")["listen"].rpartition(":")[2]
    before = descriptors(federation)
    with subprocess.Popen([sys.executable, "-c", FLOOD, port, str(seconds)], stdout=subprocess.PIPE) as flood:
        most = 0
        while flood.poll() is None:
            job_id = federation.submit(JOB)  # a conversation that begins meanwhile
            most = max(most, descriptors(federation))
            assert outcome(federation, job_id) == expected
            time.sleep(0.01)
        assert flood.stdout
        assert int(flood.stdout.read()) > 100 * seconds
    assert most < DESCRIPTORS - 32  # what a job needs besides is never taken
    federation.wait_until(lambda: descriptors(federation) < before + 16)
