"""Without noise a job opens rounded figures, which are those of plain counting over the shared records."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import chi2_contingency
from sklearn.metrics import mutual_info_score, roc_auc_score

from benchmarks.sessions import session
from tests.training.statistics.test_refusals import JOB
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.job import Job
from vfl_node.job.costs import Beside
from vfl_node.settings.limits import Limits
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.figures import promise_area
from vfl_node.training.statistics.inputs import own_score
from vfl_node.training.statistics.trainer import StatisticsTrainer

EXACT = {"epsilon": None}


@pytest.mark.parametrize(("parties", "protocol"), [(2, "psu"), (2, "apsi"), (3, "psu")])
def test_figures_are_those_of_shared_records(world: Any, attempt: Any, parties: int, protocol: str) -> None:
    over, of = world(parties, protocol, people=700), attempt(EXACT)
    results = of(over)
    for name, result in zip(over.data, results, strict=True):
        own = [each for each in result.section.columns if each.party == name]
        for each, (counts, held_out) in zip(own, of.counts(over)[name].swapaxes(0, 1), strict=True):
            totals = counts.sum(axis=0)
            weights = np.diff(np.log((counts + 0.5) / totals), axis=1)[:, 0]
            filled = counts.sum(axis=1) > 0
            small = (counts < 5).any(axis=1)
            assert (
                each.iv == pytest.approx(float(np.diff(counts / totals, axis=1)[:, 0] @ weights), abs=2e-3)
                or small[filled].any()
            )
            shown = dict(zip((*range(4), -1), (one.woe for one in each.bins), strict=True))
            assert all(shown[place] == pytest.approx(weights[place], abs=0.0051) for place in range(4) if not small[place])
            assert each.ks == pytest.approx(np.abs(np.diff(np.cumsum(counts / totals, axis=0), axis=1)).max(), abs=6e-4)
            assert each.chi2 == pytest.approx(chi2_contingency(counts[filled], correction=False).statistic, abs=0.1)
            both = [group.sum(axis=1) for group in (held_out, counts)]
            logs = [np.log((group + 0.5) / group.sum()) for group in both]
            shares = [group / group.sum() for group in both]
            assert each.stability == pytest.approx(float((shares[0] - shares[1]) @ (logs[0] - logs[1])), abs=1e-3)
            assert each.freedom is None
            assert {one.counts for one in each.bins} == {None}
    assert results[0].section.privacy.epsilon is None
    told = {(each.party, each.number): (each.iv, each.ks, each.chi2, each.stability) for each in results[0].section.columns}
    for result in results[1:]:
        for each in result.section.columns:
            assert told[each.party, each.number] == (each.iv, each.ks, each.chi2, each.stability)


def test_worth_is_the_mutual_information_given_the_own_score(world: Any, attempt: Any) -> None:
    over, of = world(2, "psu", people=900), attempt({**EXACT, "worth": True})
    active, passive = of(over)
    (table, view), (other, theirs) = over.data.values()
    rows = np.array([row for row in of.plan(over).groups[0] if over.both[row]])
    groups = own_score(CountedColumns.fit(table, 4, 5), table, table, 5)[view.rows[rows]]
    labels = table.labels[view.rows[rows]]
    bins = CountedColumns.fit(other, 4, 5).find_bins(other)[theirs.rows[rows]]
    found = [each for each in active.section.columns if each.party == "lab"]
    for each, of_bins in zip(found, bins.T, strict=True):
        expected = sum(
            (groups == group).mean() * mutual_info_score(of_bins[groups == group], labels[groups == group]) / math.log(2)
            for group in np.unique(groups)
        )
        assert each.worth == pytest.approx(expected, abs=1e-3)
        assert each.area > 0.5
    assert [each.worth for each in passive.section.columns] == [each.worth for each in found]
    assert {each.area for each in passive.section.columns} == {None}
    assert {each.worth for each in active.section.columns if each.party == "clinic"} == {None}


def test_bits_promise_an_area_as_of_two_normal_classes() -> None:
    """By 200,000 draws: a score with a distance of 1, and one more with .5."""
    rng, share = np.random.default_rng(0), 0.3
    labels = (rng.random(200_000) < share).astype(int)
    own, more = rng.normal(size=200_000) + labels, rng.normal(size=200_000) + 0.5 * labels
    cut = np.digitize(more, np.quantile(more, np.arange(1, 20) / 20))
    tenths = np.digitize(own, np.quantile(own, np.arange(1, 10) / 10))
    bits = sum((tenths == k).mean() * mutual_info_score(cut[tenths == k], labels[tenths == k]) for k in range(10)) / math.log(2)
    promised = promise_area(roc_auc_score(labels, own), bits, share)
    assert promised == pytest.approx(roc_auc_score(labels, own + 0.5 * more), abs=0.006)
    assert promise_area(0.7, 0.0, 0.3) == pytest.approx(0.7)


def test_messages_have_the_same_lengths_whatever_the_tables_have(world: Any, attempt: Any) -> None:
    found = []
    for over in (world(2, "psu"), world(2, "psu", seed=4)):
        of = attempt({**EXACT, "worth": True})
        of(over)
        found.append([(one.sender, one.receiver, len(getattr(one.message, "values", b""))) for one in of.transcript])
    assert found[0] == found[1]


def test_an_estimate_is_what_is_sent(world: Any, attempt: Any) -> None:
    over, of = world(2, "psu"), attempt({**EXACT, "worth": True})
    active, passive = of(over)
    job = of.job(over)
    cost = job.train.make_plan(1, Beside(columns=(3, 4))).cost(job.evaluate, len(over), "psu")
    assert (cost.active_bytes, cost.passive_bytes) == (active.section.bytes, passive.section.bytes)
    assert cost.coordinator_bytes == active.section.dealer_bytes + passive.section.dealer_bytes


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_an_owner_who_wants_more_records_together_refuses(world: Any, attempt: Any, epsilon: float | None) -> None:
    """Where noise does not cover single records."""
    job = attempt({"epsilon": epsilon}).job(world(2, "psu"))
    own = session("clinic", {}, Randomness(bytes(32)), job=job, limits=Limits(least_rows=50))
    refused = pytest.raises(PolicyError, match="least_rows") if epsilon is None else nullcontext()
    with refused:
        StatisticsTrainer().prepare(own)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"correlations": True, "epsilon": None}, "needs statistics.epsilon"),
        ({"worth": True}, "needs statistics.epsilon: null"),
    ],
)
def test_jobs_that_are_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Job.model_validate({**JOB, "statistics": section})
