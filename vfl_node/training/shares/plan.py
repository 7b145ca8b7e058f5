"""What all plans of trainings in shares have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from vfl_node.job.costs import Computing, Operations, TrainingPlan
from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole
from vfl_node.training.shares.config import SharesConfig

PACE = "vfl_node.training.shares.pace:SharesPace"

C = TypeVar("C", bound=SharesConfig)


class SharesPlan(TrainingPlan[C]):
    """A plan whose computing follows from what is sent."""

    def computing(self, evaluate: Evaluate, rows: int, protocol: str, records: Mapping[DataRole, int]) -> Computing:
        """What each party works on, which grows with the bytes it gets and sends."""
        cost, others = self.cost(evaluate, rows, protocol), self.passive_parties
        if cost is None:
            return Computing((), PACE)
        dealt = cost.coordinator_bytes / (1 + others)
        work = [
            Operations("active", "byte", dealt + cost.bytes),
            Operations("passive", "byte", dealt + cost.bytes / others),
        ]
        if cost.coordinator_bytes:
            work.append(Operations("coordinator", "dealt byte", cost.coordinator_bytes))
        return Computing(tuple(work), PACE)
