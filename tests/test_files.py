"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vfl_node.configuration.models import parse
from vfl_node.crypto.groups import Curve25519
from vfl_node.errors import StateError, UsageError
from vfl_node.estimate.machine import measure_node
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.node.federation import LocalFederation
from vfl_node.process import files
from vfl_node.process.files import private_folder, read_checked, remove, write_checked, write_whole
from vfl_node.settings.node import Peer, Settings


def test_what_is_written_replaces_what_was_there(tmp_path: Path) -> None:
    for data in (b"first", b"second"):
        write_whole(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "taken", b"data")
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "file", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("data", [b"", b"x", b"kept by a node" * 9])
def test_what_was_kept_is_read_back(tmp_path: Path, data: bytes) -> None:
    write_checked(tmp_path / "file", data)
    assert read_checked(tmp_path / "file") == data


def test_a_bit_that_flips_anywhere_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_checked(path, b"seventeen bytes !")
    whole = path.read_bytes()
    for place in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(StateError, match="is damaged") as caught:
            read_checked(path, hint="begin again")
        assert (caught.value.code, caught.value.hint) == ("E_STATE_CORRUPT", "begin again")
        assert str(path) in caught.value.message
        assert str(path) not in caught.value.for_peer


@pytest.mark.parametrize("length", [0, 3, 37, 38, 50])
def test_a_file_cut_short_is_noticed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    write_checked(path, b"seventeen bytes !")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(StateError) as caught:
        read_checked(path)
    assert caught.value.code == "E_STATE_CORRUPT"


def test_a_file_of_a_newer_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "VERSION", 2)
    write_checked(tmp_path / "file", b"of tomorrow")
    monkeypatch.undo()
    with pytest.raises(StateError, match="version 2 of its files, this one reads 1") as caught:
        read_checked(tmp_path / "file")
    assert caught.value.code == "E_STATE_VERSION"


def test_there_may_be_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_checked(tmp_path / "none")


def test_a_symbolic_link_is_replaced_and_never_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    for planted in ("file", "file.tmp"):
        (tmp_path / planted).symlink_to(victim)
        write_whole(tmp_path / "file", b"data")
        assert victim.read_bytes() == b"kept"
        assert not (tmp_path / "file").is_symlink()
        assert (tmp_path / "file").read_bytes() == b"data"
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_private_folder_is_no_link_and_not_everybodys(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private_folder(tmp_path / "new" / "folder")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("new", "new/folder")] == [0o700, 0o700]
    (tmp_path / "link").symlink_to(tmp_path / "new")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").touch()
    for name in ("link", "open", "file"):
        with pytest.raises(OSError, match=name):
            private_folder(tmp_path / name)
    private_folder(tmp_path / "new")


def test_what_is_written_outlives_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data are durable before they have their name, and the name before anybody is told."""
    happened: list[tuple[str, object]] = []
    sync, replace = os.fsync, Path.replace

    def syncs(descriptor: int) -> None:
        opened = Path(f"/proc/self/fd/{descriptor}").readlink()
        happened.append(("sync", opened.read_bytes() if opened.is_file() else opened))
        sync(descriptor)

    def replaces(path: Path, target: Path) -> Path:
        happened.append(("rename", target))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(Path, "replace", replaces)
    write_whole(tmp_path / "file", b"data")
    assert happened == [("sync", b"data"), ("rename", tmp_path / "file"), ("sync", tmp_path)]
    remove(tmp_path / "file")
    assert happened[3:] == [("sync", tmp_path)]


def test_without_a_place_for_temporary_files_cause_and_remedy_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a read-only root without /tmp."""
    with files.scratch("vfl-") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a").touch()
    assert not folder.exists()

    def nowhere(*_: object, **__: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/var/tmp', '/usr/tmp', '/']")

    makers: dict[str, Callable[[], object]] = {
        "mkdtemp": lambda: files.scratch_folder("vfl-"),
        "gettempdir": lambda: measure_node(Curve25519(), None),
    }
    for name, make in makers.items():
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, name, nowhere)
            with pytest.raises(UsageError, match=r"temporary files .* No usable temporary directory") as caught:
                make()
            assert caught.value.code == "E_FILE"
            assert "TMPDIR" in caught.value.hint
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    job = parse("name: trial\nparties: {active: clinic, passive: lab}\n", Job, source="job")
    with pytest.raises(UsageError, match="temporary files"):
        simulate(job, {}, tmp_path / "out", settings={name: _settings(name) for name in ("clinic", "lab")})
    with pytest.raises(UsageError, match="temporary files"):
        LocalFederation(job, {}, logs=tmp_path / "logs")


def _settings(name: str) -> Settings:
    role: Any = "active" if name == "clinic" else "passive"
    peers = {"lab" if name == "clinic" else "clinic": Peer(address="127.0.0.1:1")}
    return Settings(name=name, role=role, insecure_loopback=True, peers=peers)
