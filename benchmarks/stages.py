"""What a party does between group operations: hashing, spilling, searching and ordering of very many elements.

The lists, columns and indexes are those of PSU; only the powers are left out. Both sets have
``count`` identifiers, half of them in common. Each party is a process of its own, and has in memory
what it has there in a job. About 200 bytes of disk an identifier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import alone, check, length, peak_bytes, sets, spelled, terms
from benchmarks.memory import ROLES, aligning
from vfl_node.alignment.alignment import OwnRecords
from vfl_node.alignment.lists.columns import Column, Columns
from vfl_node.alignment.lists.computed import Computed
from vfl_node.alignment.lists.lists import Lists
from vfl_node.crypto.groups import Curve25519, Scalar
from vfl_node.crypto.rows import Rows, is_strictly_ascending
from vfl_node.crypto.texts import Texts
from vfl_node.data.identifiers import Identifiers
from vfl_node.engines.contract import Engine
from vfl_node.roles import Role
from vfl_node.transport.memory import memory_channels

THEIRS = "step 5 powers"
_NOTHING = Scalar(1)


class Unpowered(Curve25519):
    """The group with powers that cost nothing and change nothing."""

    def blinded(self, ids: Texts, domain: bytes, scalar: Scalar, engine: Engine) -> Iterator[Rows]:
        """The hashes."""
        return iter([self.hash_texts(*ids.lay_out(), domain)])

    def powers(self, rows: Rows, scalar: Scalar, engine: Engine, *, check: bool = False) -> Iterator[Rows]:
        """The rows themselves."""
        return iter([rows])


class Stages:
    """Collects what each stage took.

    Attributes:
        rows: ``party``, ``stage``, ``elements``, ``wall_s``, ``cpu_s``, and ``peak_bytes`` of the process so far.

    Args:
        role: whose stages these are.
    """

    def __init__(self, role: Role) -> None:
        self._role = role
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def stage(self, name: str, elements: int) -> Iterator[None]:
        """Measure what is inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        took = {"elements": elements, "wall_s": wall, "cpu_s": cpu, "peak_bytes": peak_bytes()}
        self.rows.append({"party": self._role, "stage": name, **took})


def blind(folder: Path, count: int) -> None:
    """The passive party's step 5, as it would lie at the active one in the end, in a secret order."""
    lists = _lists("passive", _identifiers("passive", count), folder)
    spilled(lists.blind(THEIRS, lists.order("step 5"), _NOTHING))
    lists.close()


def merge(folder: Path, count: int) -> list[dict[str, Any]]:
    """The active party's stages; the passive one's lie between them, in a process of its own."""
    took = Stages("active")
    with took.stage("take the identifiers", count):
        ids = _identifiers("active", count)
    with took.stage("order and digest them", count):
        ids.digest()
    lists = _lists("active", ids, folder)
    columns = Columns(folder, width=lists.group.width, chunk_rows=lists.group.chunk_rows)
    with took.stage("draw a secret order", count):
        order = lists.order("step 3")
    with took.stage("hash to the group and spill", count):
        own = spilled(lists.blind("step 3", order, _NOTHING))
    with took.stage("spill alone (copy a column)", count):
        spilled(lists.powers("copy", own, _NOTHING))
    with took.stage("open a column and check its marks", count):
        theirs = columns.column(THEIRS)
    check(THEIRS, len(theirs), count)
    with took.stage("search it for repeats", count):
        lists.check_distinct("step 5", theirs)
    with took.stage("find its elements among the own", 2 * count):
        is_new = lists.find(own, theirs) < 0
        places = np.concatenate([np.arange(count), count + np.flatnonzero(is_new)])
    m = len(places)
    check("union", m, length("psu", count))
    with took.stage("shuffle the union and spill", m):
        union = lists.choose([own, theirs], places[lists.secret.derive("step 8").permutation(m)])
        spilled(lists.powers("step 8", union, _NOTHING))
    took.rows += alone(order_union, folder, count)
    uids = columns.column("step 9")
    with took.stage("check that it ascends", m):
        check("rows in order", len(uids) if is_strictly_ascending(uids.rows) else 0, m)
    with took.stage("place the own in it", m):
        rows = lists.place(uids, own, order)
    check("own rows", int(np.count_nonzero(rows >= 0)), count)
    columns.close()
    lists.close()
    return took.rows


def order_union(folder: Path, count: int) -> list[dict[str, Any]]:
    """The passive party's stages, beside its identifiers and their order."""
    took, lists = Stages("passive"), _lists("passive", _identifiers("passive", count), folder)
    order = lists.order("step 5")
    columns = Columns(folder, width=lists.group.width, chunk_rows=lists.group.chunk_rows)
    unsorted = columns.column("step 8")
    with took.stage("order the union", len(unsorted)):
        ascending = lists.ascending(unsorted)
    with took.stage("gather it in order and spill", len(unsorted)):
        spilled(lists.powers("step 9", lists.choose([unsorted], ascending), _NOTHING))
    check("own places", len(order), count)  # a job holds them to the end
    columns.close()
    lists.close()
    return took.rows


def spilled(computed: Computed) -> Column:
    """All of it in a durable column."""
    column = computed.whole()
    column.sync()
    return column


def _identifiers(role: Role, count: int) -> Identifiers:
    return Identifiers.from_items(map(str.encode, spelled(sets(count)[ROLES.index(role)])))


def _lists(role: Role, ids: Identifiers, folder: Path) -> Lists:
    channel = memory_channels(*ROLES)[ROLES.index(role)]
    session = aligning(role, terms("psu", "curve25519", len(ids)), channel, folder, threads=1)
    return Lists(session, OwnRecords(ids), Unpowered())
