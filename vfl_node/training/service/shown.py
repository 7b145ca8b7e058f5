"""Which rows of a model the peer is told about: they are counted and attacked before anything of them is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.privacy.equal_weights import Judged
from vfl_node.privacy.served import ServedAudit
from vfl_node.protection import Protection
from vfl_node.training.service.sides import EmbeddingSide, Positions, ScoringSide
from vfl_node.training.serving import Names, ShownRows

ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class OutgoingBatch:
    """One batch that is about to be sent.

    Attributes:
        names: int64[B], of its rows.
        sent: float[B, …], what is sent of them.
        synthetic: bool[B], which rows are synthetic at this party.
    """

    names: Names
    sent: Tensor
    synthetic: NDArray[np.bool_]


class DisclosureGuard:
    """Counts and attacks everything that a party is about to send about rows of a model, and refuses too much.

    Args:
        side: this party's half.
        shown: the rows that the peer was told about before.
        protection: which attacks the owner lets run on what is sent, and how successful they may be.
    """

    def __init__(self, side: EmbeddingSide | ScoringSide, shown: ShownRows, protection: Protection) -> None:
        audit, limit = side.draws.derive("audit of predictions"), protection.max_attack_auc
        active = protection.membership and side.makes_rows_up
        self._shown, self._audit = shown, ServedAudit(audit, limit=limit, active=active)
        audited = isinstance(side, EmbeddingSide) and side.alignment.missing and active
        self._embedder = side if audited and isinstance(side, EmbeddingSide) else None
        self._known = np.empty(0, dtype=np.int64)
        self._add_others()
        self._expected: ServedAudit | None = None
        if self._embedder and limit is not None:
            self._expected = ServedAudit(audit, limit=limit)
            _embed(self._expected, self._embedder, self._embedder.some(shown.most))

    @property
    def rows_told(self) -> int:
        """How many different rows of the model the peer was told about so far."""
        return len(self._known)

    @property
    def judged(self) -> Judged:
        """The attacks on all that this party has sent of the model, as far as it can be computed anew after a restart."""
        return self._audit.judged

    def check(self, positions: Positions) -> None:
        """Check that the number of rows stays allowed with those at ``positions``. Raises PolicyError (``E_BUDGET``)."""
        self._shown.check(positions)

    def admit(self, batches: Sequence[OutgoingBatch]) -> None:
        """Count and attack what is about to be sent.

        Raises:
            PolicyError: more rows than the owner allows (``E_BUDGET``), or the attacks are too successful (``E_LEAK``).
        """
        self._add_others()
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

    def _add_others(self) -> None:
        """Add what others have shown: earlier services and attempts, and another service that runs at the same time."""
        others = np.setdiff1d(self._shown.rows(), self._known)
        if self._embedder:
            _embed(self._audit, self._embedder, others[others >= 0])
        self._known = np.union1d(self._known, others)


def names_of(embedding: Tensor) -> Names:
    """Names for rows that are not named, from their embeddings float32[B, d]: 63 bits of a digest of each, below 0."""
    rows = embedding.detach().cpu().contiguous().numpy()
    digests = b"".join(sha256(row.tobytes()).digest()[:8] for row in rows)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64) | np.int64(-(2**63))


def _embed(audit: ServedAudit, side: EmbeddingSide, positions: Positions) -> None:
    """Show ``audit`` the rows at ``positions`` as the peer receives them."""
    synthetic = ~side.alignment.owned
    for start in range(0, len(positions), ROWS_AT_ONCE):
        part = positions[start : start + ROWS_AT_ONCE]
        audit.see(side.shared(part), synthetic[part])
    audit.attack()
