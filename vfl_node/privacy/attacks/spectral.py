"""The spectral attack: within one batch, synthetic rows stand out along the main direction of variation.

It finds rows that scatter more widely and minorities that lie apart. Two groups of equal
size that differ in their mean alone lie equally far from μ, and it does not tell them apart.

Source: Song et al. 2021 (FLORIST), section 5.1; Tran et al. 2018, Spectral Signatures in
Backdoor Attacks (which squares the projection: the same order). Not folded, columns not
standardised.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.metrics import auc
from vfl_node.privacy.attacks.transcript import Batch


def scores(rows: Tensor) -> Tensor:
    """|⟨z − μ, v⟩| of each row z, with μ the mean row and v the top right singular vector of Z − μ.

    Args:
        rows: Z, float[B, d], one batch: gradients; or embeddings, to which the active party
            may append the labels it used as one more column.

    Returns:
        float64[B]; larger: more likely synthetic.
    """
    centred = rows.double() - rows.double().mean(dim=0)  # (B, d)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    return (centred @ directions[0]).abs()


def attack(transcript: Sequence[Batch], synthetic: NDArray[np.bool_]) -> float | None:
    """Mean AUC over batches; those with no or only synthetic rows are left out, None if that is all."""
    found = [auc(synthetic[batch.positions], scores(batch.rows).numpy()) for batch in transcript]
    defined = [value for value in found if value is not None]
    return sum(defined) / len(defined) if defined else None
