"""Readers: how long a table takes from its file to a :class:`~vfl_node.data.tables.Table`, and how much memory.

    python -m benchmarks.readers [--rows 10000000] [--out runs/bench/readers.json] [--only csv parquet …]

writes a table of an id and 50 columns in every format into a temporary folder (420 bytes a row as CSV, 1.5 kB in all formats)
and reads each in a process of its own. Beside ours: the reader of earlier versions, row by row with Python's csv module
(:func:`row_by_row`), and what pyarrow, DuckDB and Polars take to parse the same file into a table of theirs, without any of the
rules of docs/guides/give-tables.md.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from benchmarks.measure import peak_bytes
from vfl_node.data.cells import number
from vfl_node.data.identifiers import Identifiers, canonical
from vfl_node.data.missing_words import MISSING
from vfl_node.data.reading import read_table
from vfl_node.settings.node import Data

CHUNK = 200_000
FILES = {
    "csv": "table.csv",
    "csv.gz": "table.csv.gz",
    "csv.zst": "table.csv.zst",
    "parquet": "table.parquet",
    "arrow": "table.arrow",
}


def chunks(rows: int) -> Iterator[pa.Table]:
    """Its columns: id, 24 of floats, 4 of floats with gaps, 10 of integers, 8 of categories, 2 of dates, a boolean, label."""
    draw = np.random.default_rng(1)
    for start in range(0, rows, CHUNK):
        n = min(CHUNK, rows - start)
        columns: dict[str, Any] = {"id": pa.array([f"P{row:09}" for row in range(start, start + n)])}
        columns |= {f"float{i}": pa.array(draw.normal(size=n).round(6)) for i in range(24)}
        columns |= {f"gaps{i}": pa.array(draw.lognormal(size=n).round(3), mask=draw.random(n) < 0.05) for i in range(4)}
        columns |= {f"int{i}": pa.array(draw.integers(0, 10 ** (i + 1), n)) for i in range(10)}
        for i, levels in enumerate((3, 5, 8, 12, 50, 100, 400, 1000)):
            names = pa.array([f"level {level}" for level in range(levels)])
            columns[f"kind{i}"] = names.take(pa.array(draw.integers(0, levels, n)))
        columns |= {f"day{i}": pa.array(draw.integers(15_000, 19_000, n).astype(np.int32), pa.date32()) for i in range(2)}
        columns["flag"] = pa.array(draw.random(n) < 0.3)
        columns["label"] = pa.array(draw.integers(0, 2, n))
        yield pa.table(columns)


def write(folder: Path, rows: int, wanted: set[str]) -> None:
    """The same table in every format."""
    schema = next(chunks(1)).schema
    with (
        pa_csv.CSVWriter(folder / FILES["csv"], schema, write_options=pa_csv.WriteOptions(quoting_style="none")) as as_csv,
        pq.ParquetWriter(folder / FILES["parquet"], schema) as as_parquet,
        pa.ipc.new_file(folder / FILES["arrow"], schema) as as_arrow,
    ):
        for chunk in chunks(rows):
            as_csv.write(chunk)
            if "parquet" in wanted:
                as_parquet.write(chunk)
            if "arrow" in wanted:
                as_arrow.write(chunk)
    if "csv.gz" in wanted:
        with (folder / FILES["csv"]).open("rb") as plain, gzip.open(folder / FILES["csv.gz"], "wb", 1) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
    if "csv.zst" in wanted:
        with (folder / FILES["csv"]).open("rb") as plain, pa.CompressedOutputStream(folder / FILES["csv.zst"], "zstd") as zst:
            while block := plain.read(1 << 20):
                zst.write(block)


def row_by_row(path: Path) -> int:
    """The reader before Arrow: a Python object for each cell, columns kept as text, then numbers and categories made of it."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file, strict=True, skipinitialspace=True)
        names = next(reader)
        packed: dict[str, list[str]] = {name: [] for name in names}
        while rows := list(islice(reader, 1 << 14)):
            for kept, cells in zip(packed.values(), zip(*rows, strict=True), strict=True):
                kept.append("\0".join(map(str.strip, cells)))
    ids = Identifiers.from_items(canonical(cell, "text") for cells in packed.pop("id") for cell in cells.split("\0"))
    ids.repeats()
    labels = {"0": 0.0, "1": 1.0}
    np.array([labels[cell] for cells in packed.pop("label") for cell in cells.split("\0")], dtype=np.float32)
    columns = [_column([cells.split("\0") for cells in packed[name]]) for name in list(packed)]
    return len(ids) if columns else 0


def _column(blocks: list[list[str]]) -> Any:
    values = np.concatenate([_numbers(cells) for cells in blocks])
    present = len(values) - np.count_nonzero(np.isnan(values))
    if present - np.count_nonzero(np.isinf(values)) >= 0.95 * present:
        return values
    levels = sorted(set[str]().union(*map(set, blocks)) - MISSING)
    code_of = dict.fromkeys(MISSING, -1) | {level: code for code, level in enumerate(levels)}
    return np.concatenate([np.fromiter(map(code_of.__getitem__, cells), np.int64, len(cells)) for cells in blocks]), levels


def _numbers(cells: list[str]) -> Any:
    distinct = set(cells)
    if 2 * len(distinct) < len(cells):
        return np.fromiter(map({cell: number(cell) for cell in distinct}.__getitem__, cells), np.float64, len(cells))
    return np.fromiter(map(number, cells), np.float64, len(cells))


def ours(path: Path) -> int:
    """As a node reads it."""
    return len(read_table(Data(path=path), id_form="text", needs_label=True, party="bench"))


def queried(path: Path) -> int:
    """By a query in DuckDB, of the Parquet file."""
    data = Data(query=f"select * from '{path}'")
    return len(read_table(data, id_form="text", needs_label=True, party="bench"))


def read_by_pyarrow(path: Path) -> int:
    """pyarrow.csv.read_csv: a table of Arrow."""
    return pa_csv.read_csv(path).num_rows


def read_by_duckdb(path: Path) -> int:
    """DuckDB's read_csv: a table of Arrow."""
    import duckdb

    return duckdb.read_csv(str(path)).to_arrow_table().num_rows


def csv_by_polars(path: Path) -> int:
    """Polars' read_csv (pip install polars): a table of its own, types guessed as by default."""
    import polars

    return polars.read_csv(path, infer_schema_length=10_000, try_parse_dates=True).height


def parquet_by_polars(path: Path) -> int:
    """Polars' read_parquet: a table of its own."""
    import polars

    return polars.read_parquet(path).height


BASE = "row by row"

READINGS: dict[str, tuple[str, str, Callable[[Path], int]]] = {
    BASE: ("CSV, Python's csv module (before)", "csv", row_by_row),
    "csv": ("CSV", "csv", ours),
    "csv.gz": ("CSV, gzip", "csv.gz", ours),
    "csv.zst": ("CSV, zstd", "csv.zst", ours),
    "parquet": ("Parquet", "parquet", ours),
    "arrow": ("Arrow file", "arrow", ours),
    "query": ("DuckDB query of the Parquet file", "parquet", queried),
    "pyarrow": ("CSV, pyarrow.csv.read_csv alone", "csv", read_by_pyarrow),
    "duckdb": ("CSV, DuckDB read_csv alone", "csv", read_by_duckdb),
    "polars": ("CSV, polars.read_csv alone", "csv", csv_by_polars),
    "polars.parquet": ("Parquet, polars.read_parquet alone", "parquet", parquet_by_polars),
}


def read_once(name: str, folder: Path) -> dict[str, float]:
    """In this process: rows, seconds, CPU seconds and peak bytes."""
    _, file, reading = READINGS[name]
    before = time.perf_counter(), time.process_time()
    rows = reading(folder / FILES[file])
    after = time.perf_counter(), time.process_time()
    return {"rows": rows, "wall_s": after[0] - before[0], "cpu_s": after[1] - before[1], "peak_bytes": peak_bytes()}


def run_in_child(name: str, folder: Path) -> dict[str, float]:
    """:func:`read_once` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.readers", "--child", name, "--folder", str(folder)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL).stdout)


def table_of(results: dict[str, Any]) -> str:
    """As Markdown; a ratio is that of the times for a row."""
    lines = [
        "| 50 columns | rows | file, MB | wall s | CPU s | times as fast: wall | CPU | peak, GiB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, result in results.items():
        base = results.get(BASE, result)
        ratios = [base[key] / base["rows"] * result["rows"] / result[key] for key in ("wall_s", "cpu_s")]
        times = [f"{result['wall_s']:.1f}", f"{result['cpu_s']:.1f}", *(f"{ratio:.1f}" for ratio in ratios)]
        sizes = [f"{result['rows']:,}", f"{result['file_bytes'] / 1e6:,.0f}"]
        lines.append(f"| {READINGS[name][0]} | {' | '.join([*sizes, *times])} | {result['peak_bytes'] / 2**30:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--base-rows", type=int, help="for the reading row by row (default: as many)")
    parser.add_argument("--only", nargs="+", choices=READINGS, default=list(READINGS))
    parser.add_argument("--out", type=Path, default=Path("runs/bench/readers.json"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(read_once(given.child, given.folder)))
        return
    results: dict[str, Any] = {}
    base_rows = given.base_rows or given.rows
    for rows in sorted({base_rows, given.rows}):
        names = [name for name in given.only if (base_rows if name == BASE else given.rows) == rows]
        if names:
            with tempfile.TemporaryDirectory() as folder:
                write(Path(folder), rows, {READINGS[name][1] for name in names})
                for name in names:
                    results[name] = run_in_child(name, Path(folder))
                    results[name]["file_bytes"] = (Path(folder) / FILES[READINGS[name][1]]).stat().st_size
                    print(f"{name}: {results[name]}", file=sys.stderr)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=1))
    print(table_of(results))


if __name__ == "__main__":
    main()
