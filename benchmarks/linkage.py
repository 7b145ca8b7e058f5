"""The search of linkage: the K nearest of two sets of filters by Hamming distance, beside faiss and anonlink.

    make bench-linkage                                  100,000 · 100,000 filters of 2 kB, K = 50; runs/bench/linkage.json
    python -m benchmarks.linkage --rows 10000           a hundredth of the work
    python -m benchmarks.linkage --others 100000        faiss searches for all queries, too, ten minutes of CPU
    python -m benchmarks.linkage --shares 300 1000 3000 --candidates 5
                                                        instead of all this linkages of so many names each way, by filters and
                                                        in shares, all three parties in one thread; a minute

Both sets are encoded by the package itself, from two uniform numbers a record. Each search is in a process of its own that maps
the filters from files, and has all cores. faiss must find the same distances, or nothing is printed. anonlink answers another
question: for each record of one set the K with the largest Dice coefficients, 2·common / (ones of both).

The last table is distances alone, without a search, on one core: why numkong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import distribution, version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numkong
import numpy as np

from benchmarks import shared_linkage
from benchmarks.measure import alone, check, machine, peak_bytes
from vfl_node.crypto.filters.encoding import encode
from vfl_node.crypto.nearest.search import nearest
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.rows import Rows
from vfl_node.engines.threads import Threads
from vfl_node.job.keys import Encoding, Key, NumberKey, filter_bits

KEYS: dict[str, Key] = {name: NumberKey(kind="number", low=0, high=1, reach=0.05) for name in ("u", "v")}
EPSILON = 0.09077
"""With it the two keys have 16,000 bits, 2 kB."""

QUERIES, BASE, FOUND = "queries", "base", "found"


@dataclass(frozen=True)
class Searched:
    """One stage in a process of its own.

    Attributes:
        system: whose, with its version.
        queries: rows of the one set.
        base: rows of the other.
        wall_s: of the stage, files read included.
        cpu_s: of all cores.
        peak_bytes: the most resident memory of the process, mapped files and libraries included.
    """

    system: str
    queries: int
    base: int
    wall_s: float
    cpu_s: float
    peak_bytes: int


def measured(system: str, queries: int, base: int, work: Callable[[], object]) -> Searched:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Searched(system, queries, base, time.perf_counter() - wall, time.process_time() - cpu, peak_bytes())


def encoded(folder: Path, name: str, rows: int, encoding: Encoding) -> Searched:
    """Write the filters of so many records."""
    drawn = Randomness(name.encode().ljust(32))
    columns = {key: drawn.uniform((rows,)) for key in KEYS}

    def work() -> None:
        with (folder / name).open("wb") as file:
            for block in encode(KEYS, encoding, columns, Randomness(bytes(32))):
                file.write(block.data)

    return measured("vfl-node, encoding", rows, 0, work)


def rows_of(folder: Path, name: str, width: int) -> Rows:
    return np.memmap(folder / name, np.uint8, "r").reshape(-1, width)


def ours(folder: Path, width: int, count: int, workers: int) -> Searched:
    """Search for all queries, and keep the distances for :func:`search_by_faiss`."""
    queries, base = rows_of(folder, QUERIES, width), rows_of(folder, BASE, width)

    def work() -> None:
        engine = Threads(workers)
        with (folder / FOUND).open("wb") as file:
            for block in nearest(queries, base, count, engine):
                file.write(block.distances.data)
        engine.close()

    return measured("vfl-node, search", len(queries), len(base), work)


def search_by_faiss(folder: Path, width: int, count: int, workers: int, most: int) -> Searched:
    """The same of the first ``most`` queries."""
    import faiss

    queries, base = rows_of(folder, QUERIES, width)[:most], rows_of(folder, BASE, width)
    faiss.omp_set_num_threads(workers)
    found: list[np.ndarray] = []

    def work() -> None:
        index = faiss.IndexBinaryFlat(8 * width)
        index.add(np.ascontiguousarray(base))
        found.append(index.search(np.ascontiguousarray(queries), count)[0])

    done = measured(f"faiss-cpu {version('faiss-cpu')}, IndexBinaryFlat", len(queries), len(base), work)
    expected = np.memmap(folder / FOUND, np.int32, "r").reshape(-1, count)[: len(queries)]
    check("faiss, distances that are the same", int((found[0] == expected).sum()), expected.size)
    return done


def search_by_anonlink(folder: Path, width: int, count: int, most: int) -> Searched:
    """The ``count`` largest Dice coefficients of each of the first ``most`` queries, among the first ``most`` of the base."""
    # anonlink asks pkg_resources for its version, which setuptools does not have any more
    sys.modules.setdefault("pkg_resources", SimpleNamespace(get_distribution=distribution))  # type: ignore[arg-type]
    from anonlink.similarities import dice_coefficient_accelerated
    from bitarray import bitarray

    sets: list[list[Any]] = []
    for name in (QUERIES, BASE):
        rows = rows_of(folder, name, width)[:most]
        sets.append([bitarray() for _ in rows])
        for bits, row in zip(sets[-1], rows, strict=True):
            bits.frombytes(row.tobytes())
    work = lambda: dice_coefficient_accelerated(sets, 0.0, k=count)  # noqa: E731
    return measured(f"anonlink {version('anonlink')}, Dice", len(sets[0]), len(sets[1]), work)


def kernels(width: int) -> Iterator[tuple[str, float]]:
    """CPU nanoseconds of a distance on one core, the best of three, by what can compute it."""
    import torch

    torch.set_num_threads(1)
    queries, base = (np.random.default_rng(seed).integers(0, 256, (256, width), np.uint8) for seed in (1, 2))
    words = [np.pad(rows, ((0, 0), (0, -width % 8))).view(np.uint64) for rows in (queries, base)]
    packed = numkong.hammings_pack(base, dtype="uint1")
    eights, halves = (
        [torch.from_numpy(np.unpackbits(rows, axis=1)).to(dtype) for rows in (queries, base)]
        for dtype in (torch.int8, torch.bfloat16)
    )
    ways: dict[str, Callable[[], object]] = {
        f"numkong {version('numkong')}, hammings_packed": lambda: numkong.hammings_packed(queries, packed),
        f"torch {torch.__version__}, product of int8": lambda: torch._int_mm(eights[0], eights[1].T),
        f"torch {torch.__version__}, product of bfloat16": lambda: halves[0] @ halves[1].T,
    }
    if hasattr(np, "bitwise_count"):
        ways[f"numpy {np.__version__}, bitwise_count"] = lambda: [np.bitwise_count(row ^ words[1]).sum(1) for row in words[0]]
    for name, way in ways.items():
        times = []
        for _ in range(4):
            began = time.process_time()
            way()
            times.append(time.process_time() - began)
        yield name, min(times[1:]) / len(queries) / len(base) * 1e9


def searches(
    folder: Path, rows: int, encoding: Encoding, count: int, workers: int, others: int, anonlink: int
) -> Iterator[Searched]:
    """All stages, one after the other; libraries that are not installed are left out."""
    width = filter_bits(KEYS, encoding) // 8
    yield alone(encoded, folder, QUERIES, rows, encoding)
    yield alone(encoded, folder, BASE, rows, encoding)
    yield alone(ours, folder, width, count, workers)
    if find_spec("faiss"):
        yield alone(search_by_faiss, folder, width, count, workers, others)
    if find_spec("anonlink") and width % 8 == 0:
        yield alone(search_by_anonlink, folder, width, count, anonlink)


def line(row: Searched) -> str:
    pairs = row.queries * row.base
    each = f"{row.cpu_s / pairs * 1e9:.1f}" if pairs else ""
    base = f"{row.base:,}" if row.base else ""
    times = f"{row.wall_s:.1f} | {row.cpu_s:.1f} | {each}"
    return f"| {row.system} | {row.queries:,} | {base} | {times} | {row.peak_bytes / 2**30:.2f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="of each set")
    parser.add_argument("--candidates", type=int, default=50, help="K")
    parser.add_argument("--epsilon", type=float, default=EPSILON, help="of the encoding: a smaller one makes larger filters")
    parser.add_argument("--others", type=int, default=10_000, help="queries for faiss")
    parser.add_argument("--anonlink", type=int, default=20_000, help="rows of each set for anonlink")
    parser.add_argument("--workers", type=int, default=machine()["cores"])
    parser.add_argument("--shares", type=int, nargs="+", metavar="ROWS", help="linkages in shares of so many records instead")
    parser.add_argument("--out", type=Path, help="write every figure there, too")
    chosen = parser.parse_args(arguments)
    if chosen.shares:
        print(shared_linkage.HEAD)
        done = []
        for run in shared_linkage.runs(chosen.shares, chosen.candidates):
            print(shared_linkage.line(run), flush=True)
            done.append(asdict(run))
        _keep(chosen.out, runs=done)
        return
    encoding = Encoding(epsilon=chosen.epsilon)
    found = []
    print(f"K = {chosen.candidates}, filters of {filter_bits(KEYS, encoding) // 8:,} bytes, {chosen.workers} threads\n")
    print("| stage | rows | of the other set | wall s | CPU s | CPU ns a pair | peak, GiB |\n|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for row in searches(
            Path(folder), chosen.rows, encoding, chosen.candidates, chosen.workers, chosen.others, chosen.anonlink
        ):
            found.append(row)
            print(line(row), flush=True)
    missing = [name for name in ("faiss", "anonlink") if not find_spec(name)]
    print(
        *(f"\n{name} is not installed" for name in missing),
        "\n| distances alone, one core | CPU ns a pair |\n|---|--:|",
        sep="\n",
    )
    distances = dict(kernels(filter_bits(KEYS, encoding) // 8))
    for name, each in distances.items():
        print(f"| {name} | {each:.1f} |")
    _keep(chosen.out, rows=[asdict(row) for row in found], distances_ns=distances)


def _keep(path: Path | None, **found: Any) -> None:
    """Write what was found, and where."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"command": sys.argv, "machine": machine(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
