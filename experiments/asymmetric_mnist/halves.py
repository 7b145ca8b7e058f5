"""Both parties' tables and both halves of a model, put together as only one who has all files can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfl_node.data.design import LinearEncoder
from vfl_node.data.reading import read_table
from vfl_node.data.tables import Table
from vfl_node.job import Job
from vfl_node.metrics import classes as metrics
from vfl_node.models import storage
from vfl_node.settings.node import Data
from vfl_node.training.glm import plain

Floats = NDArray[np.float64]
Tables = Mapping[str, Table]
"""Party → its table; one of them has labels."""


def tables_of(job: Job, files: Mapping[str, Path]) -> dict[str, Table]:
    """The data parties' tables, as their nodes read them; the active party has the labels."""
    return {
        name: read_table(
            Data(path=path),
            id_form=job.align.id_form,
            needs_label=name == job.parties.active,
            party=name,
            classes=job.classes,
        )
        for name, path in files.items()
    }


def shared_rows(tables: Tables) -> dict[str, NDArray[np.int64]]:
    """Party → where in its table the records lie that all have, in one order for all."""
    places = {name: {identifier: row for row, identifier in enumerate(table.ids)} for name, table in tables.items()}
    shared = sorted(set.intersection(*(set(place) for place in places.values())))
    return {name: np.array([place[identifier] for identifier in shared], np.int64) for name, place in places.items()}


@dataclass(frozen=True, eq=False)
class Model:
    """Both halves of a linear model.

    Attributes:
        encoders: party → how its columns enter.
        weights: party → float64[columns, K].
        bias: float64[K].
    """

    encoders: Mapping[str, LinearEncoder]
    weights: Mapping[str, Floats]
    bias: Floats

    @classmethod
    def load(cls, folders: Mapping[str, Path]) -> Model:
        """From the artefacts of the data parties: party → folder."""
        encoders, weights, bias = {}, {}, np.zeros(1)
        for name, folder in folders.items():
            tensors, about = storage.load(folder / "model.safetensors")
            encoders[name] = LinearEncoder.from_json(about["encoder"])
            weights[name] = tensors["weight"].numpy().T
            bias = tensors["bias"].numpy() if "bias" in tensors else bias
        return cls(encoders, weights, bias)

    def distance(self, other: Model) -> float:
        """The largest difference of any weight."""
        pairs = [(weights, other.weights[name]) for name, weights in self.weights.items()]
        return max(float(np.abs(ours - theirs).max()) for ours, theirs in [*pairs, (self.bias, other.bias)])

    def scores(self, tables: Tables) -> tuple[Floats, NDArray[np.float32]]:
        """Scores float64[n, K] and labels float32[n] of the records that all of ``tables`` have."""
        rows = shared_rows(tables)
        designs = {name: encoder.transform(tables[name]) for name, encoder in self.encoders.items()}
        parts = [designs[name].values[rows[name]] for name in self.weights]
        labels = next(table.labels[rows[name]] for name, table in tables.items() if table.labels is not None)
        return plain.logits(parts, list(self.weights.values()), self.bias), labels

    def measure(self, tables: Tables, loss: str) -> dict[str, float | None]:
        """AUC (of several classes the mean of each against the rest), accuracy and the mean ``loss`` on the shared records."""
        scores, labels = self.scores(tables)
        found, classes = plain.probabilities(scores), max(2, scores.shape[1])
        if classes == 2:
            measured = metrics.compute(("auc", "accuracy"), labels, scores[:, 0], found[:, 0])
        else:
            measured = {"auc": metrics.macro_auc(labels, scores), "accuracy": metrics.multiclass_accuracy(labels, found)}
        return measured | {"loss": plain.LOSSES[loss].loss(scores, plain.one_hot(labels, classes))}
