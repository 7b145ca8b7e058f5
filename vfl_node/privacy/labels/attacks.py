"""Attacks on labels of two classes, by a passive party: tensors in, a score for each row out.

Each attack gives a number for each row; how well it ranks positives before negatives is its AUC. Which side is which an
attacker learns from the base rate or from one known label, so an AUC is folded: .3 counts as .7.

* ``norm``, ``direction``, ``residual``, ``cosine``: one gradient a row, of one epoch.
* ``mean_…``: the same of the mean of a row's gradients over all epochs so far. Noise of mean zero vanishes from it.
* ``clusters``, ``clusters_soft``: two clusters of these means; ``embeddings``, ``embeddings_soft``: two of embeddings, which
  training pulls apart by class, whatever was done to the gradients.

Sources: Li et al. 2022 (ICLR), section 3, for norm and cosine; Sun et al. 2022 (arXiv 2203.01451) for direction (the leading
singular vector); Sun et al. 2021 (arXiv 2011.09290) and arXiv 2305.08328 (FedAds), section 5.2.1, for clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vfl_node.privacy.labels.spectrum import leading

MOST_MOVES = 30
"""Of the centres of two clusters."""


@dataclass(frozen=True, eq=False)
class Shown:
    """What one attacker has of the rows that are judged, in the order of these rows.

    Attributes:
        gradients: float32[k, d], of this epoch, as if each were of its row's own loss.
        windows: int64[w] each, numbers of the rows that came together, in the order in which they came.
        means: float32[k, d], means of the gradients over all epochs.
        embeddings: float32[k, e], of this epoch.
        known: int64[n], numbers of rows that the attacker knows to be positive.
    """

    gradients: Tensor
    windows: Sequence[Tensor]
    means: Tensor
    embeddings: Tensor
    known: Tensor


def norm(shown: Shown) -> Tensor:
    """How long a row's gradient is."""
    return torch.linalg.vector_norm(shown.gradients, dim=1)


def direction(shown: Shown) -> Tensor:
    """How far it reaches along the leading direction of the rows that came with it."""
    return _by_window(shown, lambda rows, along: rows @ along)


def residual(shown: Shown) -> Tensor:
    """How far it reaches across that direction."""
    return _by_window(shown, _across)


def cosine(shown: Shown) -> Tensor:
    """How like its direction is to that of known positives."""
    return _likeness(shown.gradients, shown.known)


def mean_norm(shown: Shown) -> Tensor:
    """As :func:`norm`, of the mean over epochs."""
    return torch.linalg.vector_norm(shown.means, dim=1)


def mean_direction(shown: Shown) -> Tensor:
    """As :func:`direction`, of the mean over epochs."""
    return shown.means @ leading(shown.means)


def mean_residual(shown: Shown) -> Tensor:
    """As :func:`residual`, of the mean over epochs."""
    return _across(shown.means, leading(shown.means))


def mean_cosine(shown: Shown) -> Tensor:
    """As :func:`cosine`, of the mean over epochs."""
    return _likeness(shown.means, shown.known)


def clusters(shown: Shown) -> Tensor:
    """Which of two clusters of means it is in: 0 or 1."""
    return (two_clusters(shown.means) > 0).float()


def clusters_soft(shown: Shown) -> Tensor:
    """How much nearer it is to one centre of these than to the other."""
    return two_clusters(shown.means)


def embeddings(shown: Shown) -> Tensor:
    """Which of two clusters of embeddings the row is in: 0 or 1."""
    return (two_clusters(shown.embeddings) > 0).float()


def embeddings_soft(shown: Shown) -> Tensor:
    """How much nearer its embedding is to one centre of these than to the other."""
    return two_clusters(shown.embeddings)


LABEL_ATTACKS: Mapping[str, Callable[[Shown], Tensor]] = {
    attack.__name__: attack
    for attack in (
        norm,
        direction,
        residual,
        cosine,
        mean_norm,
        mean_direction,
        mean_residual,
        mean_cosine,
        clusters,
        clusters_soft,
        embeddings,
        embeddings_soft,
    )
}
"""Name → the attack: what one attacker has of k rows → a score of each, float32[k]."""


def two_clusters(rows: Tensor) -> Tensor:
    """Distance of each of ``rows``, float32[k, d], to one of two centres less that to the other, float32[k] (2-means).

    The centres start as the means of both halves along the leading direction around the mean.
    """
    centred = rows - rows.mean(dim=0)
    side = centred @ leading(centred)
    second = side > side.median()
    for _ in range(MOST_MOVES):
        if not 0 < int(second.sum()) < len(rows):
            return torch.zeros(len(rows))
        centres = torch.stack([rows[~second].mean(dim=0), rows[second].mean(dim=0)])
        distances = torch.cdist(rows, centres)
        moved = distances[:, 1] < distances[:, 0]
        if bool((moved == second).all()):
            break
        second = moved
    return distances[:, 0] - distances[:, 1]


def _by_window(shown: Shown, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Scores by the leading direction of each window, whose sign is that of the window before."""
    scores = torch.zeros(len(shown.gradients))
    before: Tensor | None = None
    for window in shown.windows:
        rows = shown.gradients[window]
        along = leading(rows)
        if before is not None and along @ before < 0:
            along = -along
        scores[window] = score(rows, along)
        before = along
    return scores


def _across(rows: Tensor, along: Tensor) -> Tensor:
    return torch.linalg.vector_norm(rows - (rows @ along)[:, None] * along, dim=1)


def _likeness(rows: Tensor, known: Tensor) -> Tensor:
    directions = torch.nn.functional.normalize(rows, dim=1)
    return directions @ directions[known].sum(dim=0)
