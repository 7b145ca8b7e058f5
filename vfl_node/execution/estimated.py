"""An estimate of how well the joint attack finds the rows that a passive party makes up, from its own columns alone."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.configuration.registry import load
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.settings.protection import Protection
from vfl_node.training.section import JointAttack


def estimated_joint(job: Job, table: Table, protection: Protection, models: Mapping[str, str]) -> JointAttack | None:
    """The estimate for a passive party with this ``table``; None where it makes no row up, or its owner wants no attacks.

    It does not depend on which rows are shared. Where the job hides how many records there are (``align.padding``) there is
    none, as the peer waits and sees how long it takes, which depends on their number up to 2,048.
    """
    train, possible = job.train, "passive" in job.align.spec.synthetic_rows_at
    if not (train and train.estimated and possible and protection.membership) or job.align.padding:
        return None
    estimate = load(train.estimated, what=f"the estimate of the joint attack of trainer {train.algorithm!r}")
    found: JointAttack | None = estimate(table, train, models)
    return found
