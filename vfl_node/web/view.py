"""What the HTTP port needs of a node."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from vfl_node.errors import UsageError
from vfl_node.settings.retention import Retention
from vfl_node.web.asks import AskView
from vfl_node.web.extensions import ExtensionView
from vfl_node.web.health import HealthView
from vfl_node.web.ledger import LedgerView
from vfl_node.web.policy import PolicyView
from vfl_node.web.queue import QueueView
from vfl_node.web.schedules import ScheduleView
from vfl_node.web.trust import TrustView
from vfl_node.web.wanted import Wanted

JOB_ID = re.compile(r"[a-z0-9-]{1,100}")


class PredictionView(Protocol):
    """A request for predictions."""

    def ready(self) -> bytes | None:
        """The predictions as CSV, or None if they are not ready. Raises VflError if there will be none."""

    def call_when_over(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once :meth:`ready` has something to say: at once, or on another thread."""

    def withdraw(self) -> None:
        """Withdraw the request: nobody waits for it any more."""


class NodeView(HealthView, TrustView, AskView, PolicyView, LedgerView, ExtensionView, QueueView, ScheduleView, Protocol):
    """What a node shows; its methods may be called from several threads."""

    def jobs(self) -> list[dict[str, Any]]:
        """Every job, newest first.

        Each has id, name, purpose (or None), submitter, by (the person who submitted it here, or None), algorithm and protocol
        (None where there is none), state, phase, done, total, unit, loss, validation_loss, attacks (attack → AUC or None),
        judged (attack → rows), rebuilt (column of this party → attack → success, worst first), labels (attack on labels →
        figure), meters (as in the report, of those known), remark and note (lines for people: a permanent one and a current
        one), alone ({epoch, epochs} while a model of this party alone trains, else {}), parties, submitted, finished, took_s
        (seconds between the two, or None), error ({code, message, hint} or None), resumable, queue (as
        :func:`vfl_node.node.reasons.explain_wait` while it waits, or None), time_left_s ([least, most] while it runs, or
        None), report (whether there is one) and, of that, started, seconds, metrics, metric, leaks, leak_values and
        helped (:func:`vfl_node.report.summary.listed_figures`); leaks of a job under way are those seen so far.
        """

    def find_jobs(self, *asked: Wanted) -> list[dict[str, Any]]:
        """For each of those ``asked``: jobs (of the page), total (of all pages), counts (kind of :data:`KINDS` → how many).

        They also have safer: id → earlier jobs in which others could tell less (:func:`vfl_node.node.safer.find_safer`).
        """

    def job(self, job_id: str) -> dict[str, Any] | None:
        """One job, or None.

        Besides what :meth:`jobs` says of it, it has spec ({json, yaml}: the job as all parties agreed on it) and live: what
        happened since this node began it, and limits (meter → the most that the owner allows, or None), or None. The rest of
        live is as :meth:`vfl_node.execution.details.Details.copy` has it.
        """

    def submit(self, job_yaml: str, person: str | None, priority: int) -> dict[str, Any]:
        """Register a job of a ``person``; None: of the owner. Raises VflError."""

    def cancel(self, job_id: str) -> dict[str, Any]:
        """Cancel a job. Raises VflError."""

    def resume(self, job_id: str) -> dict[str, Any]:
        """Continue a job that failed and can be resumed. Raises VflError."""

    def prune(self, limits: Retention, *, models: bool, dry: bool) -> list[str]:
        """Remove ended jobs beyond these limits; returns their ids. ``models``: served ones, too. Raises VflError."""

    def predict(self, model: str, request: bytes) -> PredictionView:
        """Request predictions of known records (a CSV file) from the model of a job. Raises VflError."""

    def predict_new(self, model: str, request: bytes, person: str | None) -> dict[str, Any]:
        """Register a job of a ``person`` that aligns and predicts new records (a CSV file). Raises VflError."""

    def artefact(self, job_id: str, name: str) -> Path | None:
        """A file that a job wrote, or None."""

    def trace(self, job_id: str) -> bytes | None:
        """When this node sent, received and waited in a job, as ``trace.json``; None where nothing is known of that."""

    def metrics_text(self) -> bytes:
        """Figures in Prometheus' text format."""


def find_job(view: NodeView, job_id: str) -> dict[str, Any]:
    """One job. Raises UsageError (``E_UNKNOWN_JOB``) if there is none."""
    job = view.job(job_id) if JOB_ID.fullmatch(job_id) else None
    if job is None:
        raise UsageError("no such job here", code="E_UNKNOWN_JOB", hint="`vfl-node jobs`, or the page at /, lists them")
    return job
