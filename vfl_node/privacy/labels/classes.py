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
from vfl_node.privacy.labels.shown import KnownRows, Shown, ridge, standardise

STARTS = 3
"""Random starts of the centres, of which the best ones count."""

SOUGHT = 1024
"""Rows among which centres are sought; then they move a few times more among all rows."""

MOST_MOVES, LAST_MOVES = 10, 5
"""Moves of the centres of one start, and of the best ones among all rows."""


def class_attacks(classes: int) -> Attacks:
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
    return nearness(shown.standard_embeddings, classes)


def _joined(shown: Shown, *, classes: int) -> Tensor:
    """Clusters of both side by side."""
    directions = torch.nn.functional.normalize(shown.means, dim=1)
    return nearness(torch.cat([standardise(directions), shown.standard_embeddings], dim=1), classes)


def _known_rows(shown: Shown, known: KnownRows) -> Tensor:
    """A linear function of mean directions and embeddings for each class, learnt from the known rows."""
    directions = torch.nn.functional.normalize(shown.means, dim=1)
    views = torch.cat([standardise(directions), shown.standard_embeddings], dim=1)
    return ridge(views[known.rows], known.targets, FIRM)(views)


def nearness(rows: Tensor, groups: int) -> Tensor:
    """Minus the distance of each of ``rows``, float32[k, d], to each of so many centres, float32[k, groups] (k-means).

    Starts are drawn by the rule of k-means++ from a fixed seed: they hide nothing.
    """
    drawn = Randomness(bytes(32)).derive("centres")
    among = rows[torch.from_numpy(np.sort(drawn.permutation(len(rows))[:SOUGHT]))]
    starts = [_move_centres(among, _start(among, groups, drawn), MOST_MOVES) for _ in range(STARTS)]
    best = min(starts, key=lambda centres: float(torch.cdist(among, centres).amin(dim=1).square().sum()))
    return -torch.cdist(rows, _move_centres(rows, best, LAST_MOVES))


def _move_centres(rows: Tensor, centres: Tensor, most: int) -> Tensor:
    """Centres after at most so many moves, each to the mean of the rows that are nearest to it (Lloyd)."""
    nearest = torch.zeros(0)
    for _ in range(most):
        moved = (rows @ centres.T - centres.square().sum(dim=1) / 2).argmax(dim=1)
        if len(nearest) and bool((moved == nearest).all()):
            break
        nearest = moved
        members = (nearest[:, None] == torch.arange(len(centres))).float()
        sizes = members.sum(dim=0)
        centres = torch.where((sizes > 0)[:, None], members.T @ rows / sizes.clamp_min(1)[:, None], centres)
    return centres


def _start(rows: Tensor, groups: int, drawn: Randomness) -> Tensor:
    """Rows as first centres, each drawn by its squared distance to those before."""
    centres = rows[drawn.draw_below(len(rows))][None]
    for _ in range(groups - 1):
        away = torch.cdist(rows, centres).amin(dim=1).square().double().cumsum(dim=0)
        place = int(torch.searchsorted(away, float(drawn.uniform((1,))[0]) * float(away[-1]), right=True))
        centres = torch.cat([centres, rows[min(place, len(rows) - 1)][None]])
    return centres
