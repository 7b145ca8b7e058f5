"""Synthetic labels: what the active party takes for the label of a row it does not own.

It always generates a label and lets the gradient follow; gradients made up directly are told
apart (FLORIST, section 4.1). A strategy is made once a job from what is :class:`Known` and
asked in every :class:`Step` for the targets of all rows of the batch, whoever owns them, so
that the time it takes does not depend on that. No gradient flows into a target.

============ ======================================== ==================================================
name         label                                    anew
============ ======================================== ==================================================
majority     the most frequent class                  never
minority     the least frequent class                 never
random-pos   a class as frequent as it is             never: one draw a shared position
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

from vfl_node.training.split.missing.labels.fixed import Fixed
from vfl_node.training.split.missing.labels.majority import majority
from vfl_node.training.split.missing.labels.minority import minority
from vfl_node.training.split.missing.labels.neighbors import Neighbors
from vfl_node.training.split.missing.labels.none import none
from vfl_node.training.split.missing.labels.random_pos import random_pos
from vfl_node.training.split.missing.labels.random_pred import RandomPred
from vfl_node.training.split.missing.labels.strategy import Known, Labels, Step

__all__ = ["LABELS", "Fixed", "Known", "Labels", "Step"]

LABELS: dict[str, Callable[[Known], Labels]] = {
    "majority": majority,
    "minority": minority,
    "random-pos": random_pos,
    "random-pred": RandomPred,
    "neighbors": Neighbors,
    "none": none,
}
"""Name in the job → a strategy for one repeat."""
