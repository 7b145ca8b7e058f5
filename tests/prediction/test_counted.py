"""Rows of predictions are counted as they are exchanged, once, over breaks and restarts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vfl_node.job import Job, parse_job
from vfl_node.prediction.counted import CountedTally
from vfl_node.process.counters import PREDICTED_ROWS
from vfl_node.training.predictor import ServiceCount

PARTIES = '"parties": {"active": "clinic", "passive": ["lab", "bank"]}'
JOB = f'{{"name": "asks", {PARTIES}, "predict": {{"model": "trial-1", "to": "active"}}}}'


class InMemory:
    """A tally without a file."""

    count: ServiceCount | None = None

    def read(self) -> ServiceCount | None:
        return self.count

    def write(self, count: ServiceCount) -> None:
        self.count = count


@pytest.fixture
def job() -> Iterator[Job]:
    forget_counts()  # of tests before these in the same process
    yield parse_job(JOB, source="the test")
    forget_counts()


def forget_counts() -> None:
    PREDICTED_ROWS.metric.clear()
    PREDICTED_ROWS._known.clear()


def counted() -> dict[tuple[str, ...], float]:
    return {labels: series._value.get() for labels, series in PREDICTED_ROWS._known.items()}


def test_only_new_batches_count(job: Job) -> None:
    stored = InMemory()
    for batches in (2, 3):
        tally = CountedTally(stored, job, "lab")  # begun again after a restart
        tally.read()
        tally.write(ServiceCount(64, batches=batches))
        tally.write(ServiceCount(64, batches=batches))
    assert counted() == {("trial-1", "clinic"): 192}


def test_who_asks_counts_with_each_party_that_is_asked(job: Job) -> None:
    CountedTally(InMemory(), job, "clinic").write(ServiceCount(10, batches=1))
    assert counted() == {("trial-1", "lab"): 10, ("trial-1", "bank"): 10}
