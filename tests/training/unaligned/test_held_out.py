"""A level and a number that only rows held out have are in nothing that is learnt or left, at either party."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.outside_rows import Intersected, intersected
from tests.training.unaligned.caught import FILLING, QUICK, catch
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.job import Evaluate
from vfl_node.job.unaligned import unaligned_of

ROWS, SHARED = 240, 80
LEVEL, NUMBER = "marked-level-7e1f", 98765.4321
DRAWN = Evaluate(test_fraction=0.5, metrics=("auc",))
LAST = Evaluate(hold_out={"last": 0.5}, metrics=("auc",))  # type: ignore[arg-type]

SOME = ("diffusion", "fedcvt", "fedhssl")
"""One that fills rows in, one that estimates them, and one that trains both bottoms before; the others are as one of these."""

Learnt = dict[str, Any]


def federation(*, ordered: bool) -> Intersected:
    """Also with a category at each party; with an order half of the rows outside come after the last one trained on."""
    order = np.random.default_rng(5).permutation(ROWS).astype(np.float64) if ordered else None
    made = intersected(ROWS, SHARED, groups=np.arange(ROWS) % 20, order=order)

    def with_levels(table: Table) -> Table:
        codes = np.arange(len(table)) % 3
        return replace(table, columns={**table.columns, "level": CategoricalColumn(codes, ("a", "b", "c"))})

    return replace(made, clinic=with_levels(made.clinic), lab=with_levels(made.lab))


def marked(table: Table, rows: Any) -> Table:
    """The same with another level and another number in some rows."""
    columns, level = dict(table.columns), table.columns["level"]
    assert isinstance(level, CategoricalColumn)
    codes = level.codes.copy()
    codes[rows] = 3
    columns["level"] = CategoricalColumn(codes, (*level.levels, LEVEL))
    name = next(iter(columns))
    numbers = columns[name].values.copy()  # type: ignore[union-attr]
    numbers[rows] = NUMBER
    columns[name] = NumericColumn(numbers)
    return replace(table, columns=columns)


def learnt(run: Any, of: Intersected, method: str, evaluate: Evaluate) -> tuple[Learnt, Any]:
    """All that a training leaves, and makes on its way; and which shared positions were held out."""
    chosen = {"method": method, **QUICK[method]}
    update = {"epochs": 4, "batch_size": 16, "least_rows": 1, "unaligned": unaligned_of(chosen)(**chosen)}
    with pytest.MonkeyPatch.context() as patch:
        caught = catch(patch)
        both = run(train=run().train.model_copy(update=update), evaluate=evaluate)(of)
    found: Learnt = dict(caught)
    for name, trained in zip(("clinic", "lab"), both, strict=True):
        found[f"{name}'s encoder"] = trained.encoder
        found[f"{name}'s weights"] = [trained.weights[key] for key in sorted(trained.weights)]
        assert LEVEL not in repr(trained.columns)
    return found, both[0].held_out


def differing(one: Learnt, other: Learnt) -> set[str]:
    def same(name: str) -> bool:
        if isinstance(one[name], str):
            return bool(one[name] == other[name])
        pairs = list(zip(one[name], other[name], strict=False))
        return len(one[name]) == len(other[name]) and all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)

    assert one.keys() == other.keys()
    return {name for name in one if not same(name)}


def told(of: Learnt) -> set[str]:
    """Encoders in which the level or the number stands."""
    return {name for name, text in of.items() if isinstance(text, str) and (LEVEL in text or str(NUMBER) in text)}


@pytest.mark.parametrize("method", [of if of in SOME else pytest.param(of, marks=pytest.mark.slow) for of in QUICK])
def test_what_only_held_out_rows_have_is_nowhere(run: Any, method: str) -> None:
    parties = federation(ordered=False)
    plain, testing = learnt(run, parties, method, DRAWN)
    assert ("generator" in plain) == (method in ("jpl", "diffusion"))
    assert ("filled" in plain) == (method in FILLING)
    assert ("pretrained" in plain) == (method in ("ssl", "mpd", "fedhssl"))

    def changed(clinic: Any, lab: Any) -> Learnt:
        return learnt(
            run, replace(parties, clinic=marked(parties.clinic, clinic), lab=marked(parties.lab, lab)), method, DRAWN
        )[0]

    found = changed(parties.clinic_view.rows[testing], parties.lab_view.rows[testing])
    assert not differing(plain, found) | told(found)
    trained = np.setdiff1d(np.arange(SHARED), testing)[0]
    control = changed(ROWS - 1, parties.lab_view.rows[trained])  # in a row of the clinic alone, and one that is trained on
    assert differing(plain, control) == set(plain)
    assert told(control) == {"clinic's encoder", "lab's encoder"}


@pytest.mark.parametrize(
    "method", ["diffusion", *(pytest.param(of, marks=pytest.mark.slow) for of in ("fedhssl", "fedcvt", "ssl"))]
)
def test_rows_outside_that_are_as_late_as_those_held_out_are_not_learnt_from_either(run: Any, method: str) -> None:
    parties = federation(ordered=True)
    order, view = parties.clinic.order, parties.clinic_view.rows
    assert order is not None
    plain, testing = learnt(run, parties, method, LAST)
    trained = np.setdiff1d(view, view[testing])
    outside = np.setdiff1d(np.arange(ROWS), view)
    late = outside[order[outside] > order[trained].max()]
    assert 20 < len(late) < len(outside) - 20

    def changed(rows: Any) -> Learnt:
        return learnt(run, replace(parties, clinic=marked(parties.clinic, rows)), method, LAST)[0]

    found = changed(np.concatenate([late, view[testing]]))
    assert not differing(plain, found) | told(found)
    control = changed(np.setdiff1d(outside, late)[:1])
    assert "clinic's encoder" in differing(plain, control) & told(control)
