"""A linkage in shares between three parties in one thread, on made-up names (``benchmarks.linkage --shares``)."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import alone, peak_bytes
from benchmarks.sessions import session
from vfl_node.alignment.alignment import Alignment, OwnRecords
from vfl_node.alignment.protocols import align, coordination_of
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.job import Align, Parties
from vfl_node.job.keys import filter_bits
from vfl_node.node.partners import Partner
from vfl_node.session.pins import MemoryPins
from vfl_node.session.session import Session
from vfl_node.settings.limits import Limits, LinkageLimits
from vfl_node.transport.channel import Channel
from vfl_node.transport.memory import memory_network, run_together

A, B, C = "clinic", "lab", "hub"
OTHERS = {A: (B, C), B: (A, C), C: (A, B)}
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


@dataclass(frozen=True)
class SharedRun:
    """One linkage in a process of its own.

    Attributes:
        rows: of each data party.
        bits: of a filter.
        comparison: as the job says.
        wall_s: of all three parties, one after the other, filters included.
        cpu_s: of all of them.
        sent_bytes: sender and receiver → bytes of messages.
        messages: from the active party to the passive one.
        peak_bytes: the most resident memory of the process.
    """

    rows: int
    bits: int
    comparison: str
    wall_s: float
    cpu_s: float
    sent_bytes: dict[str, int]
    messages: int
    peak_bytes: int


def names(rows: int, seed: int) -> np.ndarray:
    """Made-up first and last names."""
    letters = LETTERS[np.random.default_rng(seed).integers(0, 26, (rows, 12))]
    return np.array([f"{''.join(row[:5])} {''.join(row[5:])}" for row in letters])


def linked(rows: int, candidates: int, comparison: str) -> SharedRun:
    """A linkage of so many records at each data party."""
    terms = Align.model_validate(
        {
            "protocol": "linkage",
            "keys": {"name": {"kind": "text"}},
            "encoding": {"epsilon": 0.1, "delta": 0.05},
            "candidates": candidates,
            "noise": {"sigma": 0.4},
            "comparison": comparison,
        }
    )
    network = memory_network(*OTHERS)
    with tempfile.TemporaryDirectory() as folder:
        protocols = [each for name in OTHERS for each in _protocols(name, network[name], terms, rows, Path(folder))]
        wall, cpu = time.perf_counter(), time.process_time()
        results = run_together(*protocols)
        wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    for result in results[:2]:
        if not isinstance(result, Alignment):
            raise SystemExit(f"no linkage: {result}")
    traffic = {f"{name} → {peer}": network[name][peer].traffic["align"] for name, peers in OTHERS.items() for peer in peers}
    sent = {ends: counted.bytes_sent for ends, counted in traffic.items()}
    messages = traffic[f"{A} → {B}"].messages_sent
    bits = filter_bits(terms.keys or {}, terms.encoding)
    return SharedRun(rows, bits, comparison, wall_s, cpu_s, sent, messages, peak_bytes())


def _protocols(name: str, peers: dict[str, Channel], terms: Align, rows: int, folder: Path) -> Iterator[tuple[Any, Any]]:
    own = session(
        name,
        peers,
        Randomness(name.encode().ljust(32)),
        parties=Parties(active=A, passive=(B,), coordinator=C),
        align=terms,
        folder=folder / name / "job",
        memories={
            peer: Partner(folder / name / "partners", peer, f"{name} {peer}".encode().ljust(32)) for peer in OTHERS[name]
        },
        pins=MemoryPins(),
        limits=Limits(linkage=LinkageLimits(max_reuse=rows)),
    )
    own.attempt.folder.mkdir(parents=True)
    if name != C:
        ids = Identifiers.from_items([f"{name} {row}".encode() for row in range(rows)])
        records = OwnRecords(ids, b"", {"name": names(rows, list(OTHERS).index(name))})
        yield align(_separate_lists(own), records), own.peers.values()
        return
    linker = coordination_of(terms.spec, own)
    for channel in own.peers.values():
        yield linker.serve(channel), [channel]


def runs(sizes: Sequence[int], candidates: int) -> Iterator[SharedRun]:
    """A linkage by filters and one in shares of each size."""
    for rows in sizes:
        for comparison in ("filters", "shares"):
            yield alone(linked, rows, candidates, comparison)


HEAD = (
    "| records of each | comparison | wall s | CPU s | active → passive, MB | passive → active, MB | coordinator → both, MB | "
    "both → coordinator, MB | messages each way | peak, GiB |\n|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def line(run: SharedRun) -> str:
    """A row of the table."""
    sent = {ends: count / 1e6 for ends, count in run.sent_bytes.items()}
    each = (
        sent[f"{A} → {B}"],
        sent[f"{B} → {A}"],
        sent[f"{C} → {A}"] + sent[f"{C} → {B}"],
        sent[f"{A} → {C}"] + sent[f"{B} → {C}"],
    )
    times = f"{run.wall_s:.1f} | {run.cpu_s:.1f}"
    figures = " | ".join(f"{count:,.1f}" for count in each)
    return f"| {run.rows:,} | {run.comparison} | {times} | {figures} | {run.messages:,} | {run.peak_bytes / 2**30:.2f} |"


def _separate_lists(own: Session) -> Session:
    """The session whose columns lie in a folder of their own."""
    return dataclasses.replace(own, attempt=dataclasses.replace(own.attempt, folder=own.attempt.folder / "lists"))
