"""One training step and one evaluation, as each party takes them.

::

    passive                                   active
    H = bottom(X_p)           ── H [B, d] ──►  l = top(bottom(X_a), H)
                                               L = mean loss(l, y)
    back-propagates g         ◄── g [B, d] ──  g = ∂L/∂H
    updates its bottom                         updates bottom and top

A row that a party does not own takes the same way as any other: its columns or its embedding
are made up, or its label is. Rows of H and g stand at their place in the batch and carry no
identifier; rows of g are never averaged or reordered. Each party attacks what it sends, with
what it alone knows as the truth (:mod:`vfl_node.privacy.audit`).

Source: Song et al. 2021 (FLORIST), sections 3.3 and 4, Table 4.

Leaks: H tells the active party about the passive party's columns, and g tells the passive
party which label was used in each row; see docs/training.md.
"""

from __future__ import annotations

from vfl_node.training.halves.active import ActiveHalf, classifier, local_rate, probabilities
from vfl_node.training.halves.half import Half
from vfl_node.training.halves.passive import PassiveHalf

__all__ = ["ActiveHalf", "Half", "PassiveHalf", "classifier", "local_rate", "probabilities"]
