"""What a party does between group operations: hashing, spilling, searching and ordering of very many elements.

The lists, columns and indexes are those of the protocols (PSU's steps, at the active party); only the
powers are left out. Both sets have ``count`` identifiers and half of them in common. Runs in a process
of its own and needs about 160 bytes of disk an identifier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import check, ladder_us, length, peak_bytes, sets, spelled, terms
from benchmarks.memory import ROLES, party
from vfl_node.alignment.columns import Column, Columns, Source
from vfl_node.alignment.lists import Lists
from vfl_node.crypto.groups import Curve25519, Scalar
from vfl_node.crypto.rows import RowIndex, Rows, is_strictly_ascending, order_rows
from vfl_node.crypto.workers import Workers
from vfl_node.data.identifiers import Identifiers
from vfl_node.settings import Role
from vfl_node.transport.channel import memory_channels

THEIRS = "step 5 powers"
_NOTHING = Scalar(1)


class Unpowered(Curve25519):
    """The group with powers that cost nothing and change nothing."""

    def powers(self, rows: Rows, scalar: Scalar, workers: Workers, *, check: bool = False) -> Iterator[Rows]:
        """The rows themselves."""
        return iter([rows])


class Stages:
    """Collects what each stage took.

    Attributes:
        rows: ``stage``, ``elements``, ``wall_s``, ``cpu_s``, and ``peak_bytes`` of the process so far.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def stage(self, name: str, elements: int) -> Iterator[None]:
        """Measure what is inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self.rows.append({"stage": name, "elements": elements, "wall_s": wall, "cpu_s": cpu, "peak_bytes": peak_bytes()})


def peer_column(folder: Path, count: int) -> None:
    """Leave in ``folder`` what the active party would have received from its peer, in a secret order."""
    lists = _lists("passive", Identifiers.of(map(str.encode, spelled(sets(count)[1]))), folder)
    lists.blinded(THEIRS, lists.order("step 5"), _NOTHING).whole()
    lists.close()


def measure(folder: Path, count: int) -> dict[str, Any]:
    """Every stage at the active party, whose peer's elements lie in ``folder``."""
    took = Stages()
    before = ladder_us()
    with took.stage("take the identifiers", count):
        ids = Identifiers.of(map(str.encode, spelled(sets(count)[0])))
    with took.stage("order and digest them", count):
        ids.digest()
    lists = _lists("active", ids, folder)
    with took.stage("open the peer's column, checking its marks", count):
        columns = Columns(folder, width=lists.group.width, chunk_rows=lists.group.chunk_rows)
        theirs = columns.column(THEIRS)
    check(THEIRS, len(theirs), count)
    with took.stage("draw a secret order", count):
        order = lists.order("step 3")
    with took.stage("hash to the group and spill", count):
        own = lists.blinded("step 3", order, _NOTHING).whole()
        own.sync()
    with took.stage("spill alone (copy a column)", count):
        spilled(lists, "copy", own)
    with took.stage("search for repeats", count):
        lists.distinct("step 5", theirs)
    with took.stage("find the peer's elements among the own", 2 * count):
        is_new = lists.find(RowIndex(own.rows), theirs) < 0
        places = np.concatenate([np.arange(count), count + np.flatnonzero(is_new)])
    union = len(places)
    check("union", union, length("psu", count))
    with took.stage("shuffle the union and spill", union):
        shuffled = lists.chosen([own, theirs], places[lists.secret.derive("step 8").permutation(union)])
        unsorted = spilled(lists, "step 8", shuffled)
    with took.stage("order the union", union):
        ascending = order_rows(unsorted.rows)
    with took.stage("gather it in order and spill", union):
        uids = spilled(lists, "step 9", lists.chosen([unsorted], ascending))
    with took.stage("check that it ascends", union):
        check("ascending", union if is_strictly_ascending(uids.rows) else 0, union)
    with took.stage("place the own in it", union):
        rows = lists.place(uids.rows, own, order)
    check("own rows", int(np.count_nonzero(rows >= 0)), count)
    columns.close()
    lists.close()
    return {"ids": count, "stages": took.rows, "ladder_us": (before + ladder_us()) / 2}


def spilled(lists: Lists, name: str, source: Source) -> Column:
    """The elements of ``source`` in a durable column of their own."""
    column = lists.powers(name, source, _NOTHING).whole()
    column.sync()
    return column


def _lists(role: Role, ids: Identifiers, folder: Path) -> Lists:
    channel = memory_channels(*ROLES)[ROLES.index(role)]
    return Lists(terms("psu", "curve25519", len(ids)), role, channel, party(role, ids, folder, threads=1), Unpowered())
