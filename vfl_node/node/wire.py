"""What the owner of a node that looks through its messages (``audit.wire``) finds of a job, kept beside the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import structlog

from vfl_node.data.named import data_of
from vfl_node.errors import VflError
from vfl_node.execution.outcome import JobOutcome
from vfl_node.execution.planted import PlantedValues, draw_values
from vfl_node.job import Job
from vfl_node.node.record import Record
from vfl_node.process.counters import MOVED
from vfl_node.process.files import read_checked, write_checked
from vfl_node.settings.node import Settings
from vfl_node.transport.trace import Trace
from vfl_node.transport.wire_tap import WireTap

log = structlog.get_logger()


def make_trace(settings: Settings, record: Record) -> Trace:
    """The trace of a job; one that looks through its messages where the settings say so."""
    return WireTap(lambda: plant(settings, record.job), record.id) if settings.audit.wire else Trace()


def keep_wire(trace: Trace, outcome: JobOutcome, job_id: str) -> None:
    """Keep what was found, beside what was found of the job before. The job has ended. Raises OSError, StateError."""
    try:
        if isinstance(trace, WireTap) and (told := trace.tell())["flows"]:
            write_checked(outcome.wire, json.dumps([*read_wire(outcome), told]).encode())
    finally:
        MOVED.forget(job_id)


def compare_bytes(run: Mapping[str, Any]) -> int | None:
    """How many bytes ``vfl_peer_bytes_total`` counts more than are known of, in one run; None: an earlier version looked."""
    return int(run["metric"]["bytes"]) - sum(known_bytes(run).values()) if "metric" in run else None


def known_bytes(run: Mapping[str, Any]) -> dict[str, int]:
    """What is known of the bytes of ``vfl_peer_bytes_total`` in one run, of which the tap has told since it compares.

    Frames that belong to no job are not known: each is of a conversation that was not looked at.
    """
    others = {what: size for what, size in run["metric"]["others"].items() if what != "Frame"}
    return {"this job": sum(flow["bytes"] for flow in run["flows"])} | others


def read_wire(outcome: JobOutcome) -> list[dict[str, Any]]:
    """What was found in a job, by each process that has worked on it (:meth:`WireTap.tell`); nothing: it was not looked at.

    Raises:
        StateError: it is damaged (``E_STATE_CORRUPT``).
    """
    try:
        found: list[dict[str, Any]] = json.loads(read_checked(outcome.wire))
    except FileNotFoundError:
        return []
    return found


def plant(settings: Settings, job: Job | None) -> PlantedValues | None:
    """What is searched for in a job; None: nothing, as there is no table, or it cannot be read."""
    if settings.role == "coordinator":
        return None
    try:
        data = data_of(settings, job)
        ids = (data.id,) if isinstance(data.id, str) else data.id
        return draw_values(data, party=settings.name, ids=ids, label=data.labels.column)
    except VflError as error:
        log.warning("what is sent is not searched for values of the table", code=error.code, reason=error.message)
        return None
