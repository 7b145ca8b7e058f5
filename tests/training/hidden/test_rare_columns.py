"""A column in which few records differ does not tell by its weight whether these are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.training.hidden.conftest import weights_of
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import UsageError
from vfl_node.job.evaluate import Evaluate
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.disclosures import HiddenNumbers, learns
from vfl_node.training.hidden.inputs import START, first_parts
from vfl_node.training.hidden.network import Form
from vfl_node.training.hidden.rates import Rates
from vfl_node.transport.generated.vfl.v1.shares_pb2 import MaskedShares

pytestmark = pytest.mark.usefixtures("silent")

RARE = "rare"


def with_rare(over: Any, party: str, records: int) -> Any:
    """A column that is 1 for so many of a party's records, none of them shared by all, and 0 elsewhere."""
    table, view = over.data[party]
    values = np.zeros(len(table))
    values[view.rows[view.owned & ~over.both][:records]] = 1.0
    over.data[party] = Table(table.ids, {**table.columns, RARE: NumericColumn(values)}, table.labels), view
    return over


@pytest.mark.parametrize("party", ["clinic", "lab"])
def test_a_column_in_which_few_records_differ_is_left_out(world: Any, attempt: Any, party: str) -> None:
    place = ("clinic", "lab").index(party)
    for records, stays in ((4, False), (5, True)):
        result = attempt()(with_rare(world(), party, records))[place]
        assert (RARE in result.section.dropped) != stays
        weight = result.weights["weight"][0].numpy()
        assert len(weight) == 3 + place + stays
        assert len(result.columns) == 4 + place
        assert result.section.columns[party] == 3 + place + stays + (party == "clinic")


def test_a_column_that_is_left_out_is_named_to_its_owner_alone(world: Any, attempt: Any) -> None:
    active, passive = attempt()(with_rare(world(), "lab", 4))
    (warning,) = passive.warnings
    assert warning.startswith(f"Column {RARE!r} left out: fewer than 5 of this party's records differ")
    assert {of.name: of.transform for of in passive.columns}[RARE] is None
    assert active.warnings == ()


def test_a_value_that_stands_out_spoils_no_column(world: Any, attempt: Any) -> None:
    """As many programs write 999999999 for a missing number."""
    over, of = world(people=600), {"learning_rate": 0.2, "epochs": 6, "batch_size": 64}
    clean = attempt(of)(over)[0].results.metrics["auc"]
    table, view = over.data["lab"]
    spoilt = {}
    for name, column in table.columns.items():
        values = column.values.copy()
        values[0] = 999999999
        spoilt[name] = NumericColumn(values)
    over.data["lab"] = Table(table.ids, spoilt, table.labels), view
    active, passive = attempt(of)(over)
    assert active.results.metrics["auc"] == pytest.approx(clean, abs=0.02)
    assert passive.section.dropped == ()
    assert {of.transform for of in passive.columns} == {"quantile"}
    (warning,) = passive.warnings
    assert warning.startswith("Columns 'lab-0', 'lab-1', 'lab-2', 'lab-3': a few values")
    assert active.warnings == ()


def test_a_record_that_stands_out_is_left_out_however_the_job_scales(world: Any, attempt: Any) -> None:
    over = with_rare(world(), "lab", 5)
    table, view = over.data["lab"]
    values = table.columns[RARE].values / 8
    values[-1] = 4.0
    over.data["lab"] = Table(table.ids, {**table.columns, RARE: NumericColumn(values)}, table.labels), view
    for scaling in ("none", "standard", "quantile"):
        passive = attempt({"scaling": scaling})(over)[1]
        assert passive.section.dropped == (RARE,)
        assert passive.warnings == (
            f"Column {RARE!r} left out: one of this party's records has more than a fifth of its sum of squares, and its "
            "weight would tell about it (least_rows).",
        )


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_first_weights_are_known_to_nobody(hidden: tuple[int, ...], attempt: Any) -> None:
    form = Form((40, 60), hidden, 1, "exact")
    parts = [first_parts(form, attempt().randomness(name), bounded=False) for name in ("clinic", "lab")]
    scale = 2**26 * (0.1 if hidden else START)  # 100 inputs
    for index in (0, 1):
        own, other = (of.weights[index].view(np.int64) / scale for of in parts)
        part = 0.5**0.5 if hidden else 1
        assert own.std() == pytest.approx(part, rel=0.3)
        assert other.std() == pytest.approx(part, rel=0.3)
        assert abs(np.corrcoef(own.ravel(), other.ravel())[0, 1]) < 0.5
    assert all(part.weights[3].any() for part in parts if hidden)  # a bias, too: else it would be an exact sum
    assert not any(of.any() for part in parts for of in part.velocity)
    bounded = first_parts(form, attempt().randomness("lab"), bounded=True)
    assert not any(of.any() for of in (*bounded.weights, *bounded.velocity))


def test_a_weight_that_nothing_moves_is_what_it_began_with(world: Any, attempt: Any) -> None:
    over, of = with_rare(world(), "lab", 5), attempt({"scaling": "none"})
    results = of(over)
    found, start = weights_of(results)[1], of.start(over)[1]
    assert np.abs(found[:-1] - start[:-1]).max() > 0.1
    np.testing.assert_allclose(found[-1], start[-1], atol=1e-6)
    assert np.abs(start[-1]) > 0.001


def test_which_training_it_is_stands_in_the_ledger(world: Any, attempt: Any) -> None:
    over = world()
    for number in (1, 3):
        job = attempt().job(over)
        said = learns(job, HiddenNumbers(len(over), (4, 4), 10, number))
        for name in ("clinic", "lab"):
            (text,) = (of.text for of in said[name] if of.what == "weights")
            assert ("this is training 3 over these records" in text) == (number == 3)
    assert not Hidden(algorithm="hidden").opens(Evaluate()).anew  # counted as ε
    assert Hidden(algorithm="hidden", epsilon=None).opens(Evaluate()).anew
    assert not Hidden(algorithm="hidden", epsilon=None, metrics_by="none").opens(Evaluate()).anew


@pytest.mark.parametrize(
    ("rate", "divisor", "bits", "fits"),
    [
        *((1.0, 1.0, 18, True), (1.01, 1.0, 18, False), (600.0, 512.0, 18, False), (500.0, 512.0, 12, True)),
        *((4e-4, 1e5, 18, True), (1e-5, 1e5, 12, False), (1e-9, 1e4, 18, False)),
    ],
)
def test_rates_that_fixed_point_cannot_have_are_refused(rate: float, divisor: float, bits: int, fits: bool) -> None:
    if fits:
        assert Rates.from_rate(rate, divisor, 0.9, 0.0, bits).factor == pytest.approx(rate / divisor, rel=0.005)
        return
    with pytest.raises(UsageError, match="learning_rate") as caught:
        Rates.from_rate(rate, divisor, 0.9, 0.0, bits)
    assert caught.value.code == "E_JOB"


def test_a_rate_that_is_refused_ends_the_job_before_columns_are_sent(world: Any, attempt: Any) -> None:
    of = attempt({"learning_rate": 1e-12})
    with pytest.raises(UsageError, match="at least"):
        of(world())
    assert not of.sent(MaskedShares)


def test_a_regression_that_diverges_is_told(world: Any, attempt: Any) -> None:
    results = attempt({"task": "regression", "learning_rate": 3.0, "epochs": 8})(world(numbers=True))
    assert any("has diverged" in warning for warning in results[0].warnings)
    assert not attempt({"task": "regression", "learning_rate": 0.1})(world(numbers=True))[0].warnings
