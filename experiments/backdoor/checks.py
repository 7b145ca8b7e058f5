"""Checks that an active party could make of a passive one, by what it has: embeddings, own columns, own labels and the top.

Of a whole training, larger where something is wrong:

- ``unlike``: trained embeddings far from all held-out ones; the product's own (:mod:`vfl_node.privacy.integrity`);
- ``clusters``: silhouette of two clusters of the embeddings of negative rows, if the smaller one has at most 35 % of them
  (Chen et al. 2018, activation clustering);
- ``influence``: how differently the embeddings of trained and of held-out negative rows alone drive the logit (the distance of
  Kolmogorov and Smirnov);
- ``agreement``: mean difference of the prediction of a held-out row to that of its ten neighbours by the own columns.

Of a single prediction, calibrated so that 5 % of the honest ones are found: the same difference to its neighbours
(:func:`disagreeing`), and the distance to the nearest held-out embedding (:func:`far`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score
from sklearn.neighbors import NearestNeighbors

from experiments.backdoor.halves import Embeddings, Seen

Flags = NDArray[np.bool_]

NEIGHBOURS = 10
PROBES = 32
"""Own rows beside which the influence of an embedding is measured."""


def probability(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability of a positive label."""
    return 1 / (1 + np.exp(-logits))


def _share_unlike(seen: Seen) -> float:
    return seen.active.share_unlike(seen.shown)


def _clusters(seen: Seen) -> float:
    rows = seen.trained[seen.labels[seen.training] == 0][:1500] / (seen.shown.std(axis=0) + 1e-9)
    found = KMeans(2, n_init=5, random_state=0).fit(rows)
    smaller = min(found.labels_.mean(), 1 - found.labels_.mean())
    return float(silhouette_score(rows, found.labels_)) if smaller <= 0.35 else 0.0


def _influence(seen: Seen) -> float:
    def log_odds(embeddings: Embeddings) -> NDArray[np.float64]:
        probes = seen.held_out[:: len(seen.held_out) // PROBES]
        return np.mean([seen.active.says(np.full(len(embeddings), row), embeddings) for row in probes], axis=0)

    trained, held_out = (seen.labels[rows] == 0 for rows in (seen.training, seen.held_out))
    return float(ks_2samp(log_odds(seen.trained[trained]), log_odds(seen.shown[held_out])).statistic)


def _agreement(seen: Seen) -> float:
    said = probability(seen.active.says(seen.held_out, seen.shown))
    return float(np.abs(_expected(seen) - said).mean())


CHECKS: Mapping[str, Callable[[Seen], float]] = {
    "unlike": _share_unlike,
    "clusters": _clusters,
    "influence": _influence,
    "agreement": _agreement,
}


def disagreeing(seen: Seen, sent: Embeddings) -> Flags:
    """Which predictions of held-out rows by the embeddings ``sent`` are below what their neighbours lead one to expect."""
    expected = _expected(seen)
    limit = np.quantile(expected - probability(seen.active.says(seen.held_out, seen.shown)), 0.95)
    return expected - probability(seen.active.says(seen.held_out, sent)) > limit


def far(seen: Seen, sent: Embeddings) -> Flags:
    """Which embeddings ``sent`` are far from all of held-out rows."""
    spread = seen.shown.std(axis=0) + 1e-9
    near = NearestNeighbors(n_neighbors=2).fit(seen.shown / spread)
    usual = near.kneighbors(seen.shown / spread)[0][:, 1]
    return near.kneighbors(sent / spread, 1)[0][:, 0] > np.quantile(usual, 0.95)


def _expected(seen: Seen) -> NDArray[np.float64]:
    """Mean prediction of each held-out row's neighbours by the own columns."""
    own = seen.active.own(seen.held_out)
    near = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(own).kneighbors(own)[1][:, 1:]
    return probability(seen.active.says(seen.held_out, seen.shown))[near].mean(axis=1)
