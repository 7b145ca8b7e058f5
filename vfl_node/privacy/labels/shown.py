"""What one attacker on labels has: gradients of rows, epoch by epoch, and the embeddings that it sent itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from vfl_node.privacy.labels.spectrum import leading
from vfl_node.privacy.silent import attempt

MOST_MOVES = 30
"""Moves of the centres of two clusters."""

FADING = 1 / 3
"""By how much an epoch's evidence counts less than that of the one before, as an exponent: the first tell most."""


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Rows whose labels the attacker knows.

    Attributes:
        rows: int64[n], their numbers.
        targets: float32[n, c], of each: 1 for a positive and 0 for others; its number; or 1 in the column of its class.
    """

    rows: Tensor
    targets: Tensor

    @property
    def positives(self) -> Tensor:
        """int64[·], those with a 1 in the first column."""
        return self.rows[self.targets[:, 0] == 1]


@dataclass(frozen=True, eq=False)
class Shown:
    """What one attacker has of the rows that are judged, in the order of these rows.

    Attributes:
        gradients: float32[k, d], of this epoch, as if each were of its row's own loss.
        windows: int64[w] each, numbers of the rows that came together, in the order in which they came.
        means: float32[k, d], means of the gradients over all epochs.
        steady: float32[k], see :class:`Course`.
        embeddings: float32[k, e], of this epoch.
    """

    gradients: Tensor
    windows: Sequence[Tensor]
    means: Tensor
    steady: Tensor
    embeddings: Tensor

    @cached_property
    def window_reach(self) -> tuple[Tensor, Tensor]:
        """How far each gradient reaches along the leading direction of its window, and across it, float32[k] each.

        The sign of a direction is that of the window before.
        """
        reach, across = torch.zeros(len(self.gradients)), torch.zeros(len(self.gradients))
        before: Tensor | None = None
        for window in self.windows:
            rows = self.gradients[window]
            before = align(leading(rows), before)
            reach[window], across[window] = rows @ before, reach_across(rows, before)
        return reach, across

    @cached_property
    def direction(self) -> Tensor:
        """float32[d], the leading direction of the means."""
        return leading(self.means)

    @cached_property
    def reach(self) -> Tensor:
        """How far each mean reaches along it, float32[k]."""
        return self.means @ self.direction

    @cached_property
    def mean_clusters(self) -> Tensor:
        """How much nearer each mean is to one of two centres than to the other, float32[k]."""
        return two_clusters(self.means)

    @cached_property
    def embedding_clusters(self) -> Tensor:
        """The same of embeddings."""
        return two_clusters(self.embeddings)

    @cached_property
    def views(self) -> Tensor:
        """float32[k, d + e], means and embeddings side by side, standardised."""
        return torch.cat([standardise(self.means), self.standard_embeddings], dim=1)

    @cached_property
    def standard_embeddings(self) -> Tensor:
        """float32[k, e], embeddings standardised."""
        return standardise(self.embeddings)

    @cached_property
    def paths(self) -> Tensor:
        """float32[k, 2 + e], the means' reach, ``steady`` and embeddings side by side, standardised."""
        return torch.cat([standardise(torch.stack([self.reach, self.steady], dim=1)), self.standard_embeddings], dim=1)

    @cached_property
    def joined(self) -> Tensor:
        """The means' reach and the clusters of embeddings, standardised and added, float32[k]."""
        return standardise(self.reach) + agreeing(self.reach, self.embedding_clusters)


class Course:
    """What adds up over the epochs of one attacker.

    ``steady``: where noise is as long as the longest gradient of a step, or all are cut to one length, the step's scale tells
    more than the mean over epochs does. So each gradient is divided by the median length of its window, projected on the
    epoch's leading direction, put on the window's robust scale, and the epochs are added, the first ones with most weight.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self._means: Tensor | None = None
        self._steady = torch.zeros(0)
        self._along: Tensor | None = None

    def epoch_done(self, gradients: Tensor, windows: Sequence[Tensor], embeddings: Tensor) -> Shown:
        """What the attacker has after one more epoch; args as :class:`Shown`."""
        weight = math.exp(-FADING * self.epochs)
        self.epochs += 1
        if self._means is None:
            self._means, self._steady = gradients.clone(), torch.zeros(len(gradients))
        else:
            self._means = self._means + (gradients - self._means) / self.epochs
        reach = attempt(partial(self._reach, gradients, windows))
        self._steady = self._steady + (torch.nan if reach is None else weight * reach)
        return Shown(gradients, windows, self._means, self._steady, embeddings)

    def _reach(self, gradients: Tensor, windows: Sequence[Tensor]) -> Tensor:
        """What one epoch adds to ``steady``, float32[k]."""
        even, reach = torch.zeros_like(gradients), torch.zeros(len(gradients))
        for window in windows:
            rows = gradients[window]
            even[window] = rows / torch.linalg.vector_norm(rows, dim=1).median().clamp_min(TINY)
        self._along = align(leading(even), self._along)
        along = even @ self._along
        for window in windows:
            centred = along[window] - along[window].median()
            scale = centred.abs().median()
            reach[window] = centred / scale if scale > TINY else torch.zeros(len(window))
        return reach

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint at the end of an epoch must hold."""
        assert self._means is not None
        along = {} if self._along is None else {"along": self._along}
        return {"epochs": torch.tensor(self.epochs), "means": self._means, "steady": self._steady, **along}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave."""
        self.epochs = int(tensors["epochs"])
        self._means, self._steady = tensors["means"].cpu(), tensors["steady"].cpu()
        self._along = tensors["along"].cpu() if "along" in tensors else None


TINY = 1e-30
"""Instead of a length or a scale of 0."""


def align(along: Tensor, before: Tensor | None) -> Tensor:
    """The direction ``along`` or its opposite, whichever is nearer to the one ``before``."""
    return -along if before is not None and bool(along @ before < 0) else along


def reach_across(rows: Tensor, along: Tensor) -> Tensor:
    """How far each row reaches across a direction."""
    return torch.linalg.vector_norm(rows - (rows @ along)[:, None] * along, dim=1)


def standardise(rows: Tensor) -> Tensor:
    """Each column around its mean, by its deviation."""
    centred = rows.double() - rows.double().mean(dim=0)
    return (centred / centred.square().mean(dim=0).sqrt().clamp_min(TINY)).float()


def agreeing(score: Tensor, other: Tensor) -> Tensor:
    """``other`` standardised, with the sign with which it goes along with ``score``."""
    one, two = standardise(score), standardise(other)
    return -two if bool((one * two).sum() < 0) else two


def two_clusters(rows: Tensor) -> Tensor:
    """Distance of each of ``rows``, float32[k, d], to one of two centres less that to the other, float32[k] (2-means).

    The centres start as the means of both halves along the leading direction around the mean.
    """
    centred = rows - rows.mean(dim=0)
    side = centred @ leading(centred)
    second = side > side.median()
    for _ in range(MOST_MOVES):
        if not 0 < (size := int(second.sum())) < len(rows):
            return torch.zeros(len(rows))
        of_second = second.float() @ centred  # the sum; that of the first centre is its opposite
        centres = torch.stack([-of_second / (len(rows) - size), of_second / size])
        moved = centred @ (centres[1] - centres[0]) > (centres[1].square().sum() - centres[0].square().sum()) / 2
        if bool((moved == second).all()):
            break
        second = moved
    distances = torch.cdist(centred, centres)
    return distances[:, 0] - distances[:, 1]


def ridge(rows: Tensor, targets: Tensor, weight: float) -> Callable[[Tensor], Tensor]:
    """A linear function of rows, float32[n, d], that fits ``targets``, float32[n, c], its weights held small by ``weight``."""
    wide = rows.double()
    wanted = targets.double() - targets.double().mean(dim=0)
    if len(wide) < wide.shape[1]:  # the same weights, by the smaller matrix
        inner = wide @ wide.T + weight * torch.eye(len(wide), dtype=torch.float64)
        weights = wide.T @ torch.linalg.solve(inner, wanted)
    else:
        inner = wide.T @ wide + weight * torch.eye(wide.shape[1], dtype=torch.float64)
        weights = torch.linalg.solve(inner, wide.T @ wanted)
    return lambda others: (others.double() @ weights).float()
