"""Whether time depends on secrets: valgrind takes them for uninitialised, and reports each branch and address they decide.

It knows no AVX-512, so the code for IFMA runs on emulated instructions (``emulated.h``), on any processor.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from vfl_node.crypto.kernels import find_kernel, names
from vfl_node.crypto.kernels.montgomery import Montgomery
from vfl_node.crypto.lattice import parameters
from vfl_node.crypto.lattice.parameters import N, Parameters
from vfl_node.crypto.lattice.ring import Ring, Words
from vfl_node.crypto.texts import laid_out

HERE, NATIVE = Path(__file__).parent, Path(__file__).parents[2] / "native"
POINTS = np.array([i * i + 3 * i for i in range(32 * 9)]).astype(np.uint8).reshape(9, 32)
KEY = bytes((7 * i + 1) % 256 for i in range(32))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("avx2" not in names(), reason="this machine runs no compiled kernel"),
    pytest.mark.skipif(not (shutil.which("cc") and shutil.which("valgrind")), reason="needs a C compiler and valgrind"),
]


def program(folder: Path, file: str, main: str, *flags: str) -> Path:
    """A file of ``native/`` with a program that runs it."""
    common = ["cc", "-O3", "-std=gnu11", "-I", str(NATIVE), *flags]
    emulated = ["-include", str(HERE / "emulated.h")] if file.endswith("_ifma.c") else []
    subprocess.run([*common, *emulated, "-c", str(NATIVE / file), "-o", "kernel.o"], cwd=folder, check=True)
    subprocess.run([*common, str(HERE / main), "kernel.o", "-o", "program"], cwd=folder, check=True)
    return folder / "program"


def ladders(folder: Path, kernel: str, *flags: str) -> Path:
    return program(folder, f"x25519_{kernel}.c", "secrets.c", f"-DLADDERS=vfl_x25519_{kernel}", *flags)


def watched(path: Path, *arguments: object, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = ["valgrind", "-q", "--error-exitcode=9", path, *map(str, arguments)]
    return subprocess.run(command, cwd=path.parent, capture_output=True, input=given)


@pytest.mark.parametrize("kernel", ["avx2", "ifma"])
def test_ladders_do_not_depend_on_secrets(tmp_path: Path, kernel: str) -> None:
    done = watched(ladders(tmp_path, kernel))
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout.decode()) == find_kernel("libsodium").ladders(POINTS, KEY).tobytes()


def test_a_branch_on_a_secret_is_seen(tmp_path: Path) -> None:
    done = watched(ladders(tmp_path, "avx2", "-DLEAK"))
    assert done.returncode == 9
    assert b"depends on uninitialised value" in done.stderr


def matrices(folder: Path, kernel: str, *flags: str) -> Path:
    named = f"-DCELLS=vfl_multiply_cells_{kernel}", f"-DBITS=vfl_multiply_bits_{kernel}"
    return program(folder, f"cells_{kernel}.c", "secret_cells.c", *named, *flags)


@pytest.mark.parametrize("kernel", ["avx2", "ifma"])
def test_products_of_matrices_do_not_depend_on_secrets(tmp_path: Path, kernel: str) -> None:
    done = watched(matrices(tmp_path, kernel))
    assert done.returncode == 0, done.stderr
    places = np.arange(70 * 400, dtype=np.uint64)
    cells = (places * places + np.uint64(7) * places).astype(np.uint16).reshape(70, 400)
    numbers, rows = ((places[:size] + np.uint64(first)) * np.uint64(0x9E3779B97F4A7C15) for size, first in ((350, 1), (140, 3)))
    chosen = (places[:10] + np.uint64(5)) * np.uint64(0xC2B2AE3D27D4EB4F)
    sums = find_kernel("libsodium").multiply_cells(cells, numbers.reshape(5, 70))
    bits = find_kernel("libsodium").multiply_bits(rows.reshape(70, 2), chosen.reshape(5, 2))
    assert bytes.fromhex(done.stdout.decode()) == sums.astype(">u8").tobytes() + bits.tobytes()


def test_a_branch_on_a_secret_sum_is_seen(tmp_path: Path) -> None:
    done = watched(matrices(tmp_path, "avx2", "-DLEAK"))
    assert done.returncode == 9
    assert b"depends on uninitialised value" in done.stderr


IDS = [bytes((number * at + 5 * at + number) % 256 for at in range(4 * number % 251)) for number in range(70)]
"""More than one inversion is shared by, of 0 to 248 bytes, which end in each of three or four blocks."""


@pytest.mark.parametrize("kernel", ["avx2", "ifma"])
def test_digests_do_not_depend_on_identifiers(tmp_path: Path, kernel: str) -> None:
    given = b"".join(bytes([len(id)]) + id for id in IDS)
    path = program(tmp_path, f"sha256_{kernel}.c", "secret_identifiers.c", f"-DDIGESTS=vfl_sha256_{kernel}")
    done = watched(path, "unused", given=given)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout.decode()) == find_kernel("libsodium").digests(*laid_out(IDS)).tobytes()


def test_hashes_do_not_depend_on_identifiers(tmp_path: Path) -> None:
    given = b"".join(bytes([len(id)]) + id for id in IDS)
    done = watched(program(tmp_path, "hash_ifma.c", "secret_identifiers.c"), "domain", given=given)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout.decode()) == find_kernel("libsodium").hash_ids(*laid_out(IDS), b"domain").tobytes()


@pytest.mark.parametrize(("length", "own"), [(24, False), (24, True), (31, False), (31, True)])
def test_powers_do_not_depend_on_secrets(tmp_path: Path, length: int, own: bool) -> None:
    """Bases, exponents and modulus are secret, as in decryption; exponents are short or long, and one or each base its own."""
    state = gmpy2.random_state(length)
    modulus = gmpy2.mpz_urandomb(state, 400) | 1 | (mpz(1) << 399)
    bases = [modulus - 1, mpz(0), mpz(1), *(gmpy2.mpz_random(state, modulus) for _ in range(6))]
    exponents = [gmpy2.mpz_urandomb(state, 8 * length) for _ in (bases if own else bases[:1])]
    numbers = Montgomery(SimpleNamespace(lib=None, ffi=None), modulus)
    written = {
        "bases": b"".join(base.to_bytes(50, "little") for base in bases),
        "exponents": b"".join(exponent.to_bytes(length, "little") for exponent in exponents),
        "modulus": numbers._constants.tobytes(),
        "one": numbers._one.tobytes(),
        "square": numbers._square.tobytes(),
    }
    for name, data in written.items():
        (tmp_path / name).write_bytes(data)
    path = program(tmp_path, "residues_ifma.c", "secret_powers.c")
    done = watched(path, numbers._limbs, 50, length, length if own else 0)
    assert done.returncode == 0, done.stderr
    each = exponents if own else exponents * len(bases)
    expected = [gmpy2.powmod(base, exponent, modulus) for base, exponent in zip(bases, each, strict=True)]
    assert bytes.fromhex(done.stdout.decode()) == b"".join(number.to_bytes(50, "little") for number in expected)


def lattice(folder: Path, variant: str, *flags: str) -> Path:
    return program(folder, f"rlwe_{variant}.c", "secret_rlwe.c", f"-DVARIANT(name)=vfl_##name##_{variant}", *flags)


def settings(chosen: Parameters) -> tuple[int, ...]:
    return chosen.slot_prime, chosen.flood_bits, chosen.short_bits, chosen.long_bits, *chosen.primes


class Given:
    """The words that the program makes, in the order in which they are asked for."""

    def __init__(self, *firsts: int, below: int = 2**64 - 1) -> None:
        self._firsts, self._below = list(firsts), below

    def uint64(self, count: int) -> Words:
        first = np.uint64(self._firsts.pop(0))
        return (np.arange(count, dtype=np.uint64) + first) * np.uint64(0x9E3779B97F4A7C15) % np.uint64(self._below)


@pytest.mark.parametrize("variant", ["portable", "ifma"])
@pytest.mark.parametrize("chosen", [parameters.LINEAR, parameters.SLOTS], ids=lambda each: each.name)
def test_lattices_do_not_depend_on_secrets(tmp_path: Path, variant: str, chosen: Parameters) -> None:
    """Keys, encryption, products, answers and what is opened; the bytes are those of the ring in Python."""
    done = watched(lattice(tmp_path, variant), *settings(chosen))
    assert done.returncode == 0, done.stderr
    ring, below = Ring(chosen, "portable"), chosen.slot_prime or 2**64 - 1
    places = np.arange(ring.primes * N, dtype=np.uint64).reshape(1, -1, N) + np.uint64(9)
    a = places * np.uint64(0x9E3779B97F4A7C15) % np.array(chosen.primes, np.uint64)[:, None]
    secret = ring.ternary(Given(1))
    b = ring.encrypt(secret, a, Given(3, below=below).uint64(N)[None], Given(2))
    plain, sums = ring.plain(Given(4).uint64(N)[None]), ring.zeros(2)
    ring.add_products(sums[0], b, plain, 0, 1)
    ring.add_products(sums[1], a, plain, 0, 1)
    sent = ring.answer(sums, np.stack([b[0], a[0]]), Given(8, below=below).uint64(100), 16, Given(5, 6, 7))
    opened = ring.open(secret, sent, 16, 100)
    assert bytes.fromhex(done.stdout.decode()) == sent + opened.astype(">u8").tobytes()


def test_a_branch_on_an_opened_number_is_seen(tmp_path: Path) -> None:
    done = watched(lattice(tmp_path, "portable", "-DLEAK"), *settings(parameters.LINEAR))
    assert done.returncode == 9
    assert b"depends on uninitialised value" in done.stderr
