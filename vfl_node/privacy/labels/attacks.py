"""Attacks on labels by a passive party: tensors in, a score for each row out. Those of two classes, and of numbers.

Each attack gives a number for each row; how well it ranks positives before negatives (larger numbers before smaller ones) is
its AUC. Which side is which an attacker learns from the base rate or from one known label, so an AUC is folded: .3 is as .7.

* ``norm``, ``direction``, ``residual``, ``cosine``: one gradient a row, of one epoch.
* ``mean_…``: the same of the mean of a row's gradients over all epochs so far. Noise of mean zero vanishes from it.
* ``steady``: the sum of projections on each epoch's leading direction, in units of each step.
* ``clusters``, ``clusters_soft``: two clusters of these means; ``embeddings``, ``embeddings_soft``: two of embeddings, which
  training pulls apart by class, whatever was done to the gradients.
* ``joined``: gradients and embeddings together, which err for different reasons. ``pseudo_labels``: what is learnt from the
  rows that this finds likeliest, applied to all of them.
* ``known_rows``: what is learnt from a few rows whose labels are known; ``known_joined``: with ``joined`` beside it.

Sources: Li et al. 2022 (ICLR), section 3, for norm and cosine; Sun et al. 2022 (arXiv 2203.01451) for direction (the leading
singular vector); Sun et al. 2021 (arXiv 2011.09290) and arXiv 2305.08328 (FedAds), section 5.2.1, for clusters; Fu et al. 2022
(USENIX Security) for a head that is learnt from few known rows (model completion).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vfl_node.privacy.labels.shown import KnownRows, Shown, agreeing, reach_across, ridge, standardise

FIRM = 30.0
"""Weight of a ridge over few known rows, of standardised columns."""

Blind = Callable[[Shown], Tensor]
"""An attack that knows no label: what one attacker has of k rows → a score of each, float32[k] (or one a class, [k, c])."""

Informed = Callable[[Shown, KnownRows], Tensor]
"""One that knows some."""


@dataclass(frozen=True)
class Attacks:
    """All attacks on labels of one kind.

    Attributes:
        blind: name → attack that knows none.
        informed: name → attack that knows some rows' labels.
        summed: names of the blind attacks whose scores add up over trainings. Embeddings err alike in all of them, and help
            less there than in one; so there is one without them.
    """

    blind: Mapping[str, Blind]
    informed: Mapping[str, Informed]
    summed: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all attacks."""
        return (*self.blind, *self.informed)


def norm(shown: Shown) -> Tensor:
    """How long a row's gradient is."""
    return torch.linalg.vector_norm(shown.gradients, dim=1)


def direction(shown: Shown) -> Tensor:
    """How far it reaches along the leading direction of the rows that came with it."""
    return shown.window_reach[0]


def residual(shown: Shown) -> Tensor:
    """How far it reaches across that direction."""
    return shown.window_reach[1]


def cosine(shown: Shown, known: KnownRows) -> Tensor:
    """How like its direction is to that of known positives."""
    return _likeness(shown.gradients, known.positives)


def mean_norm(shown: Shown) -> Tensor:
    """As :func:`norm`, of the mean over epochs."""
    return torch.linalg.vector_norm(shown.means, dim=1)


def mean_direction(shown: Shown) -> Tensor:
    """As :func:`direction`, of the mean over epochs."""
    return shown.reach


def mean_residual(shown: Shown) -> Tensor:
    """As :func:`residual`, of the mean over epochs."""
    return reach_across(shown.means, shown.direction)


def mean_cosine(shown: Shown, known: KnownRows) -> Tensor:
    """As :func:`cosine`, of the mean over epochs."""
    return _likeness(shown.means, known.positives)


def steady(shown: Shown) -> Tensor:
    """As :class:`~vfl_node.privacy.labels.shown.Course` has it."""
    return shown.steady


def clusters(shown: Shown) -> Tensor:
    """Which of two clusters of means it is in: 0 or 1."""
    return (shown.mean_clusters > 0).float()


def clusters_soft(shown: Shown) -> Tensor:
    """How much nearer it is to one centre of these than to the other."""
    return shown.mean_clusters


def embeddings(shown: Shown) -> Tensor:
    """Which of two clusters of embeddings the row is in: 0 or 1."""
    return (shown.embedding_clusters > 0).float()


def embeddings_soft(shown: Shown) -> Tensor:
    """How much nearer its embedding is to one centre of these than to the other."""
    return shown.embedding_clusters


def joined(shown: Shown) -> Tensor:
    """:func:`mean_direction` and :func:`embeddings_soft`, standardised and added."""
    return shown.joined


def pseudo_labels(shown: Shown) -> Tensor:
    """A linear function of means and embeddings that is learnt from :func:`joined`: the rows on its longer side are positives.

    An attacker knows about how many positives there are; here it is taken to know only that they are fewer.
    """
    score = standardise(shown.joined)
    score = -score if bool(score.pow(3).mean() < 0) else score
    likely = (score > 1).float()[:, None]
    return ridge(shown.views, likely, 1.0)(shown.views)[:, 0]


def known_rows(shown: Shown, known: KnownRows) -> Tensor:
    """A linear function of :func:`mean_direction`, :func:`steady` and embeddings that is learnt from the known rows."""
    return ridge(shown.paths[known.rows], known.targets, FIRM)(shown.paths)[:, 0]


def known_joined(shown: Shown, known: KnownRows) -> Tensor:
    """:func:`known_rows` and :func:`joined`, standardised and added."""
    learnt = known_rows(shown, known)
    return standardise(learnt) + agreeing(learnt, shown.joined)


def leading_embeddings(shown: Shown) -> Tensor:
    """How far an embedding reaches along the leading direction of all, around their mean."""
    rows = shown.standard_embeddings
    return rows @ torch.linalg.eigh(rows.T @ rows).eigenvectors[:, -1]


def joined_numbers(shown: Shown) -> Tensor:
    """:func:`mean_direction` and :func:`leading_embeddings`, standardised and added."""
    return standardise(shown.reach) + agreeing(shown.reach, leading_embeddings(shown))


def _index_by_name(*attacks: Callable[..., Tensor]) -> dict[str, Callable[..., Tensor]]:
    return {attack.__name__: attack for attack in attacks}


OF_TWO_CLASSES = Attacks(
    _index_by_name(
        norm,
        direction,
        residual,
        mean_norm,
        mean_direction,
        mean_residual,
        steady,
        clusters,
        clusters_soft,
        embeddings,
        embeddings_soft,
        joined,
        pseudo_labels,
    ),
    _index_by_name(cosine, mean_cosine, known_rows, known_joined),
    ("mean_direction", "joined"),
)

OF_NUMBERS = Attacks(
    {**_index_by_name(direction, mean_direction, steady, leading_embeddings), "joined": joined_numbers},
    _index_by_name(known_rows),
    ("mean_direction", "steady", "joined"),
)


def _likeness(rows: Tensor, known: Tensor) -> Tensor:
    directions = torch.nn.functional.normalize(rows, dim=1)
    return directions @ directions[known].sum(dim=0)
