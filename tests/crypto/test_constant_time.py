"""No branch and no address in compiled ladders depends on a secret: valgrind follows scalars and points as uninitialised bytes.

It knows no AVX-512, so the code for IFMA runs on emulated instructions (``emulated.h``), on any processor.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from vfl_node.crypto.kernels import named, names

HERE, NATIVE = Path(__file__).parent, Path(__file__).parents[2] / "native"
POINTS = np.array([i * i + 3 * i for i in range(32 * 9)]).astype(np.uint8).reshape(9, 32)
KEY = bytes((7 * i + 1) % 256 for i in range(32))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("avx2" not in names(), reason="this machine runs no compiled kernel"),
    pytest.mark.skipif(not (shutil.which("cc") and shutil.which("valgrind")), reason="needs a C compiler and valgrind"),
]


def program(folder: Path, kernel: str, *flags: str) -> Path:
    """``secrets.c`` with a kernel's code; for IFMA without the line that lets the compiler use AVX-512."""
    source = (NATIVE / f"x25519_{kernel}.c").read_text()
    if kernel == "ifma":
        source, flags = source.replace("#pragma GCC target", "//"), (*flags, "-include", str(HERE / "emulated.h"))
    (folder / "kernel.c").write_text(source)
    common = ["cc", "-O3", "-std=gnu11", "-I", str(NATIVE), *flags]
    subprocess.run([*common, "-c", "kernel.c", "-o", "kernel.o"], cwd=folder, check=True)
    main = ["cc", "-O3", "-std=gnu11", f"-DLADDERS=vfl_x25519_{kernel}", *flags[:1], str(HERE / "secrets.c")]
    subprocess.run([*main, "kernel.o", "-o", "program"], cwd=folder, check=True)
    return folder / "program"


def watched(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["valgrind", "-q", "--error-exitcode=9", path], capture_output=True, text=True)


@pytest.mark.parametrize("kernel", ["avx2", "ifma"])
def test_ladders_do_not_depend_on_secrets(tmp_path: Path, kernel: str) -> None:
    done = watched(program(tmp_path, kernel, "-DWATCHED"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == named("libsodium").ladders(POINTS, KEY).tobytes().hex()


def test_a_branch_on_a_secret_is_seen(tmp_path: Path) -> None:
    done = watched(program(tmp_path, "avx2", "-DLEAK"))
    assert done.returncode == 9
    assert "depends on uninitialised value" in done.stderr
