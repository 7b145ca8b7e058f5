"""Columns are replaced by weights of evidence, and how many there are does not follow these weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from vfl_node.data.bins import Cuts
from vfl_node.data.design import LinearEncoder
from vfl_node.data.evidence import EvidenceColumns, KeptEvidence, WeighedColumn
from vfl_node.data.tables import NumericColumn, Table

WOE = {"transform": "woe", "least_rows": 7}
TAYLOR = {"flow": "coordinator", "loss": "taylor"}
FLAT = (0.5, 0.5, 0.0)


def weighed(table: Table, name: str, *, above: int = 25, weights: tuple[float, ...] = (-1.0, 0.75, 0.0)) -> WeighedColumn:
    """Two bins, of which the upper one has so many records."""
    column = table.columns[name]
    assert isinstance(column, NumericColumn)
    cut = float(np.sort(column.values)[-above - 1])
    return WeighedColumn(bins=Cuts(name=name, holds="numeric", cuts=(cut,), left=()), weights=weights)


def kept(*columns: WeighedColumn) -> KeptEvidence:
    return KeptEvidence.from_counted(EvidenceColumns(job="counted", columns=columns), 0.0, bytes(32), noised=True)


@pytest.mark.parametrize("scaling", ["standard", "auto", "quantile", "log", "none"])
def test_an_encoder_keeps_all_columns_that_were_counted(shared: Any, scaling: Any) -> None:
    """One that is constant is zeros, or with ``none`` its number; the control is without weights."""
    table = shared(60, 50).lab
    first, second, third = table.columns
    evidence = EvidenceColumns(
        job="counted", columns=(weighed(table, first, weights=FLAT), weighed(table, second, weights=(0.0,) * 3))
    )
    encoder = LinearEncoder.fit(table, scaling, evidence)
    again = LinearEncoder.from_json(encoder.to_json())
    assert (again.width, again.dropped, tuple(again.kinds)) == (2, (third,), (first, second))
    expected = [0.5, 0.0] if scaling == "none" else [0.0, 0.0]
    assert np.array_equal(again.transform(table).values, np.tile(expected, (len(table), 1)))
    flat = Table(table.ids, {first: NumericColumn(np.zeros(len(table)))})
    assert LinearEncoder.fit(flat, scaling).width == 0


@pytest.mark.parametrize("given", [{}, {"mask": "multiplicative"}, TAYLOR], ids=["two-party", "multiplicative", "coordinator"])
def test_their_number_does_not_follow_weights(attempt: Any, shared: Any, logistic: Any, given: dict[str, Any]) -> None:
    """One that is flat, and one that is rare, are zeros with weight 0; all others are as without these."""
    over = shared(50, 50, protocol="psi")
    first, second, third = over.lab.columns
    mine, other = over.clinic.columns
    clinic = kept(weighed(over.clinic, mine), weighed(over.clinic, other, weights=FLAT))
    of_lab = weighed(over.lab, first)
    poor = kept(of_lab, weighed(over.lab, second, weights=FLAT), weighed(over.lab, third, above=3))
    rich = kept(of_lab, weighed(over.lab, second), weighed(over.lab, third))

    def run(lab: KeptEvidence) -> Any:
        return attempt(logistic(**given, **WOE), evidence={"clinic": clinic, "lab": lab})(over)

    (active, passive), (_, control), (_, alone) = (run(lab) for lab in (poor, rich, kept(of_lab)))
    assert active.section.features["lab"] == passive.section.features["lab"] == control.section.features["lab"] == 3
    assert alone.section.features["lab"] == 1
    assert set(passive.section.dropped) == {second, third}
    assert other in active.section.dropped
    assert control.section.dropped == ()
    assert passive.weights["weight"][0].tolist()[1:] == [0, 0]
    assert active.weights["weight"][0, 1] == 0
    assert control.weights["weight"][0].all()
    torch.testing.assert_close(passive.weights["weight"][:, :1], alone.weights["weight"], atol=1e-12, rtol=0)


def test_a_party_whose_weights_are_all_alike_takes_part(attempt: Any, shared: Any, logistic: Any) -> None:
    """That it stops would tell what they are. Its model is nothing."""
    over = shared(50, 50, protocol="psi")
    flat = kept(*(weighed(over.lab, name, weights=FLAT) for name in over.lab.columns))
    clinic = kept(*(weighed(over.clinic, name) for name in over.clinic.columns))
    active, passive = attempt(logistic(**TAYLOR, **WOE), evidence={"clinic": clinic, "lab": flat})(over)
    assert active.section.features["lab"] == 3
    assert not passive.weights["weight"].any()
    assert active.weights["weight"].all()
