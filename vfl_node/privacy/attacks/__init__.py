"""Attacks that tell synthetic rows from real ones; a new one is a file and an entry of :data:`ATTACKS`.

A row that a party does not own is a synthetic one, so telling them apart tells who is known
to whom, which is what the union hid. An attack's AUC is never folded: .5 is chance, its
positive class is the secret, a synthetic row, and a value far below .5 also tells, the other
way round. A protection is judged by the strongest attack.

:mod:`vfl_node.privacy.attacks.embedding_inversion`, which recovers features instead, stands
beside them. So do the attacks on asymmetric training, which judge other transcripts:
:mod:`~vfl_node.privacy.attacks.residuals` finds dummies by one's own gradients,
:mod:`~vfl_node.privacy.attacks.start` the number of genuine rows by the first one, and
:mod:`~vfl_node.privacy.attacks.scores` recovers columns from scores in the clear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from vfl_node.privacy.attacks import collinear, distance_ratio, longitudinal, near_duplicate, row_loss, same_step_twin, spectral
from vfl_node.privacy.attacks.embedding_inversion import invert
from vfl_node.privacy.attacks.transcript import Batch

Attack = Callable[[Sequence[Batch], NDArray[np.bool_]], float | None]
"""(what was received, bool[m]: which shared rows are synthetic) → AUC; None where it is not defined."""

ATTACKS: dict[str, Attack] = {
    "collinear": collinear.attack,
    "distance_ratio": distance_ratio.attack,
    "longitudinal": longitudinal.attack,
    "near_duplicate": near_duplicate.attack,
    "row_loss": row_loss.attack,
    "same_step_twin": same_step_twin.attack,
    "spectral": spectral.attack,
}
"""Name in a report → attack."""


def audit(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> dict[str, float | None]:
    """The AUC of every attack on one transcript.

    Args:
        transcript: embeddings, as the active party received them, or gradients, as the
            passive one did, with the gradients beside them for the row loss.
        synthetic: bool[m], the truth at each shared position, which no attacker has.
    """
    return {name: attack(transcript, synthetic) for name, attack in ATTACKS.items()}


__all__ = ["ATTACKS", "Attack", "Batch", "audit", "invert"]
