"""The lab's columns at several passive parties, and regressions over them in memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tests.training.logistic.conftest import CLINIC, HUB, LAB, Attempt, Shared
from vfl_node.alignment.alignment import Alignment
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import NumericColumn, Table

PASSIVE = ("lab", "insurer", "shop")


@dataclasses.dataclass(frozen=True, eq=False)
class SharedBySeveral(Shared):
    """As its base, with ``passive``: each passive party's table and view, in the order of the job."""

    passive: dict[str, tuple[Table, Alignment]]

    @property
    def data(self) -> dict[str, tuple[Table, Alignment]]:
        """Each party's table and view, in the order of the job's parties."""
        return {"clinic": (self.clinic, self.clinic_view), **self.passive}


def among(over: Shared, *passive: str) -> SharedBySeveral:
    """The lab's columns dealt out in turn to ``passive`` parties, each of which has the records in an order of its own."""
    rng, ids, names = np.random.default_rng(5), list(over.lab.ids), list(over.lab.columns)
    dealt = {}
    for place, party in enumerate(passive):
        order = rng.permutation(len(ids))
        columns = {name: NumericColumn(over.lab.columns[name].values[order]) for name in names[place :: len(passive)]}
        facts = {other: over.lab_view.peer for other in ("clinic", *passive) if other != party}
        view = dataclasses.replace(over.lab_view, rows=np.argsort(order)[over.lab_view.rows], peers=facts)
        dealt[party] = Table(Identifiers.from_items(ids[row] for row in order), columns, None), view
    clinic_view = dataclasses.replace(over.clinic_view, peers=dict.fromkeys(passive, over.clinic_view.peer))
    fields = {of.name: getattr(over, of.name) for of in dataclasses.fields(Shared)} | {"clinic_view": clinic_view}
    return SharedBySeveral(**fields, passive=dealt)


def attempt_of(over: SharedBySeveral, train: Any, kind: type[Attempt] = Attempt, **given: Any) -> Attempt:
    """An attempt of all parties that ``over`` has."""
    others = [f"the private randomness of {party}".ljust(32).encode()[:32] for party in over.passive]
    seeds = (CLINIC, LAB, *others[1:])
    return kind(train, **({"passive": tuple(over.passive), "seeds": seeds, "hub": (HUB,) * len(seeds)} | given))
