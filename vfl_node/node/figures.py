"""What a list of jobs shows of a report, kept in the index when a job ends: so that a list reads no report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from vfl_node.errors import StateError
from vfl_node.node.record import Record
from vfl_node.node.states import STANDING
from vfl_node.node.store import Store
from vfl_node.report.summary import listed_figures


def attach_figures(store: Store, record: Record) -> Record:
    """``record`` with the figures of its report; without any where it has none, or none that can be read."""
    figures = None
    if store.has_report(record):
        with suppress(OSError, ValueError, StateError):  # pruned meanwhile, or damaged: who opens it is told
            path = store.outcome(record).artefact("report.json")
            figures = json.dumps(listed_figures(json.loads(path.read_bytes())), separators=(",", ":"))
    return replace(record, figures=figures)


def fill_in(store: Store, records: Sequence[Record]) -> list[Record]:
    """``records``, those with figures that ended before the index had any; these are stored for the next time."""
    old = [record for record in records if record.figures is None and record.state not in STANDING]
    read = {record: attach_figures(store, record) for record in old}
    found = {record: full.figures for record, full in read.items() if full.figures is not None}
    if found:
        with suppress(StateError):  # then they are read again the next time
            store.keep_figures(found)
    return [read.get(record, record) for record in records]
