"""What training in shares will send and compute; light: any command may ask for all but its cost."""

from __future__ import annotations

from collections.abc import Mapping

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import HEAD_BYTES, Computing, Operations, TableShape, TrainingCost, TrainingPlan
from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole
from vfl_node.training.hidden import memory
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import fewest_epochs, most_epochs

PACE = "vfl_node.training.hidden.pace:SharesPace"


class HiddenTrainingPlan(TrainingPlan[Hidden]):
    """The plan of training in shares."""

    def steps(self, evaluate: Evaluate, rows: int) -> int:
        """One batch an epoch at least."""
        return fewest_epochs(self.train)

    def cost(self, evaluate: Evaluate, rows: int, protocol: str) -> TrainingCost | None:
        """Masked shares of the data parties, and the dealer's numbers, by the program of the training itself."""
        if ALIGNMENTS[protocol].by_similarity:
            return None
        from vfl_node.training.hidden import costs  # numbers and torch, which a job alone does not need

        return costs.cost(self.train, evaluate, rows, protocol, self.passive_parties, self.beside)

    def computing(self, evaluate: Evaluate, rows: int, protocol: str, records: Mapping[DataRole, int]) -> Computing:
        """What each party works on, which grows with the bytes it gets and sends."""
        cost, others = self.cost(evaluate, rows, protocol), self.passive_parties
        if cost is None:
            return Computing((), PACE)
        dealt = cost.coordinator_bytes / (1 + others)
        return Computing(
            (
                Operations("active", "byte", dealt + cost.bytes),
                Operations("passive", "byte", dealt + cost.bytes / others),
                Operations("coordinator", "dealt byte", cost.coordinator_bytes),
            ),
            PACE,
        )

    def parameters(self, role: DataRole, table: TableShape) -> int:
        """Each party has shares of all weights."""
        return memory.parameters(self.train, role, table, self.passive_parties, self.beside)

    def batch_bytes(self, role: DataRole, table: TableShape) -> int:
        """All columns, those of others under masks; what comes from the dealer ahead of need; one batch; the histogram."""
        return memory.batch_bytes(self.train, role, table, self.passive_parties, self.beside)

    def served_message_bytes(self, rows: int) -> int:
        """What the asker marks new records with, a number each; masked shares travel in pieces."""
        return memory.NUMBER_BYTES * rows + HEAD_BYTES

    def reported_epochs(self, evaluate: Evaluate) -> int:
        """As many as there are at most."""
        return most_epochs(self.train)
