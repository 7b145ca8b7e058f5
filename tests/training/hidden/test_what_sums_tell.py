"""Sums are opened over enough records alone, and rounded; numbers that alignment hides are not told by what a job says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from pydantic import ValidationError

from tests.training.hidden.test_refusals import with_values
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import StateError
from vfl_node.training.hidden.results import UNMEASURED
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext

TENTH = {"test_fraction": 0.1}


def opened(results: Any) -> bool:
    """Whether sums were, and all say the same of it."""
    told = [any(said.startswith(UNMEASURED[:20]) for said in result.warnings) for result in results]
    learnt = [any(entry.what == "metrics" for entry in result.disclosures["clinic"]) for result in results]
    assert len(set(told)) == len(set(learnt)) == 1
    assert told[0] != learnt[0] == (results[0].metrics["auc"] is not None)
    return learnt[0]


def test_few_held_out_records_are_not_measured(world: Any, attempt: Any) -> None:
    """About 20 shared ones are held out."""
    for least, enough in ((5, True), (25, False), (0, True)):
        of = attempt({"least_rows": least}, TENTH)
        results = of(world(people=400))
        assert opened(results) == enough, least
        assert len(results[0].held_out) == 37
        assert results[0].local_metrics["auc"] is not None
        assert all(said.measures == enough for said in of.sent(DealingTerms))


def with_labels(over: Any, labels: np.ndarray) -> Any:
    table, view = over.data["clinic"]
    return replace(over, data={**over.data, "clinic": (replace(table, labels=labels), view)})


def test_labels_that_few_held_out_records_have_are_not_counted(world: Any, attempt: Any) -> None:
    """The number of shared ones of them would tell which these are: where all or none are shared, exactly."""
    over = world(people=400)
    labels = over.data["clinic"][0].labels
    positive = np.flatnonzero(labels == 1)
    rare = labels.copy()
    rare[positive[12:]] = 0
    of = {"least_rows": 8}, {"test_fraction": 0.3}
    assert opened(attempt(*of)(over))
    assert not opened(attempt(*of)(with_labels(over, rare)))
    assert opened(attempt({"least_rows": 0}, of[1])(with_labels(over, rare)))


def test_a_class_without_records_has_no_area_and_the_report_says_so(world: Any, attempt: Any) -> None:
    over = world(people=400, classes=3)
    labels = np.minimum(over.data["clinic"][0].labels, 1)
    results = attempt({"classes": 3}, {"test_fraction": 0.3})(with_labels(over, labels))
    assert results[0].metrics["auc"] is None
    assert any("A class has no held-out shared record" in said for said in results[0].warnings)


@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_what_several_passive_parties_may_not_know_is_not_shared_with_them(world: Any, attempt: Any, protocol: str) -> None:
    of = attempt(evaluate={"test_fraction": 0.25, "share_with_passive": True})
    if protocol == "psi":
        assert of(world(3, protocol, people=400))[2].population["rows"] > 0
        return
    with pytest.raises(ValidationError, match="several passive parties"):
        of.job(world(3, protocol))


def test_the_coordinator_learns_how_many_are_shared_to_two_digits(world: Any, attempt: Any) -> None:
    over, of = world(people=400), attempt()
    of(over)
    (said, *_), true = of.sent(DealingTerms), over.both.mean()
    share = said.divisor / said.batch_rows
    assert share == pytest.approx(float(f"{true:.1e}"))
    assert share != pytest.approx(true, abs=1e-5)
    whole = attempt()
    whole(world(protocol="psi"))
    assert whole.sent(DealingTerms)[0].divisor == whole.sent(DealingTerms)[0].batch_rows


@pytest.mark.parametrize("party", ["clinic", "lab"])
def test_a_record_that_stands_out_alone_has_no_column(world: Any, attempt: Any, party: str) -> None:
    """Enough records differ, and one has nearly all of the sum of squares."""
    place = ("clinic", "lab").index(party)
    for largest, stays in ((1.5, True), (1e3, False)):
        over = world()
        rng = np.random.default_rng(4)

        def skewed(values: np.ndarray, largest: float = largest, rng: Any = rng) -> None:
            values[:] = 0
            values[:24] = rng.uniform(0.5, 1, 24)
            values[0] = largest

        result = attempt({"scaling": "unit"})(with_values(over, party, skewed))[place]
        assert (len(result.section.dropped) == 0) == stays
    kept = attempt({"scaling": "unit", "least_rows": 0})(over)[place]
    assert not kept.section.dropped


def test_more_columns_in_a_later_attempt_are_other_values(world: Any, attempt: Any) -> None:
    """Digests are said, not shown: a party might say an old one. Fresh masks would show the same first weights once more."""
    over, first = world(), attempt()
    first(over)
    table, view = over.data["clinic"]
    wider = {**table.columns, "more": NumericColumn(np.arange(len(table), dtype=np.float64))}
    changed = replace(over, data={**over.data, "clinic": (Table(table.ids, wider, table.labels), view)})
    said = dict(zip(over.data, first.sent(ShareContext)[0].digests, strict=True))

    def digest(own: Any, _mark: bytes) -> bytes:
        return said["clinic" if own.targets.any() else "lab"]

    with mock.patch("vfl_node.training.hidden.trainer.digest_of", digest), pytest.raises(StateError) as caught:
        first.again(changed, resume_from=None)(changed)
    assert caught.value.code == "E_REPLAY"
