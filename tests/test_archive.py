from __future__ import annotations

import io
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from vfl_node.errors import StateError
from vfl_node.process.archive import ArchiveWriter, unpack


def expects(name: str) -> bool:
    return name in {"first", "folder/second", "third"}


def write(path: Path, **files: bytes) -> None:
    with path.open("wb") as file:
        writer = ArchiveWriter(file)
        for name, data in files.items():
            writer.add_bytes(name.replace("__", "/"), data, 0)
        writer.close()


def read(path: Path, folder: Path) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    with path.open("rb") as file:
        return dict(unpack(file, folder, expects))


def test_tar_reads_what_is_written_and_so_do_we(tmp_path: Path) -> None:
    path, grown = tmp_path / "a.tar", tmp_path / "grown"
    grown.write_bytes(b"x" * 700)
    with path.open("wb") as file, grown.open("rb") as source:
        writer = ArchiveWriter(file)
        writer.add_bytes("first", b"", 0)
        writer.add("folder/second", source)
        writer.add_bytes("third", b"y" * 512, 0)
        writer.close()
    (theirs := tmp_path / "theirs").mkdir()
    subprocess.run(["tar", "-xf", path, "-C", theirs], check=True)
    assert read(path, tmp_path / "ours") == writer.sums
    for name in writer.sums:
        assert (theirs / name).read_bytes() == (tmp_path / "ours" / name).read_bytes()
    assert (tmp_path / "ours" / "folder" / "second").read_bytes() == grown.read_bytes()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "ours").rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_a_file_that_grows_meanwhile_is_taken_as_long_as_it_was(tmp_path: Path) -> None:
    growing = tmp_path / "growing"
    growing.write_bytes(b"before")

    class Growing(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            with growing.open("ab") as file:
                file.write(b"after")
            return super().read(size)

    with (tmp_path / "a.tar").open("wb") as file:
        writer = ArchiveWriter(file)
        writer.add("first", Growing(io.FileIO(growing)))  # type: ignore[arg-type]
        writer.close()
    read(tmp_path / "a.tar", tmp_path / "out")
    assert (tmp_path / "out" / "first").read_bytes() == b"before"


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "", form: int = tarfile.USTAR_FORMAT) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info.tobuf(form, "ascii", "strict")


PLANTED = {
    "another folder": member("../escaped"),
    "a whole path": member("/tmp/escaped"),
    "an unexpected name": member("fourth"),
    "a symbolic link": member("first", tarfile.SYMTYPE, link="/etc/passwd"),
    "a hard link": member("first", tarfile.LNKTYPE, link="/etc/passwd"),
    "a device": member("first", tarfile.CHRTYPE),
    "a folder": member("first", tarfile.DIRTYPE),
    "a sparse file": member("first", tarfile.GNUTYPE_SPARSE),
    "a long name": member("n" * 300, form=tarfile.GNU_FORMAT),
    "a header of its own": member("n" * 300, form=tarfile.PAX_FORMAT),
    "more than there is": member("first", size=1 << 32),
    "less than nothing": member("first", size=-1, form=tarfile.GNU_FORMAT),
    "the same twice": 2 * member("first"),
    "no header": b"n" * 512,
    "half a header": member("first")[:300],
    "nothing": b"",
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_refused_and_leaves_nothing_elsewhere(tmp_path: Path, planted: str) -> None:
    (inner := tmp_path / "inner").mkdir()
    path = tmp_path / "a.tar"
    data = PLANTED[planted]
    path.write_bytes(data + bytes(0 if len(data) % 512 else 1024 if data else 0))
    with pytest.raises(StateError) as caught:
        read(path, inner / "out")
    assert caught.value.code == "E_BACKUP"
    assert {file.name for file in tmp_path.rglob("*")} <= {"inner", "out", "a.tar", "first"}
    assert not (inner / "out" / "first").is_symlink()


def test_a_control_the_same_reader_takes_an_expected_file(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(member("first") + bytes(1024))
    assert list(read(tmp_path / "a.tar", tmp_path / "out")) == ["first"]


@pytest.mark.parametrize("cut", [lambda whole: whole[:600], lambda whole: whole[:1200], lambda whole: whole[:-1024]])
def test_a_cut_archive_is_refused(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.tar"
    write(path, first=b"x" * 700)
    read(path, tmp_path / "whole")
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(StateError, match="cut"):
        read(path, tmp_path / "out")


def test_a_file_that_becomes_shorter_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "shrinking").write_bytes(b"x" * 5000)
    with (tmp_path / "shrinking").open("rb") as source, (tmp_path / "a.tar").open("wb") as file:
        source.seek(4000)  # as if the first part were all that is left
        with pytest.raises(OSError, match="shorter"):
            ArchiveWriter(file).add("first", source)
