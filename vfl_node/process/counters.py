"""What this process has counted since it started, for Prometheus (:mod:`vfl_node.node.prometheus` shows it).

Everything here starts at 0 when a node starts. Values of labels come from a bounded set of this program's own words, and from
names in this node's settings. Where they could be more, for example codes that a peer says, only so many are told apart:
the rest are counted as :data:`OTHER`.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import MutableMapping
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics

OTHER = "other"
"""Value of each label of what is counted together."""

OTHER_JOBS = "other jobs"
"""Whose bytes those are that are of a job, but not of the one that is asked about."""

COUNTED = CollectorRegistry()
"""All counters and histograms."""

_CODE = re.compile(r"E_[A-Z_]{1,40}")

M = TypeVar("M", Counter, Histogram)

disable_created_metrics()  # type: ignore[no-untyped-call] # they would double the number of series, and Prometheus does not need them
ProcessCollector(registry=COUNTED)


class Family(Generic[M]):
    """A metric of which only so many series are kept. Safe to use from several threads.

    Args:
        metric: with at least one label.
        most: so many series, one of which counts all others.

    Attributes:
        metric: the same.
    """

    def __init__(self, metric: M, most: int) -> None:
        self.metric: M = metric
        self._most = most
        self._known: dict[tuple[str, ...], M] = {}
        self._lock = threading.Lock()

    def series(self, *labels: str) -> M:
        """The series with these values of the labels, in the order of the metric."""
        series = self._known.get(labels)
        if series is None:
            with self._lock:
                if len(self._known) >= self._most - 1 and labels not in self._known:
                    labels = (OTHER,) * len(labels)
                series = self._known[labels] = self.metric.labels(*labels)
        return series


def _counter(name: str, text: str, labels: list[str], most: int) -> Family[Counter]:
    return Family(Counter(name, text, labels, registry=COUNTED), most)


def _histogram(name: str, text: str, labels: list[str], buckets: list[float], most: int) -> Family[Histogram]:
    return Family(Histogram(name, text, labels, buckets=buckets, registry=COUNTED), most)


_JOB_S = [4.0**power for power in range(9)]
_REQUEST_S = [0.3, 3.0]

JOBS_ENDED = _counter(
    "vfl_jobs_ended_total", "Jobs that have ended here, some of which may go on", ["result", "code", "protocol", "trainer"], 60
)
PHASE_SECONDS = _histogram(
    "vfl_job_phase_duration_seconds", "How long jobs were in a phase, without waits for parties", ["phase"], _JOB_S, 10
)
WAIT_SECONDS = _histogram("vfl_job_wait_seconds", "How long jobs waited at a time, and what for", ["reason"], _JOB_S, 6)
CONSENTS = _counter("vfl_consents_total", "Answers of this party to jobs", ["verdict", "by"], 10)
REFUSALS = _counter("vfl_refusals_total", "Jobs that were refused: here (own), or by a peer", ["code", "side"], 40)
ERRORS = _counter("vfl_errors_total", "Warnings and errors in the log, by their code", ["code"], 50)
PEER_BYTES = _counter("vfl_peer_bytes_total", "Bytes of messages, without what TLS and HTTP/2 add", ["peer", "direction"], 50)
PEER_MESSAGES = _counter("vfl_peer_messages_total", "Messages to and from peers", ["peer", "direction", "type"], 240)
LINKS_LOST = _counter("vfl_peer_reconnects_total", "Links with a peer that broke and were begun again", ["peer", "cause"], 40)
CALLS_REFUSED = _counter("vfl_calls_refused_total", "Calls at the port for peers that were refused", ["rpc", "code"], 30)
HTTP_REQUESTS = _counter("vfl_http_requests_total", "Requests at the HTTP port", ["route", "method", "status"], 145)
HTTP_SECONDS = _histogram(
    "vfl_http_request_duration_seconds", "Time until an answer of the HTTP port began", ["route"], _REQUEST_S, 40
)
LOGINS = _counter("vfl_logins_total", "Links that were used, and tokens that were refused", ["how", "result"], 6)
PREDICTED_ROWS = _counter("vfl_predictions_rows_total", "Rows for which predictions were exchanged", ["model", "peer"], 24)
PREDICTION_SECONDS = _histogram(
    "vfl_prediction_duration_seconds", "Time from a request for predictions to its answer", ["model"], _REQUEST_S, 12
)


class MovedBytes:
    """Counts ``vfl_peer_bytes_total``, and of what its bytes are. Safe to use from several threads."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def add(self, peer: str, direction: str, size: int, kind: str, job_id: str) -> None:
        """A message of ``size`` bytes; ``kind``: its type, where it belongs to no job."""
        with self._lock:
            PEER_BYTES.series(peer, direction).inc(size)
            self._of[kind, job_id] = self._of.get((kind, job_id), 0) + size

    def read(self, job_id: str) -> tuple[int, dict[str, int]]:
        """The metric, over all its series; and how much of it is not of this job: of other jobs, and of each other type."""
        with self._lock:
            total = sum(sample.value for metric in PEER_BYTES.metric.collect() for sample in metric.samples)
            others: dict[str, int] = {}
            for (kind, job), size in self._of.items():
                if not job or job != job_id:
                    key = OTHER_JOBS if job else kind
                    others[key] = others.get(key, 0) + size
            return int(total), others

    def forget(self, job_id: str) -> None:
        """A job has ended: its bytes are counted with those of others that have."""
        with self._lock:
            for kind, job in [key for key in self._of if key[1] == job_id]:
                self._of[kind, OTHER_JOBS] = self._of.get((kind, OTHER_JOBS), 0) + self._of.pop((kind, job))


MOVED = MovedBytes()


def code_label(code: str | None) -> str:
    """``code`` where it has the form of one; :data:`OTHER` where it does not; empty without one."""
    return "" if not code else code if _CODE.fullmatch(code) else OTHER


def count_log_line(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A structlog processor: counts warnings and errors that have a code."""
    if method in ("warning", "error", "critical", "exception"):
        code = event.get("code") or ("E_INTERNAL" if method == "exception" else None)
        if code:
            ERRORS.series(code_label(str(code))).inc()
    return event


class Stopwatch:
    """How long a job is in each phase, and waits for what. Not safe to use from several threads at once."""

    def __init__(self) -> None:
        self.waits_for = ""
        """What it waits for at the moment; empty if it does not wait."""
        self._phase = ""
        self._since = time.monotonic()

    def begin(self, phase: str) -> None:
        """It is in this phase from now on, and waits for nothing; empty: in none."""
        if self.waits_for or phase != self._phase:
            self._stop()
            self._phase, self.waits_for = phase, ""

    def wait(self, reason: str) -> None:
        """It waits from now on. The phase goes on after that."""
        if reason != self.waits_for:
            self._stop()
            self.waits_for = reason

    def _stop(self) -> None:
        now = time.monotonic()
        if self.waits_for:
            WAIT_SECONDS.series(self.waits_for).observe(now - self._since)
        elif self._phase:
            PHASE_SECONDS.series(self._phase).observe(now - self._since)
        self._since = now
