"""Measure Paillier: encryption, decryption and a matrix product under encryption, beside python-paillier (phe).

    python -m benchmarks.paillier                    keys of 2048 and 3072 bits, on one core, then on two
    python -m benchmarks.paillier --iteration        one full-batch iteration of logistic regression, stage by stage

Prints tables in Markdown and writes JSON. On one core the process is pinned and CPU time counts; on two, wall
time. Every repeat is a process for each kernel, in the first of which phe's operations follow ours; a ratio is the median over
repeats of ratios within one. Time to make tables of powers is included, that to make keys is not. phe is an
optional extra (``bench``); where it is absent, so is its column.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from gmpy2 import mpz

from benchmarks import iteration
from benchmarks.measure import alone, machine
from benchmarks.tables import head, line, number
from vfl_node.crypto.kernels import kernel, names
from vfl_node.crypto.kernels.choice import VARIABLE
from vfl_node.crypto.paillier.decryption import decrypt
from vfl_node.crypto.paillier.encryption import Encryptor
from vfl_node.crypto.paillier.keys import PrivateKey, generate
from vfl_node.crypto.paillier.matrix import multiply
from vfl_node.crypto.paillier.packing import pack, slots, unpack
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Engine, Inline
from vfl_node.engines.processes import Processes

T = TypeVar("T")

ROWS, COLUMNS, ENTRY_BITS = 1024, 100, 16
MANY, FEW, THEIRS = 4096, 124, 40  # encryptions, decryptions; phe's
THEIR_COLUMNS = 5
SLOT_BITS, PACKED = 64, 1240
NARROW, NARROW_BITS, ALONE = 10, 10, 40  # columns without a sign; numbers one at a time

ASKED = {
    "encrypt": ("encrypt", 12.0),
    "encrypt, short exponents": ("encrypt", 30.0),
    "encrypt, key's owner": ("encrypt", math.nan),
    "encrypt, noise prepared": ("encrypt", 1000.0),
    "decrypt": ("decrypt", math.nan),
    "pack and decrypt, a value": ("decrypt", 5.0),
    "matrix, an entry": ("matrix, an entry", 8.0),
    "narrow matrix, an entry": ("matrix, an entry", math.nan),
    "encrypt one at a time": ("encrypt", math.nan),
    "decrypt one at a time": ("decrypt", math.nan),
}
"""Operation → phe's, and how many times faster it should be."""
BY_KERNEL = {"encrypt": 3.0, "encrypt, short exponents": 3.0, "decrypt": 5.0, "matrix, an entry": 3.0}
"""Operation → how many times faster compiled code should be than the libraries."""
TWO_CORES = 1.8
LIBRARIES = "libsodium"
KERNELS = [name for name in names() if name in ("ifma", LIBRARIES)]  # the others leave large numbers to the libraries


@dataclass(frozen=True)
class Row:
    """An operation, as it was measured.

    Attributes:
        system: ``vfl-node``, a space and its kernel, or ``phe`` with its version.
        operation: see :data:`ASKED`.
        key_bits: size of n.
        repeat: which.
        processes: how many worked.
        count: how often it was done.
        seconds: of CPU on one core, of wall time with several processes.
        multiplication_us: CPU time of one multiplication mod n², before and after.
    """

    system: str
    operation: str
    key_bits: int
    repeat: int
    processes: int
    count: int
    seconds: float
    multiplication_us: float


class Stopwatch:
    """Keeps what was measured."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.measured: list[tuple[str, str, int, float]] = []

    def measure(self, system: str, operation: str, count: int, function: Callable[..., T], *arguments: Any) -> T:
        began = self.clock()
        result = function(*arguments)
        self.measured.append((system, operation, count, self.clock() - began))
        return result


def one_core(key_bits: int, repeat: int, kernel: str) -> list[Row]:
    """Everything, ours by one kernel and then phe's."""
    os.environ[VARIABLE] = kernel
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    private, watch = _key(key_bits), Stopwatch(time.process_time)
    before = multiplication_us(private)
    _ours(private, watch, f"vfl-node {kernel}")
    if kernel == KERNELS[0]:
        _theirs(private, watch)
    each = (before + multiplication_us(private)) / 2
    return [Row(*row[:2], key_bits, repeat, 1, *row[2:], each) for row in watch.measured]


def some_cores(key_bits: int, repeat: int, processes: int) -> list[Row]:
    """Ours, in as many processes on as many cores, which are running and have tables of powers before the clock starts."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:processes])
    private, watch, engine = _key(key_bits), Stopwatch(time.perf_counter), Processes(processes)
    numbers = _numbers(MANY)
    encryptor = Encryptor(private.public, Randomness(bytes(32)), engine)
    ciphertexts = encryptor.encrypt(numbers, "first")
    encryptor.encrypt(numbers[: MANY // 4], "same tables")
    watch.measure(f"vfl-node {kernel().name}", "encrypt", MANY // 4, encryptor.encrypt, numbers[: MANY // 4], "measured")
    watch.measure(f"vfl-node {kernel().name}", "decrypt", 2 * FEW, decrypt, private, ciphertexts[: 2 * FEW], engine)
    multiply_all = (private.public, _matrix(), ciphertexts[:ROWS], engine)
    watch.measure(f"vfl-node {kernel().name}", "matrix, an entry", ROWS * COLUMNS, multiply, *multiply_all)
    engine.close()
    return [Row(*row[:2], key_bits, repeat, processes, *row[2:], math.nan) for row in watch.measured]


def multiplication_us(private: PrivateKey) -> float:
    """CPU time of ``x * y % n²``, microseconds; the median of nine batches."""
    x, square, times = mpz(3), private.public.square, [time.process_time()]
    for _ in range(12):
        x = x * x % square + 1  # as long as the modulus
    for _ in range(9):
        y = x
        for _ in range(1000):
            y = y * x % square
        times.append(time.process_time())
    return statistics.median(after - before for before, after in pairwise(times)) * 1e3


def _ours(private: PrivateKey, watch: Stopwatch, system: str) -> None:
    public, engine, numbers = private.public, Inline(), _numbers(MANY)

    def encryptor(engine: Engine, **options: Any) -> Encryptor:
        return Encryptor(public, Randomness(bytes(32)), engine, **options)

    def encrypt(operation: str, using: Encryptor) -> np.ndarray:
        ciphertexts = watch.measure(system, operation, MANY, using.encrypt, numbers, "measured")
        _check(operation, decrypt(private, ciphertexts[:3], engine), [v % public.n for v in numbers[:3]])
        return ciphertexts

    ciphertexts = encrypt("encrypt", encryptor(engine))
    encrypt("encrypt, short exponents", encryptor(engine, short_exponents=True))
    encrypt("encrypt, key's owner", encryptor(engine, private=private))
    prepared = encryptor(iteration.Ahead(engine))
    prepared.prepare("measured", MANY)
    encrypt("encrypt, noise prepared", prepared)

    watch.measure(system, "decrypt", FEW, decrypt, private, ciphertexts[:FEW], engine)
    positive = [abs(v) for v in numbers[:PACKED]]
    separate = encryptor(engine).encrypt(positive, "packed")
    opened = watch.measure(
        system,
        "pack and decrypt, a value",
        PACKED,
        lambda: decrypt(private, pack(public, separate, SLOT_BITS, engine), engine),
    )
    _check("pack", unpack(opened, SLOT_BITS, PACKED, slots(public, SLOT_BITS)), positive)
    matrix = _matrix()
    product = watch.measure(system, "matrix, an entry", matrix.size, multiply, public, matrix, ciphertexts[:ROWS], engine)
    _check("matrix", decrypt(private, product[:3], engine), [v % public.n for v in _expected(matrix[:, :3])])
    narrow = matrix[:, :NARROW] % (1 << NARROW_BITS)
    product = watch.measure(
        system, "narrow matrix, an entry", narrow.size, multiply, public, narrow, ciphertexts[:ROWS], engine
    )
    _check("narrow matrix", decrypt(private, product[:3], engine), [v % public.n for v in _expected(narrow[:, :3])])

    begun = encryptor(engine)
    begun.encrypt(numbers[: 3 * ALONE + 10], "tables")
    for operation, one in (
        ("encrypt one at a time", lambda at: begun.encrypt(numbers[at : at + 1], f"one/{at}")),
        ("decrypt one at a time", lambda at: decrypt(private, ciphertexts[at : at + 1], engine)),
    ):
        watch.measure(system, operation, ALONE, lambda one=one: [one(at) for at in range(ALONE)])


def _theirs(private: PrivateKey, watch: Stopwatch) -> None:
    try:
        import phe
    except ImportError:
        return
    system = f"phe {phe.__version__}"
    public = phe.PaillierPublicKey(private.public.n)
    owner = phe.PaillierPrivateKey(public, private.p, private.q)
    numbers, matrix = _numbers(ROWS), _matrix()[:, :THEIR_COLUMNS]
    own = Encryptor(private.public, Randomness(bytes(32)), Inline()).encrypt(numbers, "theirs")
    vector = [phe.EncryptedNumber(public, int(ciphertext)) for ciphertext in private.public.integers(own)]

    encrypted = watch.measure(system, "encrypt", THEIRS, lambda: [public.encrypt(v) for v in numbers[:THEIRS]])
    found = watch.measure(system, "decrypt", THEIRS, lambda: [owner.decrypt(c) for c in encrypted])
    _check("phe's encryption", found, numbers[:THEIRS])
    products = watch.measure(
        system,
        "matrix, an entry",
        matrix.size,
        lambda: [sum(c * x for c, x in zip(vector, column, strict=True)) for column in matrix.T.tolist()],
    )
    _check("phe's matrix", [owner.decrypt(c) for c in products], _expected(matrix))


def _key(key_bits: int) -> PrivateKey:
    return generate(key_bits, Randomness(bytes(32)))


def _numbers(count: int) -> list[int]:
    """As residuals at 40 fractional bits are."""
    draw = random.Random(1)
    return [draw.randrange(-(2**40), 2**40) for _ in range(count)]


def _matrix() -> np.ndarray:
    half = 1 << (ENTRY_BITS - 1)
    return np.random.default_rng(1).integers(-half, half, (ROWS, COLUMNS))


def _expected(matrix: np.ndarray) -> list[int]:
    numbers = _numbers(ROWS)
    return [sum(x * v for x, v in zip(column, numbers, strict=True)) for column in matrix.T.tolist()]


def _check(what: str, found: object, expected: object) -> None:
    """A wrong result is not worth its time. Raises SystemExit."""
    if found != expected:
        raise SystemExit(f"{what}: wrong result")


def rates(rows: Iterable[dict[str, Any]]) -> dict[tuple[int, str, str, int], dict[int, float]]:
    """(key, system, operation, processes) → repeat → operations a second; of vfl-node the kernel, of phe no version."""
    found: dict[tuple[int, str, str, int], dict[int, float]] = {}
    for row in rows:
        system, _, kernel_name = row["system"].partition(" ")
        key = row["key_bits"], system if system == "phe" else kernel_name, row["operation"], row["processes"]
        found.setdefault(key, {})[row["repeat"]] = row["count"] / row["seconds"]
    return found


def one_core_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line an operation and key: ours by each kernel, phe's, how many times as many, and what is asked."""
    found = rates(row for row in rows if row["processes"] == 1 and not math.isnan(row["multiplication_us"]))
    theirs = next((row["system"] for row in rows if row["system"].startswith("phe")), "phe: not installed")
    kernels = list(dict.fromkeys(system for _, system, _, _ in found if system != "phe"))
    others = [column for name in kernels[1:] for column in (name, f"{kernels[0]} / {name}", "goal", "")]
    yield from head("key bits", "operation", f"{kernels[0]}, a second", *others, theirs, "ratio", "goal", "")
    for (key_bits, system, operation, _), ours in found.items():
        if system != kernels[0]:
            continue
        compared = []
        for name in kernels[1:]:
            by_libraries = found[key_bits, name, operation, 1]
            gain = statistics.median([ours[repeat] / by_libraries[repeat] for repeat in ours])
            compared += [number(statistics.median(by_libraries.values())), number(gain)]
            compared += _verdict(gain, BY_KERNEL.get(operation, math.nan))
        counterpart, least = ASKED[operation]
        other = found.get((key_bits, "phe", counterpart, 1), {})
        ratio = statistics.median([ours[repeat] / other[repeat] for repeat in ours]) if other else math.nan
        yield line(
            str(key_bits),
            operation,
            number(statistics.median(ours.values())),
            *compared,
            number(statistics.median(other.values()) if other else math.nan),
            number(ratio),
            *_verdict(ratio, least),
        )


def some_cores_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line an operation and key: one process, two, and how many times as much."""
    found = rates(row for row in rows if math.isnan(row["multiplication_us"]))
    yield from head("key bits", "operation", "one process, a second", "two", "ratio", "goal", "")
    for (key_bits, system, operation, processes), one in found.items():
        if processes == 1 and (two := found.get((key_bits, system, operation, 2))):
            ratio = statistics.median(two[repeat] / one[repeat] for repeat in one)
            both = (number(statistics.median(each.values())) for each in (one, two))
            yield line(str(key_bits), operation, *both, number(ratio), *_verdict(ratio, TWO_CORES))


def _verdict(ratio: float, least: float) -> tuple[str, str]:
    if math.isnan(least):
        return "", ""
    return f"{least:g}", "" if math.isnan(ratio) else "met" if ratio >= least else "missed"


def measured(chosen: argparse.Namespace) -> Iterator[Row]:
    """Repeats come in turn, so that a machine that slows down slows all of them."""
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        print("one core only: nothing is measured on two", file=sys.stderr)
    elif (load := os.getloadavg()[0]) > 0.5:
        print(f"load average {load:.1f}: others use this machine, so wall times on two cores say little", file=sys.stderr)
    for repeat in range(chosen.repeats):
        for key_bits in chosen.bits:
            for kernel_name in KERNELS:
                yield from alone(one_core, key_bits, repeat, kernel_name)
            for processes in (1, 2) if cores > 1 else ():
                yield from alone(some_cores, key_bits, repeat, processes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iteration", action="store_true", help="one full-batch iteration, stage by stage")
    parser.add_argument("--bits", type=int, nargs="+", metavar="N", help="key sizes; default: 2048 3072, an iteration's 2048")
    parser.add_argument("--repeats", type=int, default=3, help="tables hold medians")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON; default: runs/bench/paillier….json")
    chosen = parser.parse_args()
    chosen.bits = chosen.bits or ([2048] if chosen.iteration else [2048, 3072])
    out: Path = chosen.out or Path("runs/bench", "paillier-iteration.json" if chosen.iteration else "paillier.json")

    command = shlex.join(["python", "-m", "benchmarks.paillier", *sys.argv[1:]])
    made: dict[str, Any] = {"command": command, "machine": machine(), "load_before": os.getloadavg()[0]}
    if chosen.iteration:
        stages = [stage for key_bits in chosen.bits for stage in iteration.measured(key_bits, chosen.repeats)]
        made["iteration"] = [asdict(stage) for stage in stages]
        tables = [iteration.table(made["iteration"])]
    else:
        made["rows"] = [asdict(row) for row in measured(chosen)]
        tables = [one_core_table(made["rows"]), some_cores_table(made["rows"])]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(made, indent=1) + "\n")
    print(f"    {command}\n")
    for table in tables:
        print(*table, "", sep="\n")


if __name__ == "__main__":
    main()
