"""A party's own attacks on what it sends for predictions: rows that all meet the same weights, over all services.

In training the weights move between steps, and a row has few others of the same step beside it. A model that is asked
for predictions stays as it is, so all that was sent of it is compared, row with row
(:func:`~vfl_node.privacy.equal_weights.audit_equal_weights`), before more of it leaves.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.privacy.equal_weights import Judged, audit_equal_weights

ENOUGH = 100
"""Fewest rows of each kind that are judged by themselves: at chance their AUC deviates by .04."""

GROWN = 1.01
"""By how much the rows grow until they are attacked anew."""


class ServedAudit:
    """What the peer could make of the rows it has received, each of which is counted once.

    Args:
        randomness: of this alone.
        limit: the largest AUC, folded, that the owner allows; None: any.
        active: whether any attack runs.

    Cost: 4·d bytes a row are kept. An audit of n rows is 1,024·n·d multiplications, one whenever they have grown by a
        hundredth; whether it is due depends on n alone, not on which rows are synthetic.
    """

    def __init__(self, randomness: Randomness, *, limit: float | None, active: bool = True) -> None:
        self._randomness, self._limit, self._active = randomness, limit, active
        self._rows: list[Tensor] = []
        self._synthetic: list[NDArray[np.bool_]] = []
        self._size = self._attacked = 0
        self.judged = Judged()
        """What the attacks found."""

    def see(self, rows: Tensor, synthetic: NDArray[np.bool_]) -> None:
        """Take in rows that were not sent before.

        Args:
            rows: float[n, d].
            synthetic: bool[n], which of them are.
        """
        if not self._active:
            return
        self._rows.append(rows.detach().cpu().float())
        self._synthetic.append(synthetic)
        self._size += len(rows)

    def attack(self) -> None:
        """Bring :attr:`judged` up to date, if the rows have grown enough."""
        if self._size == 0 or self._size < GROWN * self._attacked:
            return
        self._rows, self._synthetic = [torch.cat(self._rows)], [np.concatenate(self._synthetic)]
        self._attacked = self._size
        self.judged = audit_equal_weights(self._rows[0], self._synthetic[0], self._randomness)

    @property
    def strongest(self) -> float:
        """The largest of the figures, folded; .5 without any."""
        aucs = [value for value in self.judged.attacks.values() if value is not None]
        return max((0.5 + abs(value - 0.5) for value in aucs), default=0.5)

    def check(self, expected: ServedAudit | None = None) -> None:
        """Stop where the rows seen tell more than the owner allows; call it before they leave.

        Args:
            expected: an audit of what may be sent at most. Few rows deviate from it by chance, by which alone nothing is
                stopped. None: not known; fewer than :data:`ENOUGH` rows of either kind are not judged then.

        Raises:
            PolicyError: the strongest attack, folded, is above the limit (``E_LEAK``; the peer is told ``E_STOPPED``).

        Leaks: by stopping, that some limit would be passed.
        """
        if self._limit is None or self.strongest <= self._limit:
            return
        synthetic = sum(int(of.sum()) for of in self._synthetic)
        by_chance = min(synthetic, self._size - synthetic) < ENOUGH if expected is None else expected.strongest <= self._limit
        if by_chance:
            return
        raise PolicyError(
            f"this party's own attacks would tell synthetic rows from real ones at an AUC of {self.strongest:.2f} among "
            f"{self._size} rows of this model, which meet the same weights; limits.max_attack_auc allows {self._limit:g}",
            code="E_LEAK",
            hint="train with a strategy in train.missing.features whose rows have no twins, or align by psi; or allow more",
            for_peer="its owner's policy does not allow more predictions by this model",
            peer_code="E_STOPPED",
        )
