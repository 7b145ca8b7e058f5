"""Attacks on labels of more than two classes: a score of each row for each of K unnamed groups, float32[k, K].

The gradient of a softmax is the difference of predicted and true class in the directions of the last layer, so each class has
directions of its own. Which group is which class an attacker learns from how frequent classes are, or from a few known labels;
so groups are named in the way that tells most.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.privacy.labels.attacks import FIRM, Attacks, Blind
from vfl_node.privacy.labels.shown import Known, Shown, ridge, standardised

STARTS = 5
"""Of the centres, of which the best ones count."""

SOUGHT = 1024
"""Rows among which centres are sought; all rows are then told by the nearest one."""

MOST_MOVES = 30
"""Of the centres of one start."""


def of_classes(classes: int) -> Attacks:
    """All attacks on labels of so many classes."""
    blind: Mapping[str, Blind] = {
        "class_directions": partial(_directions, classes=classes),
        "class_mean_directions": partial(_mean_directions, classes=classes),
        "class_embeddings": partial(_embeddings, classes=classes),
        "class_joined": partial(_joined, classes=classes),
    }
    return Attacks(blind, {"class_known_rows": _known_rows}, ("class_mean_directions", "class_joined"))


def _directions(shown: Shown, *, classes: int) -> Tensor:
    """Clusters of the directions of an epoch's gradients."""
    return nearness(torch.nn.functional.normalize(shown.gradients, dim=1), classes)


def _mean_directions(shown: Shown, *, classes: int) -> Tensor:
    """The same of the means over epochs."""
    return nearness(torch.nn.functional.normalize(shown.means, dim=1), classes)


def _embeddings(shown: Shown, *, classes: int) -> Tensor:
    """Clusters of embeddings."""
    return nearness(standardised(shown.embeddings), classes)


def _joined(shown: Shown, *, classes: int) -> Tensor:
    """Clusters of both side by side."""
    directions = torch.nn.functional.normalize(shown.means, dim=1)
    return nearness(torch.cat([standardised(directions), standardised(shown.embeddings)], dim=1), classes)


def _known_rows(shown: Shown, known: Known) -> Tensor:
    """A linear function of mean directions and embeddings for each class, learnt from the known rows."""
    directions = torch.nn.functional.normalize(shown.means, dim=1)
    views = torch.cat([standardised(directions), standardised(shown.embeddings)], dim=1)
    return ridge(views[known.rows], known.targets, FIRM)(views)


def nearness(rows: Tensor, groups: int) -> Tensor:
    """Minus the distance of each of ``rows``, float32[k, d], to each of so many centres, float32[k, groups] (k-means).

    Starts are drawn by the rule of k-means++ from a fixed seed: they hide nothing.
    """
    drawn = Randomness(bytes(32)).derive("centres")
    among = rows[torch.from_numpy(np.sort(drawn.permutation(len(rows))[:SOUGHT]))]
    best: tuple[float, Tensor] | None = None
    for _ in range(STARTS):
        centres = _start(among, groups, drawn)
        nearest = torch.zeros(0)
        for _ in range(MOST_MOVES):
            moved = torch.cdist(among, centres).argmin(dim=1)
            if len(nearest) and bool((moved == nearest).all()):
                break
            nearest = moved
            members = torch.nn.functional.one_hot(nearest, groups).float()
            sizes = members.sum(dim=0)
            centres = torch.where((sizes > 0)[:, None], members.T @ among / sizes.clamp_min(1)[:, None], centres)
        spread = float(torch.cdist(among, centres).amin(dim=1).square().sum())
        if best is None or spread < best[0]:
            best = spread, centres
    assert best is not None
    return -torch.cdist(rows, best[1])


def _start(rows: Tensor, groups: int, drawn: Randomness) -> Tensor:
    """Rows as first centres, each drawn by its squared distance to those before."""
    centres = rows[drawn.below(len(rows))][None]
    for _ in range(groups - 1):
        away = torch.cdist(rows, centres).amin(dim=1).square().double().cumsum(dim=0)
        place = int(torch.searchsorted(away, float(drawn.uniform((1,))[0]) * float(away[-1]), right=True))
        centres = torch.cat([centres, rows[min(place, len(rows) - 1)][None]])
    return centres
