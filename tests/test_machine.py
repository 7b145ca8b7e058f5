"""What is free: of the machine, and of the control group that this process is in; and what this process gives back."""

from __future__ import annotations

import math
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from vfl_node.process.machine import count_cores, free_bytes, give_memory_back, share_arenas, used_bytes

MIB = 1 << 20


@pytest.fixture
def system(tmp_path: Path) -> tuple[Path, Path]:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {900 << 10} kB\n")
    (proc / "self" / "cgroup").write_text("0::/box/job\n")
    return proc, groups


def group(folder: Path, most: str, used: str, cache: str, limit: str) -> None:
    folder.mkdir(parents=True)
    (folder / most).write_text(limit + "\n")
    (folder / used).write_text(f"{300 * MIB}\n")
    (folder / "memory.stat").write_text(
        f"anon 5\n{cache} {60 * MIB}\n{cache.replace('inactive', 'active')} {40 * MIB}\nfile 7\n"
    )


def test_without_a_group_it_is_what_the_machine_has(system: tuple[Path, Path]) -> None:
    assert free_bytes(*system) == 900 * MIB


@pytest.mark.parametrize("where", ["box/job", "box", ""])
def test_a_group_with_less_counts_and_so_do_those_around_it(system: tuple[Path, Path], where: str) -> None:
    proc, groups = system
    group(groups / where, "memory.max", "memory.current", "inactive_file", str(512 * MIB))
    assert free_bytes(proc, groups) == 312 * MIB  # page cache can be given up


def test_a_group_without_a_limit_does_not_count(system: tuple[Path, Path]) -> None:
    proc, groups = system
    group(groups / "box", "memory.max", "memory.current", "inactive_file", "max")
    assert free_bytes(proc, groups) == 900 * MIB


def test_the_older_kind_of_group(system: tuple[Path, Path]) -> None:
    proc, groups = system
    (proc / "self" / "cgroup").write_text("5:cpu:/other\n4:hugetlb,memory:/box\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    group(groups / "memory" / "box", *names, str(512 * MIB))
    assert free_bytes(proc, groups) == 312 * MIB


def test_a_system_that_does_not_tell_is_not_held_to_anything(tmp_path: Path) -> None:
    assert free_bytes(tmp_path, tmp_path) == math.inf


@pytest.mark.parametrize(
    ("where", "limit", "cores"),
    [
        ("box/job", "250000 100000", 2),
        ("box", "300000 100000", 3),
        ("", "50000 100000", 1),
        ("box", "max 100000", 8),
        ("box", "unclear", 8),
        ("box", "9900000 100000", 8),
    ],
)
def test_a_group_may_have_the_time_of_fewer_cores(
    system: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, where: str, limit: str, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    proc, groups = system
    assert count_cores(proc, groups) == 8
    (groups / where).mkdir(parents=True)
    (groups / where / "cpu.max").write_text(limit + "\n")
    assert count_cores(proc, groups) == cores


@pytest.mark.parametrize(("quota", "cores"), [("350000", 3), ("-1", 8)])
def test_and_so_may_one_of_the_older_kind(
    system: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    proc, groups = system
    (proc / "self" / "cgroup").write_text("5:cpuacct,cpu:/box\n4:memory:/other\n0::/\n")
    (groups / "cpu" / "box").mkdir(parents=True)
    (groups / "cpu" / "box" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (groups / "cpu" / "box" / "cpu.cfs_period_us").write_text("100000\n")
    assert count_cores(proc, groups) == cores


def test_this_process_holds_some() -> None:
    assert 10 * MIB < used_bytes() < free_bytes() + (1 << 40)


glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


@glibc
def test_what_a_thread_has_freed_goes_back_to_the_system() -> None:
    kept: list[bytes] = []

    def take_and_free() -> None:
        taken = [bytes(2048) for _ in range(50 * MIB // 2048)]  # small pieces: large ones go back at once
        kept.append(taken[-1])  # above the others, so that these stay

    thread = threading.Thread(target=take_and_free)
    thread.start()
    thread.join()
    held = used_bytes()
    give_memory_back()
    assert used_bytes() < held - 25 * MIB


ARENAS = """
import ctypes, threading
from vfl_node.process.machine import share_arenas
{first}
all_at_once = threading.Barrier(8)
def take() -> None:
    taken = [bytes(2048) for _ in range(100)]
    all_at_once.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@glibc
@pytest.mark.parametrize(("first", "several"), [(f"{share_arenas.__name__}()", False), ("", True)])
def test_threads_share_two_arenas(first: str, several: bool) -> None:
    said = subprocess.run([sys.executable, "-c", ARENAS.format(first=first)], capture_output=True, text=True, check=True)
    assert (said.stdout.count("<heap nr=") > 2) is several
