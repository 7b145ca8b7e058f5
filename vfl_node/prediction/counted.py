"""The rows for which predictions were exchanged, counted for metrics beside what a service stores."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.job import Job
from vfl_node.prediction.jobs import predict_of
from vfl_node.process.counters import PREDICTED_ROWS
from vfl_node.training.predictor import ServiceCount, ServiceTally


class CountedTally:
    """A :class:`~vfl_node.training.predictor.ServiceTally` that also counts for metrics: whole batches, as they are exchanged.

    Args:
        tally: where the count is stored.
        job: that predicts.
        own: this party's name.
    """

    def __init__(self, tally: ServiceTally, job: Job, own: str) -> None:
        self._tally, self._job, self._own = tally, job, own
        self._counted = 0  # batches

    def read(self) -> ServiceCount | None:
        """What was written last; None if nothing was."""
        found = self._tally.read()
        self._counted = found.batches if found else 0
        return found

    def write(self, count: ServiceCount) -> None:
        """Store ``count``."""
        count_rows(self._job, self._own, max(0, count.batches - self._counted) * count.rows)
        self._counted = count.batches
        self._tally.write(count)


def count_rows(job: Job, own: str, rows: int) -> None:
    """Count so many rows of a job that predicts, with each party that this one asks, or with the one that asks it."""
    asker = job.asker
    peers: Sequence[str] = job.parties.others(own) if asker in (own, None) else [asker or ""]
    for peer in peers:
        PREDICTED_ROWS.series(predict_of(job).model, peer).inc(rows)
