"""What ``docker-compose.yml`` and ``deploy`` say, read without an engine; and the script that makes keys, run here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from vfl_node.execution.allowed import check_allowed
from vfl_node.job import load_job
from vfl_node.node.board import check_http
from vfl_node.settings.reading import load_settings

ROOT = Path(__file__).parents[2]
ROLES = {
    "clinic": "active",
    "lab": "passive",
    "insurer": "passive",
    "agency": "active",
    "schools": "passive",
    "coordinator": "coordinator",
}
NETWORKS = {
    "clinic": {"federation", "insurer-clinic"},
    "lab": {"federation"},
    "insurer": {"insurer-clinic"},
    "agency": {"linkage"},
    "schools": {"linkage"},
    "coordinator": {"federation", "linkage"},
}
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.mark.parametrize(("name", "role"), ROLES.items())
def test_every_party_runs_in_its_role_with_its_own_keys_state_and_data(name: str, role: str) -> None:
    service = COMPOSE["services"][name]
    settings = load_settings(ROOT / "deploy" / f"{name}.yaml")
    assert (settings.name, settings.role) == (name, role)
    assert service["command"] == ["--role", role, "--config", "/config/node.yaml"]
    data = [] if role == "coordinator" else [f"{name}-data:/data:ro"]
    assert service["volumes"] == [
        f"./deploy/{name}.yaml:/config/node.yaml:ro",
        f"{name}-keys:/keys:ro",
        *data,
        f"{name}-state:/state",
    ]
    assert (settings.data is None) == (not data)


@pytest.mark.parametrize("name", ROLES)
def test_every_board_is_published_on_loopback_and_on_a_network_of_its_own(name: str) -> None:
    service = COMPOSE["services"][name]
    (port,) = service["ports"]
    assert port.startswith("127.0.0.1:${")
    assert port.endswith(":8080")
    assert service["networks"].keys() == {*NETWORKS[name], f"{name}-board"}
    settings = load_settings(ROOT / "deploy" / f"{name}.yaml")
    assert (settings.http, settings.http_plain) == ("board:8080", True)
    check_http(settings)
    assert all(COMPOSE["networks"][network] == {"internal": True} for network in NETWORKS[name])


def test_each_two_parties_with_a_connection_know_each_other_and_one_of_them_listens() -> None:
    parties = {name: load_settings(ROOT / "deploy" / f"{name}.yaml") for name in ROLES}
    for name, settings in parties.items():
        assert settings.connected.keys() == {peer for peer in ROLES.keys() - {name} if NETWORKS[name] & NETWORKS[peer]}
        for peer, of in settings.connected.items():
            dialled_back = parties[peer].peers[name].address
            assert (of.address is None) != (dialled_back is None)
            listening = parties[peer if of.address else name].listen
            assert listening is not None
            if of.address:
                assert of.address == f"{peer}:{listening.rpartition(':')[2]}"


def test_passive_parties_know_each_other_but_have_no_connection() -> None:
    for name, other in (("lab", "insurer"), ("insurer", "lab")):
        settings = load_settings(ROOT / "deploy" / f"{name}.yaml")
        assert settings.peers[other].relayed
        (line,) = settings.policy.approve
        assert (line.when.submitters, line.by) == (("clinic",), "rule")
    assert not NETWORKS["lab"] & NETWORKS["insurer"]


def test_the_examples_with_a_third_party_are_run_on_request_only() -> None:
    services = COMPOSE["services"]
    profiles = {name: service["profiles"] for name, service in services.items() if "profiles" in service}
    assert profiles == {
        "asymmetric": ["asymmetric"],
        "three": ["three"],
        "insurer": ["three"],
        "linkage": ["linkage"],
        "agency": ["linkage"],
        "schools": ["linkage"],
    }
    assert services["three"]["command"][:2] == ["submit", "/example/three.yaml"]
    assert services["three"]["depends_on"] == {name: {"condition": "service_healthy"} for name in ("clinic", "lab", "insurer")}
    asymmetric = services["asymmetric"]
    assert asymmetric["command"][:2] == ["submit", "/example/asymmetric.yaml"]
    published = f"http://{services['clinic']['ports'][0].removesuffix(':8080')}"
    for name in ("example", "asymmetric", "three"):  # the link that is printed is the one of this machine
        assert services[name]["command"][-2:] == ["--board", published]
    assert asymmetric["depends_on"] == {name: {"condition": "service_healthy"} for name in ("clinic", "lab", "coordinator")}
    assert services["example"]["depends_on"].keys() == {"clinic", "lab"}


def test_the_example_of_a_linkage_is_run_at_the_agency() -> None:
    services = COMPOSE["services"]
    linkage = services["linkage"]
    assert linkage["command"][:2] == ["submit", "/linkage/job.yaml"]
    assert linkage["command"][-1] == f"http://{services['agency']['ports'][0].removesuffix(':8080')}"
    assert linkage["network_mode"] == "service:agency"
    assert linkage["depends_on"] == {name: {"condition": "service_healthy"} for name in ("agency", "schools", "coordinator")}
    job = load_job(ROOT / "examples" / "linkage" / "job.yaml")
    for name in job.parties.all:
        settings = load_settings(ROOT / "deploy" / f"{name}.yaml")
        check_allowed(settings, job, by_peer=settings.role != "active", loading=False)
        if settings.data is not None:
            assert settings.data.keys.keys() == job.align.keys.keys()


class Setup:
    """``deploy/setup.sh`` with folders of its own in place of volumes."""

    def __init__(self, folder: Path) -> None:
        self.volumes = folder / "setup"
        (folder / "tmp").mkdir()
        for name, role in ROLES.items():
            for kind in ("keys", "data") if role != "coordinator" else ("keys",):
                (self.volumes / name / kind).mkdir(parents=True)
        tools = folder / "bin"
        tools.mkdir()
        python = shlex.quote(sys.executable)
        for tool, command in {"vfl-node": f"{python} -m vfl_node", "python3": python}.items():
            (tools / tool).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            (tools / tool).chmod(0o755)
        examples = {"example": ROOT / "examples" / "clinic_lab", "linkage": ROOT / "examples" / "linkage"}
        here = {"setup": self.volumes, "tmp": folder / "tmp", **examples}
        text = (ROOT / "deploy" / "setup.sh").read_text()
        text = re.sub(r"(?<=[ \"])/(setup|tmp|example|linkage)/", lambda found: f"{here[found[1]]}/", text)
        self._script = folder / "setup.sh"
        self._script.write_text(text)
        self._folder = folder
        self._environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def __call__(self) -> dict[str, bytes]:
        """Run it as a new container would; every file in the volumes."""
        subprocess.run(["sh", str(self._script)], env=self._environment, check=True, stdin=subprocess.DEVNULL, timeout=240)
        for left in (self._folder / "tmp").iterdir():
            subprocess.run(["rm", "-r", str(left)], check=True)
        files = (path for path in sorted(self.volumes.rglob("*")) if path.is_file())
        return {path.relative_to(self.volumes).as_posix(): path.read_bytes() for path in files}


def good(files: dict[str, bytes]) -> None:
    """Every party has a key and a certificate of the one authority; nobody has the authority's key."""
    assert files.keys() == {
        *(f"{name}/keys/{file}" for name in ROLES for file in ("ca.crt", "node.crt", "node.key")),
        "clinic/data/clinic.csv",
        "lab/data/lab.csv",
        "insurer/data/insurer.csv",
        "agency/data/sales.csv",
        "schools/data/schools.csv",
    }
    (authority,) = {files[f"{name}/keys/ca.crt"] for name in ROLES}
    for name in ROLES:
        certificate = x509.load_pem_x509_certificate(files[f"{name}/keys/node.crt"])
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))


@pytest.mark.slow
def test_keys_are_made_once_and_anew_for_volumes_made_before_a_party_was(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    first = setup()
    good(first)
    for name in ROLES:
        assert (setup.volumes / name / "keys" / "node.key").stat().st_mode & 0o777 == 0o600
    assert setup() == first  # what exists is kept

    for file in (setup.volumes / "coordinator" / "keys").iterdir():
        file.unlink()
    second = setup()
    good(second)
    assert all(second[name] != of for name, of in first.items() if "/keys/" in name)
    assert all(second[name] == of for name, of in first.items() if "/data/" in name)

    for name, content in first.items():  # a party's keys from another time
        if name.startswith("coordinator/keys/"):
            (setup.volumes / name).write_bytes(content)
    good(setup())


def test_all_that_the_image_copies_is_in_the_build_context() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    sources = [source for line in copies for source in line.split()]
    assert "constraints.txt" in sources
    for source in sources:
        assert (ROOT / source).exists()
        assert any(source == path or source.startswith(f"{path}/") for path in kept), source
