"""The attack ``row_length``: synthetic embeddings may be longer or shorter than real ones."""

from __future__ import annotations

from vfl_node.privacy.attacks.attack import ScoringAttack
from vfl_node.privacy.attacks.transcript import Batch


class RowLength(ScoringAttack):
    """A position's score is the mean length of its rows. The base class adds scores up and computes their AUC."""

    title = "row length"
    reading = "how long the rows of a position are"

    def see(self, batch: Batch) -> None:
        """As in the base class: add the length of each row that the audit follows."""
        followed = self._scope.alone(batch)
        self._tally.add(followed.positions, followed.rows.double().norm(dim=1).numpy())
