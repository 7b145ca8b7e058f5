"""Whether parties learnt more than was declared before the job: asked of every report that a test makes in its process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vfl_node.job import Job
from vfl_node.ledger import UNDECLARED
from vfl_node.trust import manifest


def undeclared(job: Job, learnt: Mapping[str, Sequence[Any]], trained: Job | None = None) -> set[tuple[str, str]]:
    """(Party, keyword) of what a report says that it learnt, and the job's manifest would not have said."""
    declared = manifest.keywords(manifest.declare(job, trained))
    if any(what == UNDECLARED for _, what in declared):  # a trainer that a test has made up
        return set()
    return {(name, entry.what) for name, entries in learnt.items() for entry in entries} - declared


def leaving_out(what: str, declarations: Iterable[Any]) -> list[Any]:
    """``declarations`` as they would be if nobody had thought of ``what``."""
    return [each for each in declarations if each.what != what]
