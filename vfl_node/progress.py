"""How far a job is: told by protocols, shown by the node and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Attacks = Mapping[str, float | None]
"""Attack → AUC with which it tells this party's synthetic rows from what the party sends; None where not defined."""

Judged = Mapping[str, int]
"""Attack → number of rows behind its newest AUC."""


class Progress(Protocol):
    """Receives what a protocol has to tell its owner while it runs."""

    def phase(self, name: str, total: int, unit: str) -> None:
        """A phase begins: ``total`` steps of ``unit`` (rows, batches)."""

    def advance(self, steps: int) -> None:
        """``steps`` more of the phase are done."""

    def note(
        self,
        *,
        loss: float | None = None,
        local_loss: float | None = None,
        attacks: Attacks | None = None,
        judged: Judged | None = None,
    ) -> None:
        """Figures of an epoch; None or none for what this party does not know.

        Args:
            loss: of the federated model.
            local_loss: of the active party's own model.
            attacks: of this party's own audit.
            judged: how many rows are behind each of them.
        """

    def remark(self, text: str) -> None:
        """One line that holds for the rest of the job, such as how many rows it trains on."""


class Silent:
    """A progress that tells nobody."""

    def phase(self, name: str, total: int, unit: str) -> None:
        """Ignored."""

    def advance(self, steps: int) -> None:
        """Ignored."""

    def note(
        self,
        *,
        loss: float | None = None,
        local_loss: float | None = None,
        attacks: Attacks | None = None,
        judged: Judged | None = None,
    ) -> None:
        """Ignored."""

    def remark(self, text: str) -> None:
        """Ignored."""
