"""Synthetic labels: what the active party takes for the label of a row it does not own.

It always generates a label and lets the gradient follow; gradients made up directly are told
apart (FLORIST, section 4.1). A strategy is made once a repeat from what is :class:`Known` and
asked in every :class:`Step` for the targets of all rows of the batch, whoever owns them, so
that the time it takes does not depend on that. No gradient flows into a target.

============ ======================================== ==================================================
name         label                                    anew
============ ======================================== ==================================================
majority     the most frequent class                  never
minority     the least frequent class                 never
random-pos   a class as frequent as it is             never: one draw a shared position and repeat
random-pred  as the model predicts                    in every step
neighbors    vote of the 3 nearest rows of the batch  as the embeddings and batches change
none         (no row may lack one)
============ ======================================== ==================================================

What is drawn anew differs between two epochs where a real label does not, and the passive
party meets each position once an epoch: it tells synthetic labels by that, the surer the
more epochs there are. ``random-pos`` is therefore fixed, which the paper leaves open.
``random-pred`` cannot be: its gradient cancels because the draw follows the model of the
step. docs/privacy.md has the numbers.

Source: Song et al. 2021, section 4.1 and Appendix H.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import UsageError
from vfl_node.training.missing.labels.fixed import Fixed
from vfl_node.training.missing.labels.majority import majority
from vfl_node.training.missing.labels.minority import minority
from vfl_node.training.missing.labels.neighbors import Neighbors
from vfl_node.training.missing.labels.none import none
from vfl_node.training.missing.labels.random_pos import random_pos
from vfl_node.training.missing.labels.random_pred import RandomPred
from vfl_node.training.missing.labels.strategy import Known, Labels, Step

__all__ = ["LABELS", "Fixed", "Known", "Labels", "Step", "shared_labels"]

LABELS: dict[str, Callable[[Known], Labels]] = {
    "majority": majority,
    "minority": minority,
    "random-pos": random_pos,
    "random-pred": RandomPred,
    "neighbors": Neighbors,
    "none": none,
}
"""Name in the job → a strategy for one repeat."""


def shared_labels(
    alignment: Alignment,
    labels: NDArray[np.float32],
    train: NDArray[np.int64],
    strategy: str,
    randomness: Randomness,
    classes: int = 2,
) -> NDArray[np.float32]:
    """The label used at each shared position in one repeat, where the strategy fixes it. float32[m].

    Args:
        alignment: the active party's view.
        labels: float32[n], its own.
        train: shared positions trained on; only their labels decide what the others are.
        strategy: name in :data:`LABELS`.
        randomness: as :attr:`Known.randomness`.
        classes: number of classes.

    Raises:
        DataError: no row trained on has a label (``E_EMPTY``).
        UsageError: labels are missing and the strategy does not fix them.
    """
    owned = alignment.owned
    known = Known(labels[alignment.rows[train[owned[train]]]], len(alignment), classes, draws=1, randomness=randomness)
    used = np.where(owned, labels[alignment.rows], np.float32(0))
    if alignment.missing:
        chosen = LABELS[strategy](known)
        if not isinstance(chosen, Fixed):
            raise UsageError(f"train.missing.labels: {strategy} fixes no label before training")
        used[~owned] = chosen.labels[~owned]
    return used
