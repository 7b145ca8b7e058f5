"""Federations in which most of the active party's rows have no partner, aligned by intersection or by an asymmetric one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.thorough import every
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.unaligned import unaligned_of
from vfl_node.training.checkpoints import MemoryCheckpoints

QUICK: dict[str, dict[str, Any]] = {
    "diffusion": {"method": "diffusion", "steps": 20, "sampler_steps": 5, "updates": 30},
    "jpl": {"method": "jpl", "updates": 20},
    "heuristic": {"method": "heuristic"},
    "fedcvt": {"method": "fedcvt", "pretrain": 0.5, "candidates": 16},
}
"""Methods that learn from rows outside between federated batches, with little to do."""


def settings(run: Any, method: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Of a short training by ``method``, a ``train.unaligned`` section."""
    update = {"epochs": 4, "batch_size": 32, "unaligned": unaligned_of(method)(**method), **keys}
    return {"train": run().train.model_copy(update=update), "evaluate": Evaluate(test_fraction=0.5)}


@dataclass(frozen=True)
class Intersected:
    """Two parties' tables and their views of the shared rows, as ``tests.training.conftest.Federation``."""

    clinic: Table
    lab: Table
    clinic_view: Alignment
    lab_view: Alignment
    people: NDArray[np.int64]


def intersected(
    rows: int,
    shared: int,
    others: int | None = None,
    *,
    labels: Any = None,
    columns: tuple[int, int] = (4, 2),
    groups: NDArray[np.int64] | None = None,
    order: NDArray[np.float64] | None = None,
    seed: int = 0,
) -> Intersected:
    """The clinic's ``rows`` records, of which the lab has so many.

    Args:
        rows: of the clinic.
        shared: the clinic's first ones, in a random order at the lab and in the alignment.
        others: records of the lab alone that are among them in an obfuscated set; None: it is a plain intersection.
        labels: of x [rows, ·] and z [rows, ·] of all records; default: two classes by products in x, and by z₀.
        columns: how many x and z.
        groups: of the clinic's records.
        order: of the clinic's records.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    records = rows + (others or 0)
    x, z = (rng.normal(size=(records, count)) for count in columns)
    if labels is None:
        y = rng.random(records) < 1 / (1 + np.exp(-1.5 * (x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3] + z[:, 0])))
    else:
        y = labels(x, z)
    of_lab = np.concatenate([np.arange(shared), np.arange(rows, records)])
    lab, people = (of_lab[rng.permutation(len(of_lab))] for _ in range(2))
    place = np.empty(records, np.int64)
    place[lab] = np.arange(len(lab))

    def table(name: str, values: NDArray[Any], of: NDArray[np.int64], **rest: Any) -> Table:
        named = {f"{name}{number}": NumericColumn(column) for number, column in enumerate(values[of].T)}
        return Table(Identifiers.from_items(str(row).encode() for row in of), named, **rest)

    def view(places: NDArray[np.int64], own: int, peer: str, **facts: Any) -> Alignment:
        return Alignment(ALIGNMENTS["psi" if others is None else "apsi"], "curve25519", places, own, {peer: PeerFacts(**facts)})

    hidden = others is not None

    return Intersected(
        table("x", x, np.arange(rows), labels=y[:rows].astype(np.float32), groups=groups, order=order),
        table("z", z, lab),
        view(np.where(people < rows, people, NOT_MINE), rows, "lab", records=len(lab), intersection=shared, missing=0),
        view(
            place[people],
            len(lab),
            "clinic",
            records=rows,
            intersection=None if hidden else shared,
            missing=None if hidden else 0,
        ),
        people,
    )


class KeepingAll(MemoryCheckpoints):
    """Has every checkpoint in ``all``."""

    def __init__(self) -> None:
        super().__init__()
        self.all: dict[str, Any] = {}

    def save(self, name: str, tensors: Any, meta: Any) -> None:
        self.all[name] = ({key: tensor.clone() for key, tensor in tensors.items()}, deepcopy(meta))
        super().save(name, tensors, meta)


def same_from_each(run: Any, how: Any, federation: Any, names: Sequence[str]) -> None:
    """A training that goes on from each of the checkpoints ``names``, which are all, ends as if nothing had happened.

    In `make test` from each fourth one and the last.
    """
    kept = (KeepingAll(), KeepingAll())
    whole = run(**how, checkpoints=kept)(federation)
    assert [sorted(of.all) for of in kept] == [sorted(names)] * 2
    for name in every(4, names):
        again = (MemoryCheckpoints(), MemoryCheckpoints())
        for to, of in zip(again, kept, strict=True):
            to.save(name, *of.all[name])
        resumed = run(**how, checkpoints=again, resume_from=name)(federation)
        for ours, theirs in zip(resumed, whole, strict=True):
            assert all(torch.equal(ours.weights[key], theirs.weights[key]) for key in theirs.weights)
            assert ours.results == theirs.results
            assert ours.section == theirs.section
            assert ours.audits.features == theirs.audits.features
