"""The compiled kernels under the compiler's sanitizers, by a fuzzer, and on many random points."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vfl_node.crypto.kernels import find_kernel, names
from vfl_node.crypto.kernels.choice import _available

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
NATIVE = [of for of in _available() if of.name != "libsodium"]

COPIED = ("native", "setup.py", "pyproject.toml", "README.md", "LICENSE", "vfl_node", "tests/crypto", "tests/thorough.py")

TESTS = ("tests/crypto/test_kernels.py", "tests/crypto/test_residues.py", "tests/crypto/lattice")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not NATIVE, reason="this machine runs no compiled kernel")]


def copied(folder: Path) -> None:
    """What a compilation and the tests of it need."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(source, target)


def test_another_processor_has_lattices_alone(tmp_path: Path) -> None:
    """Compiled as if this were no x86-64, the module lacks the other kernels, and lattices pass their tests."""
    copied(tmp_path)
    pretended = "import platform, runpy; platform.machine = lambda: 'riscv64'; runpy.run_path('setup.py', run_name='__main__')"
    building = [sys.executable, "-c", pretended, "-q", "build_ext", "--inplace"]
    subprocess.run(building, cwd=tmp_path, check=True)
    running = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = "from vfl_node.crypto.kernels import lattice_kernel, names; print(*names(), lattice_kernel()[1])"
    done = subprocess.run([sys.executable, "-c", found], cwd=tmp_path, env=running, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["libsodium", "portable"]
    tests = ["-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow", "tests/crypto/lattice"]
    done = subprocess.run([sys.executable, "-m", "pytest", *tests], cwd=tmp_path, env=running, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.timeout(1800)
def test_no_sanitizer_complains(tmp_path: Path) -> None:
    """The tests of all kernels once more, with code compiled under AddressSanitizer and UndefinedBehaviorSanitizer."""
    copied(tmp_path)
    flags = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
    building = {**os.environ, "CFLAGS": flags, "LDFLAGS": "-fsanitize=address,undefined"}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tmp_path, env=building, check=True)
    (library,) = subprocess.run(
        ["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.split()
    running = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        *TESTS,
        "-k",
        "not libsodium",
        "-m",
        "not slow",
    ]
    done = subprocess.run(command, cwd=tmp_path, env=running, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    command += ["--collect-only"]
    collected = subprocess.run(command, cwd=tmp_path, env=running, capture_output=True, text=True).stdout
    assert all(f"{kernel.name}]" in collected or f"[{kernel.name}" in collected for kernel in NATIVE), collected[-3000:]


@pytest.mark.skipif("ifma" not in names(), reason="the fuzzer's target compares AVX-512 IFMA with AVX2")
@pytest.mark.skipif(shutil.which("clang") is None, reason="needs clang, whose libFuzzer drives the target")
def test_a_fuzzer_finds_no_difference(tmp_path: Path) -> None:
    """Two minutes of inputs that follow the code's branches, under both sanitizers (``fuzz.c``), and every part of it runs."""
    flags = ["-O2", "-g", "-std=gnu11", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    sources = [str(HERE / "fuzz.c"), *map(str, (ROOT / "native").glob("*.c"))]
    subprocess.run(["clang", *flags, "-I", str(ROOT / "native"), *sources, "-o", "fuzz"], cwd=tmp_path, check=True)
    begun = tmp_path / "corpus"  # an input for each value that chooses a part: under load, few are tried in the time
    begun.mkdir()
    rng = np.random.default_rng(0)
    for first in range(32):
        (begun / str(first)).write_bytes(bytes([first]) + rng.bytes(600))
    command = ["./fuzz", "-max_total_time=120", "-max_len=1024", "-len_control=0", str(begun)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    runs = {name: int(times) for name, times in re.findall(r"^ran: (.+): (\d+)$", done.stderr, re.MULTILINE)}
    assert len(runs) == 7
    assert min(runs.values()) > 10, runs


@pytest.mark.parametrize("seed", range(10))
def test_a_million_random_points_are_as_libsodium_has_them(seed: int) -> None:
    """Ten million with all seeds."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        points, key = rng.integers(0, 256, (50_000, 32), np.uint8), rng.bytes(32)
        expected = find_kernel("libsodium").ladders(points, key)
        for kernel in NATIVE:
            np.testing.assert_array_equal(kernel.ladders(points, key), expected)
