"""What training in shares will send and compute; light: any command may ask for all but its cost."""

from __future__ import annotations

from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.job.costs import HEAD_BYTES, TableShape, TrainingCost
from vfl_node.job.evaluate import Evaluate
from vfl_node.roles import DataRole
from vfl_node.training.hidden import memory
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.descent import fewest_epochs, most_epochs
from vfl_node.training.shares.plan import SharesPlan


class HiddenTrainingPlan(SharesPlan[Hidden]):
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
