"""Files of log lines: no line is lost or torn however the file is rotated, by the node or by logrotate."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from vfl_node.errors import UsageError
from vfl_node.process.log_file import LogFile

WRITERS, LINES = 4, 1000
FORK = multiprocessing.get_context("fork")

logrotate = pytest.mark.skipif(not Path("/usr/sbin/logrotate").exists(), reason="no logrotate here (Debian: logrotate)")


def refuse(line: str) -> None:
    raise AssertionError(f"not written: {line}")


def line(writer: int, number: int) -> str:
    return f"writer {writer} line {number:05d} {'x' * (number % 90)}\n"


def write(path: Path, writer: int, lines: int, max_bytes: int) -> None:
    file = LogFile(path, max_bytes, 1000, refuse)
    for number in range(lines):
        file.write(line(writer, number))


def start(path: Path, max_bytes: int, lines: int = LINES) -> list[multiprocessing.process.BaseProcess]:
    """Writers, each a process of its own."""
    writers = [FORK.Process(target=write, args=(path, writer, lines, max_bytes)) for writer in range(WRITERS)]
    for process in writers:
        process.start()
    return writers


def ended(writers: list[multiprocessing.process.BaseProcess]) -> None:
    for process in writers:
        process.join(120)
        assert process.exitcode == 0


def found(folder: Path) -> list[str]:
    return sorted(text for path in folder.glob("node.log*") for text in path.read_text().splitlines(keepends=True))


def wanted(lines: int = LINES) -> list[str]:
    return sorted(line(writer, number) for writer in range(WRITERS) for number in range(lines))


def test_several_processes_rotate_one_file_and_lose_no_line(tmp_path: Path) -> None:
    ended(start(tmp_path / "node.log", max_bytes=5000))
    files = list(tmp_path.iterdir())
    assert len(files) > 20
    assert all(path.stat().st_size <= 5000 and path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert found(tmp_path) == wanted()


def test_several_threads_share_one_file(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "node.log", 5000, 1000, refuse)

    def add(writer: int) -> None:
        for number in range(LINES):
            file.write(line(writer, number))

    threads = [threading.Thread(target=add, args=(writer,)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    file.close()
    assert found(tmp_path) == wanted()


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "node.log", 10, 2, refuse)
    for number in range(6):
        file.write(f"{number:08d}\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "node.log": "00000005\n",
        "node.log.1": "00000004\n",
        "node.log.2": "00000003\n",
    }


def test_a_file_that_was_moved_or_removed_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    file = LogFile(path, 1000, 2, refuse)
    file.write("one\n")
    path.rename(tmp_path / "moved")
    file.write("two\n")
    path.unlink()
    file.write("three\n")
    path.rename(tmp_path / "again")
    path.touch(0o644)  # as logrotate's create
    file.write("four\n")
    assert [(tmp_path / name).read_text() for name in ("moved", "again", "node.log")] == ["one\n", "three\n", "four\n"]
    assert path.stat().st_mode & 0o777 == 0o600


def rotate(folder: Path, *how: str) -> None:
    """Have Debian's logrotate rotate the file once."""
    config = folder / "rotate.conf"
    config.write_text("\n".join([f"{folder}/node.log {{", "rotate 2000", "missingok", *how, "}", ""]))
    config.chmod(0o600)
    done = subprocess.run(
        ["/usr/sbin/logrotate", "--force", "--state", folder / "state", config], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@logrotate
def test_logrotate_moves_the_file_while_it_is_written(tmp_path: Path) -> None:
    """With ``create``, logrotate and a writer would both begin the new file: the guide asks for ``nocreate``."""
    path = tmp_path / "node.log"
    path.touch()
    writers, rotations = start(path, 1 << 30, 20 * LINES), 0
    while any(process.is_alive() for process in writers):
        rotate(tmp_path, "nocreate")
        rotations += 1
    ended(writers)
    assert rotations > 1
    assert len(list(tmp_path.glob("node.log*"))) > 1
    assert found(tmp_path) == wanted(20 * LINES)


@logrotate
def test_logrotate_copies_and_cuts_the_file(tmp_path: Path) -> None:
    """Between two lines: what is written between its copy and its cut is lost to any writer, as its manual says."""
    path = tmp_path / "node.log"
    file = LogFile(path, 1 << 30, 10, refuse)
    careless = path.open("w")  # the control: it does not write to the end of the file, and leaves a hole
    for number in range(WRITERS):
        file.write(line(number, 0))
        rotate(tmp_path, "copytruncate")
    assert found(tmp_path) == wanted(1)
    careless.seek(100)
    careless.write("late")
    careless.close()
    assert path.read_bytes() == b"\0" * 100 + b"late"


def test_a_full_disk_or_a_lost_folder_sends_lines_elsewhere(tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "logs"
    folder.mkdir()
    file = LogFile(folder / "node.log", 1000, 2, said.append)
    file.write("one\n")
    shutil.rmtree(folder)
    file.write("two\n")
    folder.mkdir()
    file.write("three\n")
    assert (said, (folder / "node.log").read_text()) == (["two\n"], "three\n")


@pytest.mark.parametrize("place", ["none/node.log", "link", "pipe"])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=place) as caught:
        LogFile(tmp_path / place, 1000, 2, refuse)
    assert caught.value.code == "E_FILE"
    assert not (tmp_path / "elsewhere").exists()
