"""Without noise a job opens rounded figures, which are those of plain counting over the shared records."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.metrics import mutual_info_score, roc_auc_score

from benchmarks.sessions import session
from tests.declared import undeclared
from tests.training.shares_attempts import LEAST_ROWS
from tests.training.statistics.test_exact import Plain
from tests.training.statistics.test_refusals import JOB
from tests.training.statistics.test_worth import plain as find_bits
from vfl_node.crypto.randomness import Randomness
from vfl_node.crypto.shares.machine import ShareMachine
from vfl_node.crypto.shares.steps import Lifted
from vfl_node.crypto.shares.values import Shared
from vfl_node.data.tables import NumericColumn, Table
from vfl_node.errors import PolicyError
from vfl_node.job import Job
from vfl_node.job.costs import Beside
from vfl_node.settings.limits import Limits
from vfl_node.training.statistics import exact, pooling, worth
from vfl_node.training.statistics.columns import CountedColumns
from vfl_node.training.statistics.exact_plan import ExactPlan
from vfl_node.training.statistics.figures import promise_area
from vfl_node.training.statistics.inputs import own_score
from vfl_node.training.statistics.reveals import declare
from vfl_node.training.statistics.trainer import StatisticsTrainer

EXACT = {"epsilon": None}


@pytest.mark.parametrize(("parties", "protocol"), [(2, "psu"), (2, "psi"), (3, "psi")])
def test_figures_are_those_of_shared_records(world: Any, attempt: Any, parties: int, protocol: str) -> None:
    over, of = world(parties, protocol, people=700), attempt(EXACT)
    results = of(over)
    for name, result in zip(over.data, results, strict=True):
        own = [each for each in result.section.columns if each.party == name]
        for each, (counts, held_out) in zip(own, of.counts(over)[name].swapaxes(0, 1), strict=True):
            plain = Plain(np.concatenate([counts, held_out], axis=1), LEAST_ROWS)
            shown = dict(zip((*range(4), -1), (one.woe for one in each.bins), strict=True))
            assert all(shown[place] == pytest.approx(plain.evidence[place], abs=0.0051) for place in shown)
            assert each.iv == pytest.approx(plain.information, abs=6e-4)
            assert each.ks == pytest.approx(plain.distance, abs=6e-4)
            assert each.chi2 == pytest.approx(plain.chi_square, abs=0.1)
            assert each.stability == pytest.approx(plain.stability, abs=6e-4)
            assert each.chi2 > 0
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
    labels = table.labels[view.rows[rows]].astype(int)
    bins = CountedColumns.fit(other, 4, 5).find_bins(other)[theirs.rows[rows]]
    found = [each for each in active.section.columns if each.party == "lab"]
    for each, of_bins in zip(found, bins.T, strict=True):
        counts = np.zeros((5, 10, 2), np.int64)
        np.add.at(counts, (of_bins, groups, labels), 1)
        assert each.worth == pytest.approx(max(0.0, find_bits(counts.reshape(5, 20), LEAST_ROWS)), abs=1e-3)
        assert each.area > active.section.area_alone - 1e-9 > 0.5
    assert max(each.worth for each in found) > 0.02
    assert [each.worth for each in passive.section.columns] == [each.worth for each in found]
    assert {each.area for each in passive.section.columns} == {None} == {passive.section.area_alone}
    assert {each.worth for each in active.section.columns if each.party == "clinic"} == {None}


async def keep_all(machine: ShareMachine, counts: Shared, plan: ExactPlan, judge: Any = None) -> pooling.Pooled:
    """As if there were no small bins."""
    pools = plan.add_up(counts).times(0)
    always, never = (
        Lifted(np.full(each.shape[1:], bit, np.uint8), np.zeros(each.shape[1:], np.uint64))
        for bit, each in ((1, counts), (0, pools))
    )
    return pooling.Pooled(plan.insert_pools(counts, pools), (always, always), (never, never))


def with_labels(over: Any, labels: Any) -> Any:
    table, view = over.data["clinic"]
    return replace(over, data={**over.data, "clinic": (replace(table, labels=labels.astype(np.float32)), view)})


def with_columns(over: Any, *columns: np.ndarray) -> Any:
    table, view = over.data["lab"]
    made = {f"made-{number}": NumericColumn(values) for number, values in enumerate(columns)}
    return replace(over, data={**over.data, "lab": (Table(table.ids, made, None), view)})


@pytest.mark.parametrize("pools", [True, False])
def test_bins_of_few_records_tell_nothing_of_them(world: Any, attempt: Any, monkeypatch: Any, pools: bool) -> None:
    """A passive party sets four shared records apart, and the label of one is another one. Without pools it sees that."""
    if not pools:
        monkeypatch.setattr(exact, "pool_small", keep_all)
        monkeypatch.setattr(worth, "pool_small", keep_all)
    over = world(2, "psu", people=300)
    shared = np.flatnonzero(over.both)[:4]
    values = np.random.default_rng(0).integers(0, 2, len(over.data["lab"][0])).astype(float)
    values[over.data["lab"][1].rows[shared]] = 2
    labels = over.data["clinic"][0].labels.copy()
    found = []
    for label in (0, 1):
        labels[over.data["clinic"][1].rows[shared]] = [0, 1, 0, label]
        of = attempt({**EXACT, "worth": True}, evaluate={"test_fraction": 0.0})
        (column,) = of(with_columns(with_labels(over, labels), values))[1].section.columns
        found.append([column.iv, column.ks, column.chi2, *(one.woe for one in column.bins)])
    assert (found[0] == found[1]) == pools


@pytest.mark.parametrize("pools", [True, False])
def test_an_active_party_with_few_records_of_a_label_gets_nothing(
    world: Any, attempt: Any, monkeypatch: Any, pools: bool
) -> None:
    """It has a label 1 alone, and without pools it gets the bins of that record: each figure says how many have another one."""
    if not pools:
        monkeypatch.setattr(exact, "pool_small", keep_all)
        monkeypatch.setattr(worth, "pool_small", keep_all)
    over = world(2, "psu", people=300)
    labels = np.zeros(len(over.data["clinic"][0]))
    labels[over.data["clinic"][1].rows[np.flatnonzero(over.both)[0]]] = 1
    active, _ = attempt({**EXACT, "worth": True}, evaluate={"test_fraction": 0.0})(with_labels(over, labels))
    found = [
        figure for each in active.section.columns for figure in (each.iv, each.ks, each.chi2, *(one.woe for one in each.bins))
    ]
    assert (not any(found)) == pools
    assert not pools or not any(each.worth for each in active.section.columns)


def test_two_columns_that_differ_in_one_record_tell_of_it(world: Any, attempt: Any) -> None:
    """What pools cannot hide: why each owner must allow this, and is warned."""
    over = world(2, "psu", people=300)
    record = over.data["lab"][1].rows[np.flatnonzero(over.both)[0]]
    first = np.random.default_rng(0).integers(0, 2, len(over.data["lab"][0])).astype(float)
    second = first.copy()
    second[record] = 1 - second[record]
    of = attempt(EXACT, evaluate={"test_fraction": 0.0})
    one, other = of(with_columns(over, first, second))[1].section.columns
    assert one.ks != other.ks
    exposure = of.job(over).train.opens(of.job(over).evaluate)
    assert exposure.unbounded == "rounded-statistics"
    assert "two columns of one job" in exposure.warning


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_jobs_without_noise_count_as_trainings(world: Any, attempt: Any, epsilon: float | None) -> None:
    job = attempt({"epsilon": epsilon}).job(world(2, "psu"))
    assert job.train.opens(job.evaluate).anew == (epsilon is None)


@pytest.mark.parametrize("section", [{}, EXACT, {**EXACT, "worth": True}, {"correlations": True}])
def test_what_is_learnt_was_declared(world: Any, attempt: Any, section: dict[str, Any]) -> None:
    over, of = world(2, "psu"), attempt(section)
    results, job = of(over), of.job(over)
    declared = {(each.to, each.what): each.bound for each in declare(job)}
    for result in results:
        assert not undeclared(job, result.disclosures)
    for name, says in (("lab", "statistics"), ("clinic", "statistics of others")):
        learnt = next(each.text for each in results[0].disclosures[name] if each.what == says)
        for text in (declared[name, says], learnt):
            assert ("bits" in text) == ("worth" in section)
            assert ("rounded" in text) == ("epsilon" in section)


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
