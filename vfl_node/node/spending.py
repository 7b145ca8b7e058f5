"""What hidden trainings spend with a node's partners, before and after them; light: any command may ask."""

from __future__ import annotations

from vfl_node.data.named import table_name
from vfl_node.gdp import Opened
from vfl_node.job import Job
from vfl_node.node.counts import PartnerCounts
from vfl_node.session.spent import Expense
from vfl_node.settings import Settings


def counts_with(settings: Settings, peer: str) -> PartnerCounts:
    """What was counted with ``peer``, to read it: a peer that was never met has no folder."""
    return PartnerCounts(settings.state_dir / "partners" / peer, peer)


def check_budget(settings: Settings, job: Job) -> None:
    """Refuse a job that would spend more than this owner allows, and count nothing.

    Raises:
        PolicyError: it would (``E_BUDGET``).
        StateError: what was counted is damaged (``E_STATE_CORRUPT``).
    """
    opens = job.train.opens(job.evaluate) if job.train and settings.role != "coordinator" else Opened()
    if not opens.mu:
        return
    table, limit = table_name(settings, job), settings.limits.epsilon_per_partner
    for peer in job.parties.others(settings.name):
        counts_with(settings, peer).check_expense(Expense(table, "", opens.mu, opens.unbounded, limit))
