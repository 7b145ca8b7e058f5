"""The files of ``deploy`` pass their checks, and broken copies of them do not (``deploy/check.sh``)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from vfl_node.node.board import check_http
from vfl_node.settings.reading import load_settings
from vfl_node.version import VERSION

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SKIPPED = "-- skipped:"


VALIDATOR = ROOT / "build" / "deploy" / "venv" / "bin" / "kubernetes-validate"
"""Where ``make deploy-check`` installs it."""


def check(step: str, folder: Path = DEPLOY, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one step of the script on the files of ``folder``; the test is skipped where its tool is absent."""
    environment = os.environ | {"DEPLOY": str(folder), "PYTHON": sys.executable} | variables
    environment.setdefault("KUBERNETES_VALIDATE", str(VALIDATOR))
    done = subprocess.run([DEPLOY / "check.sh", step], env=environment, capture_output=True, text=True)
    if SKIPPED in done.stdout:
        pytest.skip(done.stdout.partition(SKIPPED)[2].strip().splitlines()[0])
    return done


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of ``deploy`` to break."""
    return Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def test_units_verify_and_are_locked_up() -> None:
    done = check("systemd")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu.conf" in done.stdout


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("vfl-node@.service", "WatchdogSec=60", "WatchdogSecs=60", "Unknown key 'WatchdogSecs'"),
        ("vfl-node@.service", "Type=notify", "Type=notified", "notified"),
        ("vfl-node-backup@.timer", "OnCalendar=*-*-* 02:00:00", "OnCalendar=every night", "every night"),
        ("vfl-node@.service", "SystemCallFilter=@system-service\n", "", "exposure"),
        ("drop-ins/gpu.conf", "PrivateDevices=no", "PrivatDevices=no", "PrivatDevices"),
    ],
)
def test_a_broken_unit_is_found(copied: Path, name: str, old: str, new: str, said: str) -> None:
    change(copied / "systemd" / name, old, new)
    if said == "exposure":
        change(copied / "systemd" / name, "CapabilityBoundingSet=\n", "")
    done = check("systemd", copied)
    assert (done.returncode, said in done.stdout) == (1, True), done.stdout + done.stderr


def test_a_node_has_no_setting_that_was_found_to_stop_it() -> None:
    """PrivateUsers does not start without user namespaces; ProcSubset=pid hides the memory that is free."""
    units = [path.read_text().splitlines() for path in (DEPLOY / "systemd").glob("*.service")]
    assert len(units) == 2
    for lines in units:
        assert not [line for line in lines if line.startswith(("PrivateUsers=", "ProcSubset=", "MemoryDenyWriteExecute="))]


# The chart.

CHART = DEPLOY / "helm" / "vfl-node"
FUNCTIONS = {
    *("include", "required", "toYaml", "nindent", "quote", "printf", "default", "trunc", "trimSuffix", "sha256sum"),
    *("omit", "ternary", "concat", "eq", "ne"),
}
"""What templates may use: helm has each, and so has the renderer."""
PARTIES = {"least": "lab", "example": "clinic"}
"""What is rendered → the release, and the party."""
ACTIONS = {"define", "end", "if", "else", "with", "range"}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """``least`` and ``example`` → the objects, by kind and name."""
    folder = tmp_path_factory.mktemp("rendered")
    done = check("render", RENDERED=str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return {
        path.stem: {f"{each['kind']} {each['metadata']['name']}": each for each in yaml.safe_load_all(path.read_text())}
        for path in folder.iterdir()
    }


def test_the_values_fit_their_schema() -> None:
    done = check("values")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("updateStrategy: RollingUpdate", "updateStrategi: RollingUpdate", "updateStrategi"),
        ("accessMode: ReadWriteOncePod", "acessMode: ReadWriteOncePod", "acessMode"),
        ("port: 7443", "port: '7443'", "service.port"),
        ("settings: {}", "settings: {listen: 0.0.0.0:1}", "settings"),
    ],
)
def test_a_wrong_value_is_found(copied: Path, old: str, new: str, said: str) -> None:
    change(copied / "helm" / "vfl-node" / "values.yaml", old, new)
    done = check("values", copied)
    assert (done.returncode, said in done.stdout) == (1, True), done.stdout + done.stderr


def test_the_schema_has_each_value_and_no_other() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def names(section: dict[str, Any], known: dict[str, Any], path: str = "") -> None:
        if "properties" not in known or path in (".settings", ".policy", ".resources"):
            return
        assert known["additionalProperties"] is False, path
        assert section.keys() == known["properties"].keys() - {"global"}, path
        for key, value in section.items():
            if isinstance(value, dict):
                names(value, known["properties"][key], f"{path}.{key}")

    names(values, schema)


def test_the_chart_is_of_this_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == VERSION


def unknown_functions(text: str) -> set[str]:
    """What a template calls that is no field, text or number, and not among those that are known."""
    found = set()
    for inside in re.findall(r"{{-?(.*?)-?}}", text, re.DOTALL):
        bare = re.sub(r'"[^"]*"', "", inside)
        words = re.findall(r"(?<![\w.$])[A-Za-z]\w*", bare)
        found |= set(words) - FUNCTIONS - ACTIONS
    return found


def test_templates_use_functions_only_that_the_renderer_knows() -> None:
    assert unknown_functions('{{ .Values.a | b64enc }} {{- lookup "v1" .name }}') == {"b64enc", "lookup"}
    found = {path.name: unknown_functions(path.read_text()) for path in (CHART / "templates").iterdir()}
    assert {name: names for name, names in found.items() if names} == {}
    assert len(found) > 6


def test_every_object_is_rendered(rendered: dict[str, dict[str, Any]]) -> None:
    kinds = {"ConfigMap", "StatefulSet", "NetworkPolicy", "PodDisruptionBudget"}
    assert rendered["least"].keys() == {*(f"{kind} lab" for kind in kinds), "Service lab", "Service lab-board"}
    more = {"ServiceMonitor clinic", "PrometheusRule clinic", "Service clinic", "Service clinic-board"}
    assert rendered["example"].keys() == {*(f"{kind} clinic" for kind in kinds), *more}


@pytest.mark.parametrize(("which", "name"), PARTIES.items())
def test_a_node_takes_the_settings_of_the_chart(
    rendered: dict[str, dict[str, Any]], tmp_path: Path, which: str, name: str
) -> None:
    for file, text in rendered[which][f"ConfigMap {name}"]["data"].items():
        (tmp_path / file).write_text(text)
    settings = load_settings(tmp_path / "node.yaml")
    check_http(settings)
    assert settings.name == name
    assert settings.tls
    assert settings.tls.mode == ("shared" if which == "least" else "own")
    assert settings.in_force.file == tmp_path / "policy.yaml"
    assert settings.rules.preset == ("careful" if which == "least" else "strict")
    mounts = {mount["mountPath"] for mount in container(rendered[which][f"StatefulSet {name}"])["volumeMounts"]}
    http = [settings.http_tls.key] if settings.http_tls else []
    for path in (settings.tls.key, settings.state_dir, settings.peers_dir, *http, *(t.path for t in settings.tables.values())):
        assert f"/{Path(str(path)).parts[1]}" in mounts


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return found


def test_the_pod_is_locked_up_and_asked_how_it_is(rendered: dict[str, dict[str, Any]]) -> None:
    for which, name in PARTIES.items():
        workload = rendered[which][f"StatefulSet {name}"]
        pod, node = workload["spec"]["template"]["spec"], container(workload)
        user = "10001"
        assert f"--uid {user}" in (DEPLOY / "Dockerfile").read_text()
        assert {pod["securityContext"][key] for key in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}
        assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (True, False)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert node["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        (keys,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "keys"]
        assert keys["defaultMode"] == 0o440
        probes = {key: node[f"{key}Probe"]["httpGet"]["path"] for key in ("startup", "liveness", "readiness")}
        assert probes == {"startup": "/live", "liveness": "/live", "readiness": "/ready"}
        assert {node[f"{key}Probe"]["httpGet"]["scheme"] for key in probes} == {"HTTP" if which == "least" else "HTTPS"}
        assert workload["spec"]["replicas"] == 1


def test_only_named_addresses_reach_the_node_and_are_reached(rendered: dict[str, dict[str, Any]]) -> None:
    least, example = (
        rendered[which][f"NetworkPolicy {name}"]["spec"] for which, name in (("least", "lab"), ("example", "clinic"))
    )
    assert (least["ingress"], len(least["egress"])) == (None, 1)  # nobody in, and out to names alone
    assert [rule["ports"] for rule in example["ingress"]] == [[{"port": "peers"}], [{"port": "peers"}], [{"port": "board"}]]
    assert [rule["ports"] for rule in example["egress"][1:]] == [[{"port": 7443}], [{"port": 5432}]]
    assert all(rule["to"] for rule in example["egress"])


def test_objects_are_what_kubernetes_knows() -> None:
    done = check("kubernetes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 objects" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("livenessProbe:", "livenessProb:", "livenessProb"),
        ("containerPort: 7443", 'containerPort: "7443"', "7443"),
        ("accessModes:", "acessModes:", "acessModes"),
    ],
)
def test_a_broken_object_is_found(copied: Path, old: str, new: str, said: str) -> None:
    change(copied / "helm" / "vfl-node" / "templates" / "statefulset.yaml", old, new)
    done = check("kubernetes", copied)
    assert (done.returncode, said in done.stdout + done.stderr) == (1, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("statefulset.yaml", "{{- $scheme := ternary", "{{- $scheme := choose"),
        ("_names.tpl", 'required "party: the name of the party is needed" ', ""),
        ("disruption.yaml", "{{- end }}", ""),
    ],
)
def test_a_broken_template_is_found(copied: Path, name: str, old: str, new: str) -> None:
    change(copied / "helm" / "vfl-node" / "templates" / name, old, new)
    assert check("render", copied).returncode == 1


@pytest.mark.parametrize("step", ["helm", "kustomize"])
def test_the_tools_of_kubernetes_take_the_chart(step: str) -> None:
    done = check(step)
    assert done.returncode == 0, done.stdout + done.stderr
