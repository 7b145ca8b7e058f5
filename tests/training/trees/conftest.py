"""Training trees in shares over tables around a shared order, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.shares_attempts import LEAST_ROWS, SharesAttempt, World
from tests.training.shares_attempts import silent as silent
from tests.training.shares_attempts import small_messages as small_messages
from tests.training.shares_attempts import world_fixture as world_fixture
from tests.training.trees.plain import PlainTree, boost
from vfl_node.crypto.shares.ring import FRACTION, decode
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.targets import TargetScale
from vfl_node.training.trees.computation import TreesTraining
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.inputs import MOST_BEGIN
from vfl_node.training.trees.plan import FAR
from vfl_node.training.trees.program import TreesProgram
from vfl_node.training.trees.trainer import TreesTrainer
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms

SMALL = {"algorithm": "trees", "trees": 3, "depth": 2, "bins": 4, "learning_rate": 0.5, "least_rows": LEAST_ROWS}


@dataclass
class TreesAttempt(SharesAttempt):
    """With what a training of trees is compared with."""

    trainer = TreesTrainer
    small = SMALL

    def plan(self, over: World) -> TreesTraining:
        """Of the training that was run."""
        return TreesProgram(self.job(over)).plan(self.sent(DealingTerms)[0])

    def cells(self, over: World) -> list[NDArray[np.bool_]]:
        """Each party's candidates over the shared order."""
        train = Trees.section_of(self.job(over))
        found = []
        for table, view in over.data.values():
            fitted = BinnedColumns.fit(table, train.bins, max(train.least_rows, self.limits.least_rows))
            found.append(fitted.candidates(table, view.rows).block(0, len(over)).astype(bool))
        return found

    def targets(self, over: World) -> tuple[NDArray[np.float64], list[float]]:
        """y of each output and all rows, [K, n], 0 where a row is not the active party's; and the scores to begin with."""
        train, (table, view) = Trees.section_of(self.job(over)), next(iter(over.data.values()))
        values, begin = np.asarray(table.labels, np.float64)[None], [0.0]
        if train.task == "regression":
            scale = TargetScale.from_range(*train.target_range) if train.target_range else TargetScale.fit(values)
            values = np.clip(scale.apply(values), -FAR / 2, FAR / 2)
        else:
            if train.classes > 2:
                values = (values == np.arange(train.classes)[:, None]).astype(np.float64)
            share = np.clip(values.mean(axis=1), 1e-4, 1 - 1e-4)
            begin = np.clip(np.log(share / (1 - share)), -MOST_BEGIN, MOST_BEGIN).tolist()
        return np.where(view.owned, values[:, view.rows], 0.0), begin

    def reference(self, over: World) -> list[PlainTree]:
        """Plain boosting on the rows that all own, over the same candidates: the trees in the order of a model."""
        plan, (targets, begin) = self.plan(over), self.targets(over)
        own = plan.training[over.both[plan.training]]
        cells = np.concatenate(self.cells(over), axis=1)[own]

        def counts(number: int) -> NDArray[np.float64]:
            drawn = plan.draw_rows(number)
            return np.ones(len(own)) if drawn is None else drawn[own].astype(float)

        each = [boost(plan.plan, cells, y[own], first, counts)[0] for y, first in zip(targets, begin, strict=True)]
        return [tree for of_round in zip(*each, strict=True) for tree in of_round]


@dataclass(frozen=True, eq=False)
class Opened:
    """The trees that all shares of all parties add up to.

    Attributes:
        picks: int64[K·trees, 2^depth − 1], the candidate of each node; W: none.
        leaves: float64[K·trees, 2^depth].
    """

    picks: NDArray[np.int64]
    leaves: NDArray[np.float64]


def open_model(results: Any, widths: Any) -> Opened:
    """What nobody has: the whole model."""
    weights = [of.weights for of in results]
    depth = len(weights[0]) - 2
    leaves = np.sum([of[f"share {depth + 1}"].numpy() for of in weights], axis=0, dtype=np.int64).view(np.uint64)
    picks = []
    for level in range(depth):
        words = np.bitwise_xor.reduce([of[f"share {level + 1}"].numpy() for of in weights]).view(np.uint64)
        width, count = sum(widths), 1 << level
        bits = np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little", count=count * width)
        bits = bits.reshape(len(words), count, width)
        assert bits.sum(axis=2).max() <= 1
        picks.append(np.where(bits.any(axis=2), bits.argmax(axis=2), width))
    return Opened(np.concatenate(picks, axis=1), decode(leaves, FRACTION))


@pytest.fixture(name="attempt", scope="session")
def attempt_fixture() -> type[TreesAttempt]:
    """Trains over tables."""
    return TreesAttempt
