"""``minority``: the least frequent class."""

from __future__ import annotations

import numpy as np

from vfl_node.training.split.missing.labels.contract import Known
from vfl_node.training.split.missing.labels.fixed import Fixed, constant
from vfl_node.training.split.missing.strategies import LabelStrategy


def minority(strategy: LabelStrategy, known: Known) -> Fixed:
    """The least frequent class among those that occur; the higher one if two are even.

    For comparison with ``majority``: what the model does not expect gives long gradients.

    Leaks: more than ``majority`` (the paper: AUC .58 to .65 by the spectral attack).
    Source: Song et al. 2021, section 4.1, "label-minority".
    """
    occurring = np.count_nonzero(known.counts)
    return constant(known, int(known.ranked[occurring - 1]))
