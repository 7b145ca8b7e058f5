"""What a party tells about a model's rows, counted and attacked before it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.privacy.equal_weights import Judged
from vfl_node.privacy.served import ServedAudit
from vfl_node.settings import Protection
from vfl_node.training.split.serving.sides import Embedder, Positions, Scorer

Names = NDArray[np.int64]
"""Of rows: shared positions, or numbers below 0 that stand for the embedding of rows that are not named."""

ROWS_AT_ONCE = 4096


class ShownRows(Protocol):
    """Which rows of one model the peer was told about: in all services and directions, over all restarts.

    Attributes:
        most: how many different ones this party's owner allows.
    """

    most: int

    def rows(self) -> Names:
        """All of them."""

    def check(self, rows: Names) -> None:
        """Whether ``rows`` may be told, too. Raises PolicyError (``E_BUDGET``)."""

    def add(self, rows: Names) -> None:
        """Count ``rows``, of which known ones are free; durable when it returns. Raises PolicyError (``E_BUDGET``)."""


@dataclass(frozen=True)
class Told:
    """One batch that is about to leave.

    Attributes:
        names: int64[B].
        sent: float[B, …], what leaves.
        synthetic: bool[B], where something stands in at this party.
    """

    names: Names
    sent: Tensor
    synthetic: NDArray[np.bool_]


class Disclosure:
    """The one place that all a party tells about a model's rows passes.

    Args:
        side: this party's half.
        shown: what was told before.
        protection: which attacks its owner lets run on it, and how well they may do.
    """

    def __init__(self, side: Embedder | Scorer, shown: ShownRows, protection: Protection) -> None:
        audit, limit = side.draws.derive("audit of predictions"), protection.max_attack_auc
        self._shown, self._audit = shown, ServedAudit(audit, limit=limit, active=protection.membership)
        audited = isinstance(side, Embedder) and side.alignment.missing and protection.membership
        self._embedder = side if audited and isinstance(side, Embedder) else None
        self._known = np.empty(0, dtype=np.int64)
        self._catch_up()
        self._expected: ServedAudit | None = None
        if self._embedder and limit is not None:
            self._expected = ServedAudit(audit, limit=limit)
            _embed(self._expected, self._embedder, self._embedder.some(shown.most))

    @property
    def told(self) -> int:
        """Different rows of the model that the peer was told about so far."""
        return len(self._known)

    @property
    def judged(self) -> Judged:
        """The attacks on all that this party has sent of the model, as far as it can be computed anew after a restart."""
        return self._audit.judged

    def check(self, positions: Positions) -> None:
        """Whether rows at shared ``positions`` may be told, as far as their number goes. Raises PolicyError (``E_BUDGET``)."""
        self._shown.check(positions)

    def leaves(self, batches: Sequence[Told]) -> None:
        """Count and attack what is about to leave.

        Raises:
            PolicyError: they are more rows than the owner allows (``E_BUDGET``), or tell too much (``E_LEAK``).
        """
        self._catch_up()
        names = np.concatenate([batch.names for batch in batches])
        names, first = np.unique(names, return_index=True)
        new = ~np.isin(names, self._known, assume_unique=True)
        names, first = names[new], first[new]
        if len(names) == 0:
            return
        self._shown.check(names)
        synthetic = np.concatenate([batch.synthetic for batch in batches])[first]
        sent = torch.cat([batch.sent.reshape(len(batch.sent), -1) for batch in batches])
        self._audit.see(sent[torch.from_numpy(first)], synthetic)
        self._audit.attack()
        self._audit.check(self._expected)
        self._shown.add(names)
        self._known = np.union1d(self._known, names)

    def _catch_up(self) -> None:
        """Take in what was told by others: earlier services and attempts, and another one that runs meanwhile."""
        others = np.setdiff1d(self._shown.rows(), self._known)
        if self._embedder:
            _embed(self._audit, self._embedder, others[others >= 0])
        self._known = np.union1d(self._known, others)


def names_of(embedding: Tensor) -> Names:
    """What stands for rows that are not named, float32[B, d]: 63 bits of a digest of each embedding, below 0."""
    rows = embedding.detach().cpu().contiguous().numpy()
    digests = b"".join(sha256(row.tobytes()).digest()[:8] for row in rows)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64) | np.int64(-(2**63))


def _embed(audit: ServedAudit, side: Embedder, positions: Positions) -> None:
    """Show ``audit`` the rows at ``positions``, as the peer gets them."""
    synthetic = ~side.alignment.owned
    for start in range(0, len(positions), ROWS_AT_ONCE):
        part = positions[start : start + ROWS_AT_ONCE]
        audit.see(side.shared(part), synthetic[part])
    audit.attack()
