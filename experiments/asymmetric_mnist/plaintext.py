"""The regression of a job on the records that both parties have, in clear, from the start that the product draws."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from experiments.asymmetric_mnist.halves import Floats, Model, Tables, shared_rows
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.design import LinearEncoder
from vfl_node.job import Job
from vfl_node.training.glm import plain
from vfl_node.training.glm.side import Side
from vfl_node.training.logistic.config import Logistic


def secrets(job: Job) -> dict[str, Randomness]:
    """Party → its secret randomness, by its name."""
    return {name: Randomness(hashlib.sha256(name.encode()).digest()) for name in job.parties.all}


@dataclass(frozen=True, eq=False)
class Plaintext:
    """n shared records and the weights of both parties; fields that are lists have one entry a party, in the tables' order.

    Attributes:
        train: the job's section.
        encoders: party → how its columns enter.
        kept: bool[columns of the design], which of them are used.
        parts: float64[n, d], the columns.
        labels: float32[n].
        weights: float64[d, K].
        bias: float64[K].
    """

    train: Logistic
    encoders: Mapping[str, LinearEncoder]
    kept: list[NDArray[np.bool_]]
    parts: list[Floats]
    labels: NDArray[np.float32]
    weights: list[Floats]
    bias: Floats

    @classmethod
    def from_job(cls, job: Job, tables: Tables, dropped: Mapping[str, frozenset[str]]) -> Plaintext:
        """Before the first iteration: each party's weights are those of its :class:`Side`, with the randomness that has there.

        Args:
            job: all of its shared records are trained on, all at once.
            tables: of the data parties.
            dropped: party → columns that are left out.
        """
        train, active = job.train, job.parties.active
        assert isinstance(train, Logistic)
        assert train.batch_size is None
        assert job.evaluate.test_fraction == 0
        rows, randomness, labels = shared_rows(tables), secrets(job), tables[active].labels
        assert labels is not None
        encoders = {name: LinearEncoder.fit(table, train.scaling) for name, table in tables.items()}
        kept, parts, weights, bias = [], [], [], np.zeros(train.outputs)
        for name, table in tables.items():
            design = encoders[name].transform(table)
            kept.append(np.array([column not in dropped[name] for column in design.names]))
            own = randomness[name].derive("train")
            side = Side(rows[name], design, kept[-1], train, own, intercept=name == active)
            if name == active:
                side.spread(np.arange(len(rows[name])), own.derive("spread"))
                bias = side.weights[-1]
            parts.append(design.values[rows[name]][:, kept[-1]])
            weights.append(side.weights[: parts[-1].shape[1]])
        return cls(train, encoders, kept, parts, labels[rows[active]], weights, bias)

    def advance(self, iterations: int) -> tuple[Plaintext, tuple[float, ...]]:
        """With the weights of ``iterations`` later, and the loss of each."""
        train = self.train
        fit = plain.fit(
            self.parts,
            self.labels,
            self.weights,
            loss=plain.LOSSES[train.loss],
            l2=train.l2,
            learning_rate=train.learning_rate,
            iterations=iterations,
            tolerance=train.tolerance,
            intercepts=self.bias,
        )
        return replace(self, weights=list(fit.weights), bias=fit.intercepts), fit.losses

    def gradients(self, place: int) -> Iterator[Floats]:
        """Those of the party at ``place`` in each of the job's iterations, float64[d, K], without the penalty's."""
        now, train = self, self.train
        for _ in range(train.iterations):
            then, _ = now.advance(1)
            yield (now.weights[place] - then.weights[place]) / train.learning_rate - train.l2 * now.weights[place]
            now = then

    @property
    def model(self) -> Model:
        """The weights as the product keeps them: 0 for columns that are left out."""
        weights = {}
        for name, kept, weight in zip(self.encoders, self.kept, self.weights, strict=True):
            weights[name] = np.zeros((len(kept), weight.shape[1]))
            weights[name][kept] = weight
        return Model(self.encoders, weights, self.bias)
