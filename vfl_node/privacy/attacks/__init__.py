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

Light: an attack, and torch with it, is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfl_node.configuration.registry import Registry, subclass_of

if TYPE_CHECKING:
    from vfl_node.privacy.attacks.attack import Attack

ATTACKS: Registry[type[Attack]] = Registry(
    "vfl_node.attacks",
    {
        "collinear": "vfl_node.privacy.attacks.collinear:Collinear",
        "distance_ratio": "vfl_node.privacy.attacks.distance_ratio:DistanceRatio",
        "longitudinal": "vfl_node.privacy.attacks.longitudinal:Longitudinal",
        "near_duplicate": "vfl_node.privacy.attacks.near_duplicate:NearDuplicate",
        "row_loss": "vfl_node.privacy.attacks.row_loss:RowLoss",
        "same_step_twin": "vfl_node.privacy.attacks.same_step_twin:SameStepTwin",
        "spectral": "vfl_node.privacy.attacks.spectral:Spectral",
    },
    check=subclass_of("vfl_node.privacy.attacks.attack:Attack"),
)
"""Name in a report → attack."""
