"""Made-up labels: one for all, drawn, or what the model says; ``neighbors`` stands beside."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from vfl_node.training.split.missing.labels.contract import Known, Step
from vfl_node.training.split.missing.labels.specs import RandomPred
from vfl_node.training.split.missing.strategies import LabelStrategy


def majority(strategy: LabelStrategy, known: Known) -> Fixed:
    """The most frequent class of the real labels; the lower one if two are even.

    Meant for two classes of unequal frequency: hardly any gradient comes from a label that
    the model expects anyway. It lowers every probability, which calibration undoes.

    Leaks: little by the spectral attack (the paper: AUC .56 to .58), because most real labels are the same.
    Source: Song et al. 2021, section 4.1, "label-majority".
    """
    return constant(known, int(known.ranked[0]))


class Fixed:
    """One label a shared position.

    Args:
        labels: float32[m], 0 … classes−1; scaled targets of a regression.
        classes: number of classes K; 0 in a regression.
        rate: share of class 1 among them; the mean of targets.
    """

    def __init__(self, labels: NDArray[np.float32], classes: int, rate: float) -> None:
        self.labels = labels
        self.rate = rate
        self._classes = classes

    def targets(self, step: Step) -> Tensor:
        """As :meth:`Labels.targets`."""
        labels = torch.from_numpy(self.labels[step.positions]).to(step.real.device)  # (B,)
        return labels if self._classes <= 2 else one_hot(labels.long(), self._classes).float()  # or (B, K)


def constant(known: Known, label: int) -> Fixed:
    """``label`` for every row."""
    return Fixed(np.full(known.shared, label, dtype=np.float32), known.classes, float(label == 1))


def mean(strategy: LabelStrategy, known: Known) -> Fixed:
    """The mean of the real targets for every row: no noise, as majority has none for classes; it draws predictions to the mean.

    Leaks: all made-up targets are the same, which real ones hardly ever are.
    """
    value = float(known.labels.mean())
    return Fixed(np.full(known.shared, value, dtype=np.float32), known.classes, value)


def minority(strategy: LabelStrategy, known: Known) -> Fixed:
    """The least frequent class among those that occur; the higher one if two are even.

    For comparison with ``majority``: what the model does not expect gives long gradients.

    Leaks: more than ``majority`` (the paper: AUC .58 to .65 by the spectral attack).
    Source: Song et al. 2021, section 4.1, "label-minority".
    """
    occurring = np.count_nonzero(known.counts)
    return constant(known, int(known.ranked[occurring - 1]))


def random_pos(strategy: LabelStrategy, known: Known) -> Fixed:
    """A random real label for every shared position, one draw for the whole job.

    The draw at a position depends on this party's seed and the position alone, never on who
    owns which row. Redrawn in every step it would be told apart over the epochs (AUC .68, .78
    and .97 after two, three and ten).

    Source: Song et al. 2021, section 4.1, "label-random-pos"; the fixed draw is ours.
    """
    drawn = known.labels[known.randomness.derive("random-pos").choices(len(known.labels), known.shared)]
    return Fixed(drawn, known.classes, float((known.labels == 1).mean()))


class PredictedLabels:
    """Labels drawn by the model's probability P' in every step; their mean over R draws is the target.

    The gradient of such a label is P' − y, whose expectation is zero: it does not bias the
    model, for any number of classes. It only adds noise, which shrinks as 1/R; but with it
    shrinks the gradient that hides the row.

    Leaks: nothing to the spectral attack for one draw (the paper: AUC .50), more with each (.74 for R = 10). To others much
        more: gradients of a mean are short, and their norm tells them within the first epoch (folded AUC .72, .81 and .98
        for R = 2, 3 and 10 on a made-up table, more with several classes); and a position's gradients of two epochs
        differ (.74 and .94 after two and five epochs with two classes, .86 and 1.00 with four).

    Source: Song et al. 2021, section 4.1 and Appendix H, "label-random-pred".
    """

    rate: Literal["model"] = "model"

    def __init__(self, strategy: RandomPred, known: Known) -> None:
        self._draws, self._randomness = strategy.draws, known.randomness.derive("random-pred")

    def targets(self, step: Step) -> Tensor:
        """As :meth:`Labels.targets`. Costs B·R·K comparisons; the same step gives the same uniform numbers."""
        seen = step.seen.detach().double().cpu().numpy()
        binary = seen.ndim == 1
        bounds = 1 - seen[:, None] if binary else np.cumsum(seen, axis=1)[:, :-1]  # (B, K−1), upper ends of the classes
        uniform = self._randomness.derive(f"step/{step.number}").uniform((self._draws, len(seen), 1))
        shares = np.zeros((len(seen), bounds.shape[1] + 1), dtype=np.float32)  # (B, K)
        rows = np.arange(len(seen))
        for draw in uniform:
            shares[rows, (draw >= bounds).sum(axis=1)] += 1
        shares /= self._draws
        return torch.from_numpy(shares[:, 1] if binary else shares).to(step.real.device)


MOST_DECIMALS = 9
"""Targets that need more decimals are taken as continuous."""


def sampled(strategy: LabelStrategy, known: Known) -> Fixed:
    """A target for every shared position from the distribution of the real ones, one draw for the whole job.

    The draw at a position depends on this party's seed and the position alone, as with random-pos. It lies between two
    neighbouring real targets and has as many decimals as they have: a copy of a real target would repeat it, which real ones
    of a continuous target do not, and a number with other decimals would stand out, too.
    """
    assert known.scale is not None
    real = known.scale.undo(known.labels)
    drawn = np.quantile(real, known.randomness.derive("sampling").uniform((known.shared,)))
    decimals = _decimals(real)
    drawn = drawn if decimals is None else np.round(drawn, decimals)
    return Fixed(known.scale.apply(drawn).astype(np.float32), known.classes, float(known.labels.mean()))


def _decimals(values: NDArray[np.float64]) -> int | None:
    """How many decimals ``values`` have at most; None for more than :data:`MOST_DECIMALS`."""
    close = 1e-12 * float(np.abs(values).max())
    fitting = (count for count in range(MOST_DECIMALS + 1) if (np.abs(np.round(values, count) - values) <= close).all())
    return next(fitting, None)
