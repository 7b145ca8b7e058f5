from __future__ import annotations

from pathlib import Path

import pytest

from vfl_node.errors import UsageError
from vfl_node.settings import is_loopback, load_settings

BASE = "name: clinic\nrole: active\ninsecure_loopback: true\n"


def settings(folder: Path, text: str):
    path = folder / "node.yaml"
    path.write_text(text)
    return load_settings(path)


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = "name: a\nrole: active\ndata: {path: d.csv}\ntls: {ca: ca.crt, certificate: c.crt, key: /keys/k}\n"
    loaded = settings(tmp_path, text)
    assert loaded.data
    assert loaded.data.path == tmp_path / "d.csv"
    assert loaded.tls
    assert loaded.tls.ca == tmp_path / "ca.crt"
    assert loaded.tls.key == Path("/keys/k")
    assert loaded.state_dir == tmp_path / "state"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: clinic\nrole: active\n", "set tls"),
        (BASE + "listen: 0.0.0.0:7443\n", "plaintext is for loopback only"),
        (BASE + "peers: {lab: {address: lab.example:1}}\n", "plaintext is for loopback only"),
        (BASE + "peers: {lab: {}}\n", "must be able to dial in"),
        (BASE + "peers: {clinic: {address: '127.0.0.1:1'}}\n", "own name"),
        (BASE + "accept_jobs_from: [lab]\n", "not among peers"),
        (BASE + "listen: nonsense\n", "'listen'"),
        (BASE + "peers: {lab: {adress: '127.0.0.1:1'}}\n", "unknown key 'peers.lab.adress'"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings(tmp_path, text)
    assert said in caught.value.message


def test_nobody_may_start_jobs_by_default(tmp_path: Path) -> None:
    assert settings(tmp_path, BASE).accept_jobs_from == ()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_settings(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("10.0.0.1:1", False), ("127.evil.example:1", False)],
)
def test_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback
