"""The attack ``row_length``: synthetic embeddings may be longer or shorter than real ones."""

from __future__ import annotations

from vfl_node.privacy.attacks.attack import ScoringAttack
from vfl_node.privacy.attacks.transcript import Batch


class RowLength(ScoringAttack):
    """AUC of the mean length of a position's rows. The base adds scores up, and stores them with a checkpoint."""

    title = "row length"
    reading = "how long the rows of a position are"

    def see(self, batch: Batch) -> None:
        """As the base: the score of each row that the scope follows."""
        followed = self._scope.alone(batch)
        self._tally.add(followed.positions, followed.rows.double().norm(dim=1).numpy())
