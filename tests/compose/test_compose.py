"""``docker compose up`` for real: build, start, run the example to its end, look inside, stop.

The engine is the one that ``docker`` reaches (``DOCKER_HOST``), else one that the script
named by ``VFL_DOCKER_ENGINE`` starts (``start DIR``, ``base DIR IMAGE``, ``stop DIR``).
``BASE_IMAGE`` and ``PIP_FIND_LINKS`` become build arguments; a folder of wheels is served
to the build over loopback. The tests run in the order of this file.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vfl_node.crypto.kernels import kernel

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
NODES = {"clinic": "lab", "lab": "clinic", "coordinator": "clinic"}
"""Each node that is always there, and a peer."""

ALL_NODES = NODES | {"insurer": "clinic", "agency": "schools", "schools": "agency"}
"""The same with those that profiles start."""

PROFILES = ("--profile", "three", "--profile", "linkage")

WITH_DATA = ("clinic", "lab")


class Compose:
    """One project of ``docker-compose.yml``."""

    def __init__(self, environment: dict[str, str], override: Path) -> None:
        self.environment = environment
        plugin = subprocess.run(["docker", "compose", "version"], env=environment, capture_output=True, check=False)
        self._command = ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]
        self._command += ["-p", f"vfl-test-{os.getpid()}", "-f", "docker-compose.yml", "-f", str(override)]

    def __call__(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run([*self._command, *arguments], self.environment, check=check)

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows about a service's container."""
        container = self(*PROFILES, "ps", "-a", "-q", service).stdout.split()[0]
        (inspected,) = json.loads(run(["docker", "inspect", container], self.environment).stdout)
        return inspected  # type: ignore[no-any-return]

    def inside(self, service: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a service's container."""
        return self(*PROFILES, "exec", "-T", service, *command, check=False)

    def board(self, service: str, path: str) -> Any:
        """JSON from a node's HTTP port, from this machine."""
        (published,) = self.inspect(service)["NetworkSettings"]["Ports"]["8080/tcp"]
        token = self.inside(service, "cat", "/state/token").stdout
        address = f"http://127.0.0.1:{published['HostPort']}{path}"
        asked = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=240) as answer:
            return json.load(answer)

    def wait(self, service: str, wanted: str) -> None:
        """Until a service is ``healthy`` or ``exited``."""
        for _ in range(600):
            state = self.inspect(service)["State"]
            if wanted in (state["Status"], state.get("Health", {}).get("Status")):
                return
            time.sleep(0.5)
        raise TimeoutError(f"{service} is not {wanted}: {state}")


def run(command: list[str], environment: dict[str, str], *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout; on failure what it printed is shown."""
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        print(done.stdout, done.stderr, sep="\n")
        done.check_returncode()
    return done


@pytest.fixture(scope="module")
def engine() -> Iterator[dict[str, str]]:
    """The environment of ``docker`` commands that reach an engine."""
    environment = dict(os.environ)
    helper = environment.get("VFL_DOCKER_ENGINE")
    if shutil.which("docker") and run(["docker", "info"], environment, check=False).returncode == 0:
        yield environment
        return
    if not helper:
        pytest.skip("no Docker engine answers; set DOCKER_HOST, or VFL_DOCKER_ENGINE to a script that starts one")
    folder = tempfile.mkdtemp(prefix="vfl-engine-")
    environment["DOCKER_HOST"] = f"unix://{folder}/docker.sock"
    try:
        run([helper, "start", folder], environment)
        if "BASE_IMAGE" not in environment:
            run([helper, "base", folder, "vfl-base"], environment)
            environment["BASE_IMAGE"] = "vfl-base"
        yield environment
    finally:
        run([helper, "stop", folder], environment, check=False)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def build_environment(engine: dict[str, str]) -> Iterator[dict[str, str]]:
    """As :func:`engine`; a local folder in ``PIP_FIND_LINKS`` becomes an address on loopback."""
    folder = Path(engine.get("PIP_FIND_LINKS", ""))
    if not engine.get("PIP_FIND_LINKS") or not folder.is_dir():
        yield engine
        return
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {**engine, "PIP_FIND_LINKS": f"http://127.0.0.1:{server.server_port}/"}
        server.shutdown()


@pytest.fixture(scope="module")
def federation(build_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """``docker compose up`` on free ports, its example ended."""
    override = tmp_path_factory.mktemp("compose") / "override.yml"
    on_host = {"build": {"network": "host"}}  # so that a build sees what is served on loopback
    services = dict.fromkeys(("setup", *ALL_NODES, "example", "asymmetric", "three", "linkage"), on_host)
    override.write_text(json.dumps({"services": services}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        clinic = str(free.getsockname()[1])  # which the link that is printed names
    ports = {f"{name.upper()}_PORT": "0" for name in ALL_NODES} | {"CLINIC_PORT": clinic}
    compose = Compose({**build_environment, **ports}, override)
    try:
        compose("build")
        compose("up", "-d")
        compose.wait("example", "exited")
        yield compose
    finally:
        print(compose(*PROFILES, "logs", "--no-color", check=False).stdout[-20_000:])
        compose(*PROFILES, "down", "-v", "--remove-orphans", check=False)


def test_example_ran_to_its_end(federation: Compose) -> None:
    assert federation.inspect("example")["State"]["ExitCode"] == 0
    (job,) = federation.board("clinic", "/api/jobs")["jobs"]
    assert job["state"] == "done"
    report = federation.board("clinic", f"/jobs/{job['id']}/report.json")
    assert report["job"]["name"] == "clinic-lab"
    assert report["alignment"]["ours"] == report["alignment"]["theirs"] == 512
    assert 512 < report["alignment"]["union"] < 569
    assert report["local_metrics"]["auc"] + 0.05 < report["metrics"]["auc"] <= 1


def test_the_link_that_is_printed_opens_the_report_on_this_machine_once(federation: Compose) -> None:
    printed = federation("logs", "--no-color", "example").stdout
    (link,) = re.findall(r"on the board: (http://127\.0\.0\.1:\S+)", printed)
    door, _, fragment = link.partition("#")
    ticket, to = fragment.removeprefix("ticket=").split("&to=")
    with urllib.request.urlopen(door, data=ticket.encode(), timeout=240) as entered:
        cookie = entered.headers["Set-Cookie"].partition(";")[0]
    asked = urllib.request.Request(door.removesuffix("/login") + to, headers={"Cookie": cookie})
    with urllib.request.urlopen(asked, timeout=240) as page:
        assert "clinic-lab" in page.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(door, data=ticket.encode(), timeout=240)


@pytest.mark.parametrize("node", NODES)
def test_nodes_stay_up_and_healthy(federation: Compose, node: str) -> None:
    federation.wait(node, "healthy")
    container = federation.inspect(node)
    assert container["State"]["Status"] == "running"
    assert container["RestartCount"] == 0
    assert federation.board(node, "/health")["status"] == "ok"


def test_the_coordinator_idles_unless_a_job_names_it(federation: Compose) -> None:
    assert federation.board("coordinator", "/api/jobs")["jobs"] == []
    peers = federation.board("coordinator", "/health")["peers"]
    absent = dict.fromkeys(("agency", "schools"), False)
    assert {name: peer["online"] for name, peer in peers.items()} == dict.fromkeys(WITH_DATA, True) | absent


def test_a_party_whose_profile_is_not_active_disturbs_nobody(federation: Compose) -> None:
    others = ALL_NODES.keys() - NODES.keys()
    assert federation(*PROFILES, "ps", "-a", "-q", *others).stdout == ""
    logs = federation("logs", "--no-color", *NODES).stdout
    assert not any(name in logs for name in others)
    assert "peer connected" in logs  # it would be here


def test_next_job_runs(federation: Compose) -> None:
    """As ``make submit JOB=…`` does it."""
    own = ("submit", "/job.yaml", "--config", "/config/node.yaml", "--wait", "--board", "http://127.0.0.1:8080")
    federation("run", "--rm", "--volume", f"{ROOT}/examples/clinic_lab/job.yaml:/job.yaml:ro", "example", *own)
    for node in WITH_DATA:
        assert [job["state"] for job in federation.board(node, "/api/jobs")["jobs"]] == ["done", "done"]
        federation.wait(node, "healthy")


def test_a_job_with_three_data_parties_runs(federation: Compose) -> None:
    federation("--profile", "three", "run", "--rm", "three")
    parties = (*WITH_DATA, "insurer")
    for node in parties:
        job = federation.board(node, "/api/jobs")["jobs"][0]
        assert (job["name"], job["state"]) == ("clinic-lab-insurer", "done")
        report = federation.board(node, f"/jobs/{job['id']}/report.json")
        assert (report["party"], report["alignment"]["union"]) == (node, 568)
        contributions = report["training"]["split"]["contributions"]
        assert (contributions is None) == (node != "clinic")
        if contributions:
            assert contributions.keys() == set(parties)


def test_a_job_with_the_coordinator_runs(federation: Compose) -> None:
    federation("--profile", "asymmetric", "run", "--rm", "asymmetric")
    for node in NODES:
        job = federation.board(node, "/api/jobs")["jobs"][0]
        assert (job["name"], job["state"]) == ("clinic-lab-asymmetric", "done")
        report = federation.board(node, f"/jobs/{job['id']}/report.json")
        assert report["party"] == node
        assert (report["alignment"] is None) == (node == "coordinator")


def test_a_linkage_runs(federation: Compose) -> None:
    """Three containers on a network of their own: two with data, and the coordinator that finds which records are alike."""
    federation(*PROFILES, "run", "--rm", "linkage")
    reports = {}
    for node in ("agency", "schools", "coordinator"):
        job = federation.board(node, "/api/jobs")["jobs"][0]
        assert (job["name"], job["state"]) == ("linkage", "done")
        reports[node] = federation.board(node, f"/jobs/{job['id']}/report.json")
        assert reports[node]["party"] == node
    agency, schools, coordinator = reports.values()
    assert (agency["alignment"]["rows"], agency["alignment"]["candidates"], agency["alignment"]["sigma"]) == (3000, 10, 0.4)
    assert agency["metrics"]["r2"] > agency["local_metrics"]["r2"] + 0.2
    assert 10 <= schools["alignment"]["reuse"] <= 200
    assert (coordinator["alignment"], coordinator["training"], coordinator["metrics"]) == (None, None, None)
    assert [entry["what"] for entry in coordinator["learnt"]["coordinator"]] == ["encodings", "distances"]


APART = [
    ("lab", "insurer", "clinic"),
    ("insurer", "lab", "clinic"),
    ("insurer", "coordinator", "clinic"),
    ("clinic", "agency", "coordinator"),
    ("agency", "clinic", "coordinator"),
    ("schools", "lab", "agency"),
]


@pytest.mark.parametrize(("node", "other", "peer"), APART)
def test_parties_without_a_job_in_common_cannot_reach_each_other(federation: Compose, node: str, other: str, peer: str) -> None:
    networks = federation.inspect(other)["NetworkSettings"]["Networks"].values()
    for address in (other, *(network["IPAddress"] for network in networks)):
        assert not any(reaches(federation, node, address, port) for port in (7443, 8080)), address
    assert reaches(federation, node, peer, 7443)  # which shows that the question is asked


@pytest.mark.parametrize("node", ALL_NODES)
def test_node_has_no_rights_beyond_its_own(federation: Compose, node: str) -> None:
    assert federation.inside(node, "id", "-u").stdout.strip() == "10001"
    status = dict(line.split(":\t", 1) for line in federation.inside(node, "cat", "/proc/self/status").stdout.splitlines())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    limits = federation.inspect(node)["HostConfig"]
    assert (limits["Memory"], limits["PidsLimit"]) == (2 << 30, 1024)
    assert federation.board(node, "/health")["memory_free"] < 2 << 30  # the node knows
    for path in ("/x", "/data/x", "/keys/x", "/config/node.yaml"):
        assert federation.inside(node, "sh", "-c", f": >>{path}").returncode != 0, path
    assert federation.inside(node, "sh", "-c", ": >>/state/x && rm /state/x").returncode == 0
    assert federation.inside(node, "sh", "-c", "stat -c %a /keys/node.key").stdout.strip() == "600"


@pytest.mark.parametrize("node", ALL_NODES)
def test_boards_are_for_this_machine_only(federation: Compose, node: str) -> None:
    published = federation.inspect(node)["NetworkSettings"]["Ports"]
    assert {binding["HostIp"] for bindings in published.values() for binding in bindings or []} == {"127.0.0.1"}
    assert [port for port, bindings in published.items() if bindings] == ["8080/tcp"]
    assert not reaches(federation, node, ALL_NODES[node], 8080)


def test_one_end_of_each_pair_has_an_inbound_port(federation: Compose) -> None:
    for node, host in (
        ("lab", "clinic"),
        ("clinic", "coordinator"),
        ("lab", "coordinator"),
        ("schools", "agency"),
        ("agency", "coordinator"),
    ):
        assert reaches(federation, node, host, 7443)
    for node in ("clinic", "coordinator"):
        assert not reaches(federation, node, "lab", 7443)


def reaches(federation: Compose, node: str, host: str, port: int) -> bool:
    """Whether ``node`` can open a connection to ``host:port``."""
    code = f"import socket; socket.create_connection(({host!r}, {port}), timeout=3)"
    return federation.inside(node, "python3", "-c", code).returncode == 0


def test_image_holds_no_more_than_it_needs(federation: Compose) -> None:
    assert federation.inside("clinic", "sh", "-c", "command -v gcc cc make").stdout == ""
    packages = federation.inside("clinic", "python3", "-m", "pip", "list", "--format=freeze").stdout
    assert "vfl-node==" in packages
    assert "scikit-learn" not in packages
    if "+cpu" in packages:
        assert "nvidia" not in packages
        assert "triton" not in packages


def test_nodes_in_the_image_have_the_kernel_of_this_machine(federation: Compose) -> None:
    assert federation.board("clinic", "/health")["kernel"] == kernel().name


def test_stop_is_clean_and_a_restart_knows_the_jobs(federation: Compose) -> None:
    federation(*PROFILES, "stop", *ALL_NODES)
    assert {node: federation.inspect(node)["State"]["ExitCode"] for node in ALL_NODES} == dict.fromkeys(ALL_NODES, 0)
    federation(*PROFILES, "start", *ALL_NODES)
    for node in ALL_NODES:
        federation.wait(node, "healthy")
        ended = dict.fromkeys(WITH_DATA, 4) | {"coordinator": 2}
        assert len(federation.board(node, "/api/jobs")["jobs"]) == ended.get(node, 1)
