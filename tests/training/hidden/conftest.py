"""Tables of parties around a shared order, and training in shares over them in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.hidden.plain import Step, descend
from tests.training.shares_attempts import LEAST_ROWS, SharesAttempt, World, zeros
from tests.training.shares_attempts import silent as silent
from tests.training.shares_attempts import small_messages as small_messages
from tests.training.shares_attempts import world_fixture as world_fixture
from vfl_node.crypto.shares import kits
from vfl_node.crypto.shares.audit import Coins
from vfl_node.crypto.shares.ring import WEIGHT_FRACTION, decode
from vfl_node.data.design import LinearEncoder
from vfl_node.data.tables import Table
from vfl_node.training.glm.plain import one_hot
from vfl_node.training.hidden.brought import HiddenPlan
from vfl_node.training.hidden.config import Hidden
from vfl_node.training.hidden.frequent import find
from vfl_node.training.hidden.held import block, candidates
from vfl_node.training.hidden.inputs import first_parts
from vfl_node.training.hidden.rows import FAR, RowEncoder
from vfl_node.training.hidden.terms import HiddenProgram
from vfl_node.training.hidden.trainer import HiddenTrainer
from vfl_node.training.own_columns import make_robust
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import Trained
from vfl_node.transport.generated.vfl.v1.shares_pb2 import DealingTerms, ShareContext

CLIP = 5.0
SMALL = {"epsilon": None, "epochs": 3, "batch_size": 24, "learning_rate": 0.5, "momentum": 0.9, "reveal": "owners"}
NOISED = {
    **{"epsilon": 1.0, "epochs": None, "batch_size": None, "learning_rate": None, "momentum": None, "metrics_by": "none"},
}


@dataclass
class Attempt(SharesAttempt):
    """With what a training of linear layers is compared with."""

    trainer = HiddenTrainer
    small = {"algorithm": "hidden", **SMALL}

    def plan(self, over: World) -> HiddenPlan:
        """Of the training that was run."""
        if self.coordinated:
            return HiddenProgram(self.job(over)).plan(self.sent(DealingTerms)[0])
        said = self.sent(ShareContext)[0]
        drawn = [self.randomness(name).derive("toss").bytes(32) for name in over.data]
        seed = hashlib.sha256(b"vfl-node toss seed" + b"".join(drawn)).digest()
        sizes = {"batch_rows": said.batch_rows, "divisor": said.divisor}
        terms = DealingTerms(rows=len(over), widths=said.widths, context=said.context, schedule=seed, **sizes)
        return HiddenProgram(self.job(over)).plan(terms)

    def start(self, over: World) -> list[NDArray[np.float64]]:
        """First weights: the sum of what all parties draw."""
        form = self.plan(over).form
        bounded = Hidden.section_of(self.job(over)).epsilon is not None
        starts = (self.randomness(name).derive("first weights") for name in over.data)
        parts = [first_parts(form, start, bounded=bounded).weights for start in starts]
        return [decode(sum(of[1:], of[0]), WEIGHT_FRACTION) for of in zip(*parts, strict=True)]

    def coins(self, over: World) -> Coins | None:
        """Which of what the coordinator deals two parties check."""
        share = Hidden.section_of(self.job(over)).dealer_audit
        drawn = [self.randomness(name).derive("toss of the audit").bytes(32) for name in over.data]
        seed = hashlib.sha256(b"vfl-node toss seed" + b"".join(drawn)).digest()
        return Coins(seed, share, candidates(audits=True)) if share else None

    def reference(self, over: World, **how: Any) -> list[NDArray[np.float64]]:
        """Weights of plaintext training on the rows that all own, with the same start, batches and divisor."""
        plan, train = self.plan(over), Hidden.section_of(self.job(over))
        x, y = plain_inputs(over, train, plan, self.limits.least_rows)
        coins = self.coins(over)
        own = [
            batch[over.both[batch]]
            for epoch in range(plan.epochs)
            for number, batch in enumerate(positions_of(plan, epoch))
            if not (coins and coins.shows(block(epoch, number)))
        ]
        first = self.start(over)
        of = plan.descent
        step = Step(of.rate / plan.divisor, of.momentum, of.rate * train.weight_decay)
        return descend(plan.form, first, x, y, own, step, **how)


def positions_of(plan: HiddenPlan, epoch: int) -> list[NDArray[np.int64]]:
    """Positions in the shared order of each batch."""
    if plan.layout is None:
        return plan.batches(epoch)
    laid = [plan.layout.order[batch] for batch in plan.batches(epoch)]
    return [order[order >= 0] for order in laid]


def plain_rows(table: Table, train: Hidden, least: int) -> NDArray[np.float64]:
    """A party's columns: as they are trained on if they are bounded, else of an encoder of its own."""
    if train.epsilon is None:
        return LinearEncoder.fit(make_robust(table, train.scaling), train.scaling).transform(table).values.clip(-FAR, FAR)
    found = find(table, least)
    features = [feature for of in found.entering.values() for feature in of]
    bins = train.columns == "bins"
    return RowEncoder.fit(table, features, found, train.scaling, bins=bins, bounded=True).transform(table)


def plain_inputs(
    over: World, train: Hidden, plan: HiddenPlan, least: int = LEAST_ROWS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All parties' columns side by side, and targets, of all shared rows; NaN where a row is not owned by all."""
    parts, targets = [], np.full((len(over), train.outputs), np.nan)
    for place, (table, view) in enumerate(over.data.values()):
        design = plain_rows(table, train, least)
        values = np.full((len(over), design.shape[1] + (place == 0)), np.nan)
        values[view.owned, : design.shape[1]] = design[view.rows[view.owned]]
        if place == 0:
            values[view.owned, -1] = 1 if train.epsilon is None else 0.5
            labels = table.labels
            assert labels is not None
            if train.task == "classification":
                said = one_hot(labels, train.classes)
            else:
                said = TargetScale.fit(labels).apply(labels)[:, None]
            targets[view.owned] = said[view.rows[view.owned]]
        parts.append(values)
    return np.hstack(parts), targets


def weights_of(results: Sequence[Trained]) -> list[NDArray[np.float64]]:
    """What the owners got, in the order of the form."""
    active, *passive = (of.weights for of in results)
    bias = active["bias"].numpy()[None] / RowEncoder.from_json(results[0].encoder).intercept
    first = np.concatenate([active["weight"].numpy().T, bias])
    layers = [active[f"layer {index}"].numpy() for index in range(sum(name.startswith("layer") for name in active))]
    return [first, *(of["weight"].numpy().T for of in passive), *layers]


@pytest.fixture(name="attempt", scope="session")
def attempt_fixture() -> type[Attempt]:
    """Trains over them."""
    return Attempt


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of gradients is dealt, and is zero."""
    monkeypatch.setattr(kits, "draw_noise", zeros)
