"""What would make a result doubtful, or tell the peer much, as far as this party's table shows it before a job."""

from __future__ import annotations

from collections.abc import Sequence

from vfl_node.data.encoded import EncodedColumn
from vfl_node.data.profile import LabelProfile, TableProfile
from vfl_node.data.tables import Table
from vfl_node.execution import cautions, column_cautions
from vfl_node.job import Evaluate, Job
from vfl_node.settings.node import Settings


def doubts(seen: TableProfile, job: Job | None, columns: Sequence[EncodedColumn], settings: Settings) -> tuple[str, ...]:
    """What the owner should know of a table, in whole sentences.

    Args:
        seen: of the table.
        job: what is to be done with it; None: not known.
        columns: what training would do with each column; none where that is not known.
        settings: of this party.
    """
    table, label = seen.table, seen.label
    if table is None or (job and job.train is None):
        return ()
    bound = job.train.opens(job.evaluate, len(table)).warning if job and job.train else ""
    said = (bound,) * bool(bound) + column_cautions.table_cautions(table)
    if seen.whole:
        said += column_cautions.total_cautions(table)
        said += column_cautions.column_cautions(table)
        said += column_cautions.encoding_cautions(columns, said)
        said += _membership(table, job, settings)
    if table.labels is None or not isinstance(label, LabelProfile):
        return said
    classes = job.classes if job else max(2, *(k + 1 for k in label.counts))
    said += cautions.label_cautions(table, classes)
    if not seen.whole:
        return said
    evaluate = job.evaluate if job else Evaluate()
    said += cautions.row_cautions(len(table), evaluate)
    if label.rate is not None:
        share = evaluate.test_fraction or 1
        said += cautions.positive_cautions(round(share * label.counts.get(1, 0)), round(share * len(table)), about="About")
    return said


def _membership(table: Table, job: Job | None, settings: Settings) -> tuple[str, ...]:
    """What an estimate of the joint attack gives rise to, at a passive party that may have to make rows up."""
    if job is None or job.train is None or settings.role != "passive":
        return ()
    from vfl_node.execution.joint import estimate_joint  # loads torch

    found = estimate_joint(job, table, settings.protection, settings.models)
    return cautions.membership_cautions(found) if found else ()
