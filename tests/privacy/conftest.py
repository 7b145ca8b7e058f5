"""Asymmetric logistic regression in the clear: what each party sees, without the encryption that hides the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from vfl_node.privacy.attacks.residuals import Round

Floats = NDArray[np.float64]
RATE, L2 = 0.5, 0.01


@dataclass(frozen=True, eq=False)
class Asymmetric:
    """x and the rounds are the passive party's, scores cross, residuals and genuine are the active party's."""

    x: Floats
    genuine: NDArray[np.bool_]
    rounds: list[Round]
    weights: Floats  # (T, d_s)
    intercepts: Floats  # (T,)
    scores: Floats  # (m, T + 1)
    residuals: Floats  # (m, T)


@pytest.fixture
def asymmetric() -> Callable[..., Asymmetric]:
    """``asymmetric(m, d_s, rounds …)``: half of m rows genuine, normal columns, weights that start at random."""

    def train(
        m: int,
        width: int,
        rounds: int,
        *,
        batch: int = 0,
        own: int = 15,
        seed: int = 0,
        x: Floats | None = None,
        l2: float = 0.0,
    ) -> Asymmetric:
        random = np.random.default_rng(seed)
        x = random.normal(size=(m, width)) if x is None else x
        w = np.hstack([random.normal(size=(m, own)), np.ones((m, 1))])
        true = random.normal(size=width + own)
        z = 2 * np.hstack([x, w[:, :-1]]) @ true / np.linalg.norm(true)
        y = random.random(m) < 1 / (1 + np.exp(-z))
        genuine = random.permutation(m) < m // 2
        passive, active = random.normal(size=width) * 0.01, np.append(random.normal(size=own) / max(own, 1) ** 0.5, 0)
        made, weights, intercepts, scores, residuals = [], [], [], [x @ passive], []
        for _ in range(rounds):
            rows = random.permutation(m)[:batch] if batch else np.arange(m)
            d = np.zeros(m)
            h = 1 / (1 + np.exp(-(x @ passive + w @ active)))
            d[rows] = np.where(genuine, h - y, 0)[rows] / max(genuine[rows].sum(), 1)
            made.append(Round(rows, x.T @ d))
            weights.append(passive)
            intercepts.append(active[-1])
            passive = passive - RATE * (x.T @ d + l2 * passive)
            active = active - RATE * (w.T @ d + l2 * active)
            scores.append(x @ passive)
            residuals.append(d)
        return Asymmetric(x, genuine, made, np.array(weights), np.array(intercepts), np.array(scores).T, np.array(residuals).T)

    return train
