"""Which settings of a cluster are refused: all that would leave it open, or that this machine cannot use."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from vfl_node.engines.processes import Processes
from vfl_node.engines.ray.checks import check_engine
from vfl_node.engines.ray.cluster import Cluster
from vfl_node.engines.threads import Threads
from vfl_node.errors import UsageError
from vfl_node.execution.run import _machine
from vfl_node.node.doctor.own import check_settings
from vfl_node.node.serving import serve
from vfl_node.settings.engine import EngineSettings
from vfl_node.settings.reading import load_settings

BASE = "name: clinic\nrole: active\ninsecure_loopback: true\n"
WHOLE = {
    "kind": "ray",
    "address": "10.0.0.1:6379",
    "token_file": "token",
    "ca": "ca.pem",
    "cert": "cert.pem",
    "key": "key.pem",
    "workers": "8",
}


def read(tmp_path: Path, keys: dict[str, str]) -> EngineSettings:
    """The settings of a node, with the files that they may name."""
    for name in ("token", "ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("0" * 64)
        (tmp_path / name).chmod(0o600)
    written = ", ".join(f"{key}: {text}" for key, text in keys.items())
    (tmp_path / "node.yaml").write_text(f"{BASE}engine: {{{written}}}\n")
    return load_settings(tmp_path / "node.yaml").engine


@pytest.fixture(autouse=True)
def _ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if Ray was installed, and nothing of it in the environment."""
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.60.0" if name == "ray" else version(name))


def test_without_a_word_of_it_a_node_computes_on_its_own_machine(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(BASE)
    given = load_settings(tmp_path / "node.yaml").engine
    assert given == EngineSettings() == read(tmp_path, {"kind": "local"})
    check_engine(given)


def test_a_cluster_with_token_and_certificates_is_taken_and_its_paths_are_beside_the_settings(tmp_path: Path) -> None:
    given = read(tmp_path, WHOLE)
    assert [given.token_file, given.key] == [tmp_path / "token", tmp_path / "key.pem"]
    check_engine(given)


def test_a_cluster_on_loopback_may_go_without_certificates_if_its_owner_says_so(tmp_path: Path) -> None:
    bare = {key: text for key, text in WHOLE.items() if key not in ("ca", "cert", "key")}
    check_engine(read(tmp_path, bare | {"address": "127.0.0.1:6379", "allow_plain": "true"}))
    for changes in ({}, {"address": "127.0.0.1:6379"}, {"allow_plain": "true"}):
        with pytest.raises(UsageError, match="a cluster needs ca, cert and key") as caught:
            read(tmp_path, bare | changes)
        assert caught.value.code == "E_CONFIG"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_file": None}, r"a cluster needs engine\.token_file"),
        ({"workers": None}, r"a cluster needs engine\.workers"),
        ({"address": None}, r"a cluster needs engine\.address"),
        ({"address": "ray://10.0.0.1:10001"}, "Ray Client"),
        ({"address": "10.0.0.1"}, r"'engine\.address'"),
        ({"key": None}, "ca, cert and key belong together"),
        ({"kind": "local"}, "is for a cluster"),
        ({"kind": "dask"}, r"'engine\.kind' cannot be 'dask'"),
        ({"workers": "0"}, r"'engine\.workers'"),
        ({"start_s": "0"}, r"'engine\.start_s'"),
        ({"runtime_env": "{}"}, r"unknown key 'engine\.runtime_env'"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read(tmp_path, {key: text for key, text in {**WHOLE, **changes}.items() if text is not None})
    assert caught.value.code == "E_CONFIG"


@pytest.mark.parametrize("name", ["token", "key.pem"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o700])
def test_secrets_that_others_may_read_are_refused(tmp_path: Path, name: str, mode: int) -> None:
    given = read(tmp_path, WHOLE)
    (tmp_path / name).chmod(mode)
    with pytest.raises(UsageError, match="must be this user's alone") as caught:
        check_engine(given)
    assert (caught.value.code, f"chmod 600 {tmp_path / name}" in caught.value.hint) == ("E_CONFIG", True)


@pytest.mark.parametrize("name", ["token", "key.pem", "ca.pem", "cert.pem"])
def test_files_that_are_not_there_are_refused(tmp_path: Path, name: str) -> None:
    given = read(tmp_path, WHOLE)
    (tmp_path / name).unlink()
    with pytest.raises(UsageError, match=name) as caught:
        check_engine(given)
    assert caught.value.code == "E_CONFIG"


@pytest.mark.parametrize("name", ["RAY_AUTH_TOKEN", "RAY_RUNTIME_ENV_HOOK", "RAY_RUNTIME_ENV_WORKING_DIR"])
def test_an_environment_that_shows_the_token_or_changes_workers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "a-secret-text")
    with pytest.raises(UsageError, match=name) as caught:
        check_engine(read(tmp_path, WHOLE))
    assert caught.value.code == "E_CONFIG"
    assert "a-secret-text" not in str(caught.value)
    check_engine(EngineSettings())


@pytest.mark.parametrize("version", ["2.51.1", "1.13.0", None])
def test_ray_that_is_absent_or_without_a_token_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    def installed(_: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(metadata, "version", installed)
    with pytest.raises(UsageError, match=version or "not installed") as caught:
        check_engine(read(tmp_path, WHOLE))
    assert (caught.value.code, "vfl-node[ray]" in caught.value.hint) == ("E_CONFIG", True)


def test_a_job_of_a_node_computes_where_its_settings_say(tmp_path: Path) -> None:
    whole = read(tmp_path, WHOLE)
    settings = load_settings(tmp_path / "node.yaml")
    assert settings.engine == whole
    machine, local = _machine(settings), _machine(settings.model_copy(update={"engine": EngineSettings()}))
    assert isinstance(machine.workers, Cluster)
    assert machine.processes is machine.workers
    assert isinstance(machine.threads, Threads)
    assert (machine.workers.workers, machine.workers.grain) == (16, 64)
    assert isinstance(local.workers, Threads)
    assert local.threads is local.workers
    assert isinstance(local.processes, Processes)
    machine.processes.close()


def test_a_node_does_not_start_and_the_doctor_says_why(tmp_path: Path) -> None:
    read(tmp_path, WHOLE)
    (tmp_path / "token").unlink()
    with pytest.raises(UsageError, match="token") as caught:
        serve(load_settings(tmp_path / "node.yaml"))
    assert caught.value.code == "E_CONFIG"
    _, finding = check_settings(tmp_path / "node.yaml")
    assert finding.status == "FAIL"
    assert "token" in finding.text
