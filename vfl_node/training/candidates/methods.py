"""What a row makes of its candidates: the job's ``train.method``. Light: this module does not load torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """One way to predict a row from K pairs, each the row beside one candidate.

    Attributes:
        name: in the job.
        words: what it does, a clause for the report.
        gates: whether pairs pass the weight gate and are merged (``train.merge``); of the others the K outputs are predictions.
        each: whether each pair is a training sample with the row's label, and the similarity one more column of the row.
        nearest: whether only the candidate of the largest similarity counts.
        equal: whether it is for candidates with equal keys, one a row.
    """

    name: str
    words: str
    gates: bool = False
    each: bool = False
    nearest: bool = False
    equal: bool = False


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method(
            "fedsim",
            "weighs what it computes of each candidate by a learnt function of its similarity, and merges it",
            gates=True,
        ),
        Method("mean", "takes the mean of what it computes of each candidate"),
        Method("top1", "uses the candidate with the largest noisy similarity alone", nearest=True),
        Method("feature", "learns from each candidate as from a row of its own, with the similarity as a column", each=True),
        Method("exact", "uses a candidate with equal keys, and the mean record where there is none", equal=True),
    )
}
"""``train.method`` → what it does."""

MERGES: Mapping[str, str] = {
    "conv": "by a convolution along the candidates in the order of their similarity",
    "mean": "by their weighted mean",
}
"""``train.merge`` → how weighted pairs become one prediction."""

CUTS: Mapping[str, str] = {"linear": "without ReLU"}
"""``train.cut`` → what the last layer of a bottom is."""
