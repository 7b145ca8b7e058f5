"""What parties see: of asymmetric logistic regression, without the encryption that hides the rest, and of split training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vfl_node.crypto.randomness import Randomness
from vfl_node.models.initial_weights import initialise
from vfl_node.models.inputs import ModelInput
from vfl_node.models.networks import MlpBottom
from vfl_node.models.schema import InputSchema
from vfl_node.privacy.attacks.residuals import Round
from vfl_node.privacy.attacks.transcript import Batch

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


@dataclass(frozen=True)
class Split:
    """Split training over rows of which those of the second half are synthetic, at one party or the other.

    Columns are independent of the labels unless ``fits``, so that a synthetic row's features fit its label as well as a
    real one's: what remains to be seen is how rows are drawn.
    """

    rows: int = 600
    fits: bool = False
    learning_rate: float = 1e-3

    @property
    def synthetic(self) -> NDArray[np.bool_]:
        return np.arange(self.rows) >= self.rows // 2

    def copies(self, label: str) -> NDArray[np.int64]:
        """For every row its own number if it is real, that of a random real one if it is synthetic."""
        drawn = Randomness(b"d" * 32).derive(label).choices(self.rows // 2, self.rows)
        return np.where(self.synthetic, drawn, np.arange(self.rows))

    def transcript(
        self,
        epochs: int,
        columns: Callable[[int], NDArray[np.int64]] | None = None,
        labels: Callable[[int], NDArray[np.int64]] | None = None,
        batch: int = 100,
    ) -> list[Batch]:
        """Embeddings, and gradients of the summed loss, while a network learns.

        ``columns(epoch)`` and ``labels(epoch)`` say whose are used at each row; None: its own, which makes a synthetic row one
        of the same distribution, a copy of nobody, the same every epoch.
        """
        randomness = Randomness(b"t" * 32)
        x = torch.from_numpy(randomness.derive("columns").normal((self.rows, 6)))
        y = (x[:, 0] > 0 if self.fits else torch.from_numpy(randomness.derive("labels").uniform((self.rows,))) < 0.3).float()
        bottom = MlpBottom(InputSchema(6), (32, 16))
        top = nn.utils.skip_init(nn.Linear, 16, 1)
        for part in (bottom, top):
            initialise(part, randomness.derive("weights"))
        optimizer = torch.optim.Adam([*bottom.parameters(), *top.parameters()], lr=self.learning_rate)
        own = np.arange(self.rows)
        transcript = []
        for epoch in range(epochs):
            order = randomness.permutation(self.rows)
            whose, labelled = (own if of is None else of(epoch) for of in (columns, labels))
            for positions in np.split(order, range(batch, self.rows, batch)):
                embedding = bottom(ModelInput.from_tensors(x[whose[positions]]))
                embedding.retain_grad()
                loss = nn.functional.binary_cross_entropy_with_logits(top(embedding).squeeze(1), y[labelled[positions]])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                assert embedding.grad is not None
                transcript.append(Batch(epoch, positions, embedding.detach(), embedding.grad * len(positions)))
        return transcript

    def gaussian(self, transcript: list[Batch]) -> list[Batch]:
        """FLORIST's weaker strategy: synthetic embeddings are normal, of variance (1/d)·max‖f(x)‖² over the real ones."""
        noise = Randomness(b"n" * 32)
        replaced = []
        for batch in transcript:
            synthetic = torch.from_numpy(self.synthetic[batch.positions])
            sd = (batch.rows[~synthetic].square().sum(dim=1).max() / batch.rows.shape[1]).sqrt()
            drawn = sd * torch.from_numpy(noise.normal(tuple(batch.rows.shape)))
            rows: Tensor = torch.where(synthetic[:, None], drawn, batch.rows)
            replaced.append(Batch(batch.epoch, batch.positions, rows, batch.gradients))
        return replaced


@pytest.fixture
def split() -> Callable[..., Split]:
    """``split(rows=…, fits=…, learning_rate=…)``: a split training, on one thread."""
    torch.set_num_threads(1)
    return Split
