"""What hidden trainings spend with a node's partners, before and after them; light: any command may ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vfl_node.data.named import table_name
from vfl_node.gdp import Exposure, auc_bound, epsilon_of
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.node.counts import PartnerCounts
from vfl_node.session.spent import Expense
from vfl_node.settings.bounds import Use
from vfl_node.settings.limits import allows
from vfl_node.settings.node import Settings
from vfl_node.trust.signers import Signers

_OPENED: dict[Path, PartnerCounts] = {}
"""By folder: a lane is read once, and then what is new in it."""


def counts_with(settings: Settings, peer: str) -> PartnerCounts:
    """What was counted with ``peer``; a peer that was never met has no folder. Raises StateError if it is damaged."""
    folder = settings.state_dir / "partners" / peer
    if folder not in _OPENED:
        _OPENED[folder] = PartnerCounts(folder, peer, Signers(settings))
    return _OPENED[folder]


def list_uses(settings: Settings, peer: str) -> dict[str, Use]:
    """Name of a limit over many jobs → how much of it is used with ``peer``. Raises StateError if what was counted is damaged.

    Ids that are asked about are among them where the policy allows such alignments, or some have been.
    """
    counts, limits = counts_with(settings, peer), settings.rules.limits_of(peer)
    questions = counts.list_questions(limits.queries_per_peer)
    allowed = any(spec.answers_questions and allows(limits.protocols, name) for name, spec in ALIGNMENTS.usable())
    shown = allowed or any(use.used for use in questions.values())
    return counts.list_uses(limits.budgets) | (questions if shown else {})


def check_budget(settings: Settings, job: Job) -> None:
    """Refuse a job that would spend more than this owner allows, and count nothing.

    Raises:
        PolicyError: it would (``E_BUDGET``).
        StateError: what was counted is damaged (``E_STATE_CORRUPT``).
    """
    opens = job.train.opens(job.evaluate) if job.train and settings.role != "coordinator" else Exposure()
    if not opens.mu:
        return
    table, limit = table_name(settings, job), settings.limits_for(job).budgets.epsilon
    for peer in job.parties.others(settings.name):
        counts_with(settings, peer).check_expense(Expense(table, "", opens.mu, opens.unbounded, limit))


def accounts(settings: Settings, job_mu: float, partner: str | None = None) -> Iterator[dict[str, Any]]:
    """What is spent and left, by partner and table; a partner is every peer that the policy does not list as a coordinator.

    Args:
        settings: of this node.
        job_mu: of the jobs of which it is said how many more fit.
        partner: only this one.

    Yields:
        partner, table; allowed, spent, left: ε, None without a limit; fits: so many more jobs, None without a limit; about: as
        :attr:`~vfl_node.session.spent.Spent.about`; auc_bound: None where these are several, of which each has its own;
        unbounded: jobs whose model has no bound; lost: whether nobody knows what was spent; jobs, forgotten: job → its ε, of
        those that count and those that the owner counts no more.

    Raises:
        StateError: what was counted is damaged (``E_STATE_CORRUPT``).
    """
    for name in [partner] if partner else sorted(set(settings.peers) - settings.coordinators):
        counts = counts_with(settings, name)
        limit, account = counts.extended("epsilon", settings.rules.limits_of(name).budgets.epsilon), counts.account()
        for table, names in counts.group_tables(account, settings.tables):
            spent, left = account.total(*names), None if limit is None else account.remainder(limit, *names)
            jobs, forgotten = (
                {expense.job_id: round(epsilon_of(expense.mu), 3) for expense in account.expenses(*names, forgotten=gone)}
                for gone in (False, True)
            )
            yield {
                "partner": name,
                "table": table,
                "allowed": limit,
                "spent": round(epsilon_of(spent.mu), 3),
                "left": None if left is None else round(epsilon_of(left), 3),
                "fits": None if left is None else int((left / job_mu) ** 2 + 1e-9),
                "about": sorted(spent.about),
                "auc_bound": round(auc_bound(spent.mu), 4) if len(spent.about) < 2 else None,
                "unbounded": spent.unbounded,
                "lost": account.losses > 0,
                "jobs": jobs,
                "forgotten": forgotten,
            }
