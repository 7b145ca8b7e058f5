"""The spectral attack: within one batch, synthetic rows stand out along the main direction of variation.

It finds rows that scatter more widely and minorities that lie apart. Two groups of equal
size that differ in their mean alone lie equally far from μ, and it does not tell them apart.

Source: Song et al. 2021 (FLORIST), section 5.1; Tran et al. 2018, Spectral Signatures in
Backdoor Attacks (which squares the projection: the same order). Not folded, columns not
standardised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from vfl_node.metrics.classes import auc
from vfl_node.privacy.attacks.attack import Attack, Scope
from vfl_node.privacy.attacks.transcript import Batch


def scores(rows: Tensor) -> Tensor:
    """|⟨z − μ, v⟩| of each row z, with μ the mean row and v the main direction of Z − μ.

    Args:
        rows: Z, float[B, d], one batch: gradients; or embeddings, with the labels used where
            the attacker has them (:func:`append_labels`).

    Returns:
        float64[B] on the CPU; larger: more likely synthetic.

    Cost: B·d² multiplications, and the eigenvectors of a d × d matrix.
    """
    rows = rows.double().cpu()
    centred = rows - rows.mean(dim=0)  # (B, d)
    return (centred @ main_direction(centred)).abs()


def main_direction(rows: Tensor) -> Tensor:
    """The top right singular vector of Z, float64[B, d] → float64[d]: the main eigenvector of the Gram matrix ZᵀZ."""
    return torch.linalg.eigh(rows.mT @ rows).eigenvectors[:, -1]  # eigenvalues ascend


def append_labels(transcript: Sequence[Batch], labels: NDArray[np.float32]) -> list[Batch]:
    """Embeddings with the labels used beside them, [f ‖ y], which is what the active party knows.

    Args:
        transcript: embeddings, as it received them.
        labels: float32[m], or float32[m, K] targets, at each shared position, real or synthetic.
    """
    columns = torch.from_numpy(labels.reshape(len(labels), -1))  # (m, 1 or K)
    return [replace(batch, rows=torch.cat([batch.rows, columns[batch.positions]], dim=1)) for batch in transcript]


class Spectral(Attack):
    """Mean AUC over steps; those with no or only synthetic rows are left out."""

    title = "spectral"
    reading = "how a row lies along the batch's main direction"
    lasts = "epoch"

    def __init__(self, truth: NDArray[np.bool_], scope: Scope) -> None:
        super().__init__(truth, scope)
        self._sum, self._steps, self._rows = 0.0, 0, 0

    @override
    def see(self, batch: Batch) -> None:
        judged = self._scope.select_together(batch)
        if judged is None:
            return
        projections = scores(judged.rows).numpy()
        value = auc(self._truth[judged.positions], projections)
        if value is not None:
            self._sum, self._steps, self._rows = self._sum + value, self._steps + 1, self._rows + len(projections)

    @override
    def score(self) -> float | None:
        return self._sum / self._steps if self._steps else None

    @property
    def judged(self) -> int:
        """As :attr:`~vfl_node.privacy.attacks.attack.Attack.judged`, all steps together."""
        return self._rows

    @override
    def state(self) -> dict[str, Tensor]:
        return {"sums": torch.tensor([self._sum, self._steps, self._rows], dtype=torch.float64)}

    @override
    def restore(self, state: Mapping[str, Tensor]) -> None:
        total, steps, rows = state["sums"].tolist()
        self._sum, self._steps, self._rows = total, int(steps), int(rows)
