"""What a report has of an alignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from vfl_node.alignment.alignment import Alignment, LinkageFacts
from vfl_node.data.merged import MergedRows
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.report.sections import AlignmentSizes, RowsMerged
from vfl_node.transport.pipe import Traffic

T = TypeVar("T")


def describe_sizes(
    job: Job,
    alignment: Alignment | None,
    seconds: float | None,
    warnings: tuple[str, ...],
    reused: str | None,
    records: int | None,
    merged: MergedRows | None,
    traffic: Mapping[str, Traffic],
) -> AlignmentSizes | None:
    """The section of an alignment; None where there is none. Arguments as of :func:`vfl_node.report.envelope.build`."""
    if alignment is None or seconds is None or records is None:
        return None
    return AlignmentSizes(
        protocol=ALIGNMENTS.lasting(job.align.protocol),
        group=alignment.group,
        records=records,
        merged=None if merged is None else RowsMerged(**{key: getattr(merged, key) for key in RowsMerged.model_fields}),
        ours=alignment.ours,
        theirs=_arrange_by_peer({name: facts.records for name, facts in alignment.peers.items()}),
        padded=_arrange_by_peer({name: facts.padded for name, facts in alignment.peers.items()}),
        rows=len(alignment),
        union=alignment.union,
        intersection=alignment.common,
        candidates=alignment.candidates,
        **({} if alignment.linkage is None else _linkage(alignment.linkage)),
        reused=reused,
        warnings=warnings,
        seconds=seconds,
        bytes_sent=traffic["align"].bytes_sent,
        bytes_received=traffic["align"].bytes_received,
    )


def _linkage(facts: LinkageFacts) -> dict[str, Any]:
    """What the report has of an alignment by similarity."""
    return {name: value for name, value in asdict(facts).items() if name != "coordinator_learnt"}


def _arrange_by_peer(figures: Mapping[str, T]) -> Any:
    """The figure of the only peer, or peer → figure."""
    first, *others = figures.values()
    return figures if others else first
