"""Randomised answers about labels: which ones a node has given a partner over all jobs, and the ε that they come to.

An answer is drawn once under a secret of the node, which is the same for all partners: two of them who compare what they have
find the same answer, and not a second one. Another ε, range, number of classes or another secret gives an answer of its own,
and for each label their ε add up (basic composition: Dwork and Roth 2014, theorem 3.16).

What stands for an answer is a line of digests and its ε; no identifier and no label.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import StateError


@dataclass(frozen=True)
class Answer:
    """An answer about each label of a table.

    Attributes:
        table: its name in the owner's settings.
        column: of the labels.
        terms: what else the answers depend on: classes and their names, or a range.
        epsilon: ε of each label.
    """

    table: str
    column: str
    terms: str
    epsilon: float

    @property
    def about(self) -> str:
        """Stands for the labels: their ε add up."""
        return _digest(f"{self.table}\n{self.column}")

    @property
    def name(self) -> str:
        """The name of its draws, under the secret."""
        return f"randomised labels {self.about} {_digest(self.terms)} {self.epsilon!r}"

    def line(self, secret: Randomness) -> str:
        """What stands for it, drawn under ``secret``."""
        return f"{mark(secret)} {self.about} {_digest(self.terms)} {self.epsilon!r}"

    def total_epsilon(self, lines: Iterable[str]) -> float:
        """ε of all answers about the same labels among ``lines``, each once."""
        own = [line.split(" ") for line in set(lines)]
        return math.fsum(float(epsilon) for _, about, _, epsilon in own if about == self.about)


def mark(secret: Randomness) -> str:
    """Stands for a secret, and tells nothing of it."""
    return secret.derive("mark").bytes(16).hex()


def check_secret(secret: str, lines: Sequence[str], accepted: str, peer: str) -> None:
    """Refuse to answer under another secret than before, unless the owner has accepted that.

    Args:
        secret: the :func:`mark` of the secret that the node has.
        lines: of the answers that ``peer`` has.
        accepted: the mark of a secret that the owner has accepted; empty: none.
        peer: a partner.

    Raises:
        StateError: it is another one (``E_STATE_LOST``).
    """
    if lines and secret != accepted and all(line.split(" ")[0] != secret for line in lines):
        raise StateError(
            f"the secret under which labels were answered to {peer} is gone, and another one is in its place",
            code="E_STATE_LOST",
            hint="put the newest copy of state/partners/own.secret back; if there is none: vfl-node accept-loss "
            f"{peer}. Every label then gets a second answer, and the ε of both add up",
            for_peer="what it remembers of earlier jobs with this node is gone; its owner has to decide",
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
