"""Print what ``benchmarks.align`` wrote as Markdown: tables, what is asked of them, and what ten million ids would take.

python -m benchmarks.tables runs/bench/*.json
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Made = dict[str, Any]
What = tuple[str, str, str, str, str, int]
"""Where, system, kernel, protocol, group, identifiers a party."""
Medians = dict[What, dict[str, float]]
SMALLEST, MANY = 50_000, 10_000_000
NODE_GOALS = {1_000_000: (2.5, 1.0), 10_000_000: (20.0, 2.0)}
"""Identifiers a party → minutes and GiB of a party, at most, on two cores with AVX-512 IFMA."""

OTHERS = ("openmined-psi", "spu")
"""Libraries measured beside, where they are installed."""
MIB = 2**20

COLUMNS: dict[str, Callable[[Made], float]] = {
    "CPU s": lambda row: sum(subtract_start(row, "cpu_s").values()),
    "aligning": lambda row: sum(subtract_start(row, "align_cpu_s").values()),
    "wall s": lambda row: row["run"]["wall_s"] - row["start_up"]["wall_s"],
    "alignment": lambda row: row["run"]["align_s"] - row["start_up"]["align_s"],
    "k ladders": lambda row: ladders(row) / 1000,
    "an operation": lambda row: ladders(row) / subtract_operations(row),
    "MB by active": lambda row: row["run"]["sent_bytes"]["active"] / 1e6,
    "MB by passive": lambda row: row["run"]["sent_bytes"]["passive"] / 1e6,
    "peak MiB": lambda row: max(row["run"]["peak_bytes"].values()) / MIB,
    "start-up CPU s": lambda row: sum(row["start_up"]["cpu_s"].values()),
    "wall": lambda row: row["start_up"]["wall_s"],
}
"""Column → its value in a row of JSON."""


def subtract_start(row: Made, name: str) -> dict[str, float]:
    """By process, without start-up."""
    return {process: spent - row["start_up"][name][process] for process, spent in row["run"][name].items()}


def subtract_operations(row: Made) -> float:
    """Group operations, without start-up; NaN for another library."""
    run, start_up = row["run"]["operations"], row["start_up"]["operations"]
    return math.nan if run is None else run - start_up


def ladders(row: Made) -> float:
    """CPU time of the alignment, in ladders."""
    return COLUMNS["aligning"](row) / row["ladder_us"] * 1e6


def describe(row: Made) -> What:
    """What was measured; repeats of it are equal."""
    return row["where"], row["system"], row["kernel"], row["protocol"], row["group"], row["run"]["ids"]


def medians(rows: Iterable[Made]) -> Medians:
    """What was measured → column → the median of its repeats."""
    found: dict[What, list[Made]] = {}
    for row in rows:
        found.setdefault(describe(row), []).append(row)
    return {
        key: {name: statistics.median(map(column, same)) for name, column in COLUMNS.items()} for key, same in found.items()
    }


def rows_table(rows: list[Made]) -> Iterator[str]:
    """One line for each thing measured."""
    yield from head("where", "system", "kernel", "protocol", "group", "ids a party", *COLUMNS)
    for (*names, ids), values in medians(rows).items():
        yield line(*names, f"{ids:,}", *map(number, values.values()))
    for other in OTHERS if any(row["where"] == "memory" for row in rows) else ():
        if not any(row["system"].startswith(other) for row in rows):
            yield line("", other, "", "not installed: no wheel for this Python?", *[""] * (2 + len(COLUMNS)))


def groups_table(groups: list[Made]) -> Iterator[str]:
    """Microseconds of one core an element."""
    yield from head("kernel", "group", "hash µs", "power µs", "decode µs", "ladder µs")
    for group in groups:
        yield line(
            group["kernel"], group["group"], *(number(group[f"{name}_us"]) for name in ("hash", "power", "decode", "ladder"))
        )


def stages_table(measured: Made) -> Iterator[str]:
    """One line a stage, and all of them."""
    yield f"{measured['ids']:,} ids a party"
    yield ""
    yield from head("party", "stage", "elements", "wall s", "CPU s", "µs an element", "peak MiB so far")
    for stage in measured["stages"]:
        each = stage["cpu_s"] / stage["elements"] * 1e6
        cells = (stage["wall_s"], stage["cpu_s"], each, stage["peak_bytes"] / MIB)
        yield line(stage["party"], stage["stage"], f"{stage['elements']:,}", *map(number, cells))
    total = [sum(stage[name] for stage in measured["stages"]) for name in ("wall_s", "cpu_s")]
    yield line(
        "both", "all", "", *map(number, total), "", number(max(stage["peak_bytes"] for stage in measured["stages"]) / MIB)
    )


def checks(rows: list[Made], stages: list[Made]) -> Iterator[tuple[str, float, float]]:
    """What is asked: in words, what was measured, and the most it should be."""
    found = medians(rows)
    cpu = {
        (system.partition(" ")[0], kernel, protocol, ids): values["CPU s"]
        for (where, system, kernel, protocol, group, ids), values in found.items()
        if where in ("memory", "two processes") and group in ("curve25519", "P-256")
    }
    for kernel, ids in dict.fromkeys((kernel, ids) for system, kernel, _, ids in cpu if system == "vfl-node"):
        psi, psu, apsi = (cpu.get(("vfl-node", kernel, protocol, ids), math.nan) for protocol in ("psi", "psu", "apsi"))
        openmined, spu = (cpu.get((system, "", "psi", ids), math.nan) for system in OTHERS)
        for name, ratio, most in (
            ("psi / spu ECDH", psi / spu if kernel == "ifma" else math.nan, 1.1),  # which has such a kernel too
            ("psi / openmined-psi", psi / openmined, 0.55),
            ("psu / psi", psu / psi, 3.3),
            ("apsi / psi", apsi / psi, 2.0),
        ):
            if not math.isnan(ratio):
                yield f"CPU of {name}, {ids:,} ids, {kernel}", ratio, most
    yield from _node_rows(found, {describe(row): row["mbit_s"] for row in rows})
    for measured in stages:
        most = max(stage["peak_bytes"] for stage in measured["stages"])
        yield f"peak of all stages, {measured['ids']:,} ids, GiB", most / 2**30, 2.0


def _node_rows(found: Medians, rates: dict[What, float | None]) -> Iterator[tuple[str, float, float]]:
    for (where, system, kernel, protocol, group, ids), values in found.items():
        name = f"{protocol} of {ids:,} ids, {where}"
        if where == "loopback" and ids in NODE_GOALS:
            minutes, gibibytes = NODE_GOALS[ids]
            yield f"{name}: minutes, tables read and start-up included", (values["wall s"] + values["wall"]) / 60, minutes
            yield f"{name}: peak of a party, GiB", values["peak MiB"] / 1024, gibibytes
            yield f"{name}: MB, the busier way", max(values["MB by active"], values["MB by passive"]), ids / 5_000
            if (small := found.get((where, system, kernel, protocol, group, ids // 10))) is not None:
                yield f"{name}: alignment, times that of a tenth", values["alignment"] / small["alignment"], 11.0
                yield f"{name}: wall time, times that of a tenth", values["wall s"] / small["wall s"], 11.0
        rate, near = (
            rates[where, system, kernel, protocol, group, ids],
            found.get(("loopback", system, kernel, protocol, group, ids)),
        )
        if rate and near:
            moving = max(values["MB by active"], values["MB by passive"]) * 8 / rate
            yield f"{name}: alignment / max(loopback, transfer)", values["alignment"] / max(near["alignment"], moving), 1.15


def estimate(rows: list[Made]) -> Iterator[str]:
    """:data:`MANY` ids, along the line through the two largest sizes measured between nodes on loopback."""
    found: dict[str, list[tuple[int, dict[str, float]]]] = {}
    for (where, _, _, protocol, group, ids), values in medians(rows).items():
        if where == "loopback" and group == "curve25519" and ids >= SMALLEST:
            found.setdefault(protocol, []).append((ids, values))
    for protocol, sizes in found.items():
        if len(sizes) < 2:
            continue
        (few, low), (many, high) = sorted(sizes, key=lambda size: size[0])[-2:]
        at = {name: high[name] + (high[name] - low[name]) / (many - few) * (MANY - many) for name in high}
        yield (
            f"{protocol} of {MANY:,} ids a party, on the line through {few:,} and {many:,} on loopback: "
            f"alignment {at['alignment'] / 60:.0f} min, {at['wall s'] / 60:.0f} min with the tables; "
            f"CPU of both parties {at['CPU s'] / 3600:.1f} h; sent {at['MB by active'] / 1000:.1f} GB by the active party "
            f"and {at['MB by passive'] / 1000:.1f} GB by the passive one; peak of a party {at['peak MiB'] / 1024:.1f} GiB."
        )


def markdown(files: list[Made]) -> Iterator[str]:
    """All of it, a line at a time."""
    for made in files:
        machine = made["machine"]
        yield f"    {made['command']}"
        yield ""
        yield (
            f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
            f"Python {machine['python']}, numpy {machine['numpy']}, vfl-node {machine['vfl_node']}"
        )
        yield ""
        for name, table in (("groups", groups_table), ("rows", rows_table), ("stages", stages_table)):
            if made.get(name):
                yield from table(made[name])
                yield ""
    rows = [row for made in files for row in made.get("rows", [])]
    asked = list(checks(rows, [made["stages"] for made in files if made.get("stages")]))
    if asked:
        yield from head("goal", "measured", "at most", "")
        for name, measured, most in asked:
            yield line(name, f"{measured:.2f}", f"{most:g}", "met" if measured <= most else "missed")
        yield ""
    yield from estimate(rows)


def head(*names: str) -> Iterator[str]:
    """The first two lines of a table."""
    yield line(*names)
    yield "|---" * len(names) + "|"


def line(*cells: str) -> str:
    """One line of a table."""
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    if math.isnan(value):  # does not apply
        return "–"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def main() -> None:
    print(*markdown([json.loads(Path(name).read_text()) for name in sys.argv[1:]]), sep="\n")


if __name__ == "__main__":
    main()
