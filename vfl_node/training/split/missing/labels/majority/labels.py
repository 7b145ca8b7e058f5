"""``majority``: the most frequent class."""

from __future__ import annotations

from vfl_node.training.split.missing.labels.contract import Known
from vfl_node.training.split.missing.labels.fixed import Fixed, constant
from vfl_node.training.split.missing.strategies import LabelStrategy


def majority(strategy: LabelStrategy, known: Known) -> Fixed:
    """The most frequent class of the real labels; the lower one if two are even.

    Meant for two classes of unequal frequency: hardly any gradient comes from a label that
    the model expects anyway. It lowers every probability, which calibration undoes.

    Leaks: little by the spectral attack (the paper: AUC .56 to .58), because most real labels are the same.
    Source: Song et al. 2021, section 4.1, "label-majority".
    """
    return constant(known, int(known.ranked[0]))
