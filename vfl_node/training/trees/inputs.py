"""What a party brings to a training of trees: candidates, which rows are its own, and targets."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from vfl_node.crypto.shares.ring import FRACTION, encode
from vfl_node.errors import DataError
from vfl_node.session.session import Session
from vfl_node.training.glm.plain import one_hot
from vfl_node.training.shares.binned import BinnedColumns
from vfl_node.training.shares.candidates import Candidates
from vfl_node.training.shares.metric_noise import MOST_SQUARE
from vfl_node.training.targets import TargetScale
from vfl_node.training.trainer import TrainingData
from vfl_node.training.trees.computation import Positions, TreesOwn
from vfl_node.training.trees.config import Trees
from vfl_node.training.trees.plan import FAR

MOST_BEGIN = 6.0
"""Largest size of the score that rows begin with."""


@dataclass(frozen=True, eq=False)
class TreeInputs:
    """What one party brings.

    Attributes:
        columns: how its table becomes candidates; holds its own data.
        dropped: names of columns without candidates.
        own: the same in the shared order.
        scale: of numbers, at the active party of a regression; else None.
        spread: as of :class:`vfl_node.training.hidden.inputs.Inputs`.
    """

    columns: BinnedColumns
    dropped: tuple[str, ...]
    own: TreesOwn
    scale: TargetScale | None
    spread: float = 0.0


def prepare(session: Session, data: TrainingData, training: Positions, testing: Positions) -> TreeInputs:
    """Cut this party's table into candidates, and bring labels into the shared order.

    Raises:
        DataError: nothing to train on (``E_EMPTY``), no columns at a passive party (``E_NO_FEATURES``), no labels
            (``E_NO_LABEL``).
    """
    train, active = Trees.section_of(session.job), session.role == "active"
    if len(training) == 0:
        raise DataError(
            f"{len(data.alignment)} shared rows leave none to train on",
            code="E_EMPTY",
            hint="use more records, or a smaller evaluate.test_fraction",
        )
    whole = data.whole or data.table
    least = max(train.least_rows, session.policy.limits.least_rows)
    columns = BinnedColumns.fit(whole, train.bins, least)
    if not (active or columns.columns):
        raise DataError(
            "this party's table has no column to train on",
            code="E_NO_FEATURES",
            hint=f"add columns that vary: {least} records or more on each side of a split (least_rows)",
        )
    rows = data.alignment.rows
    mine = rows >= 0
    candidates: Candidates = columns.candidates(data.table, rows)
    targets, scale, begin, spread = np.zeros((train.outputs, len(rows)), np.uint64), None, (0.0,) * train.outputs, 0.0
    if active:
        values, scale, begin = _targets(data, train)
        targets[:, mine] = encode(values[rows[mine]].T, 2 * FRACTION)
        tested = values[rows[testing[mine[testing]]]]
        if scale is not None and len(tested):
            spread = float(np.minimum((tested - tested.mean()) ** 2, MOST_SQUARE).mean())
    read = {each.name for each in columns.columns}
    dropped = tuple(name for name in whole.columns if name not in read)
    secret = b"" if train.epsilon is None else session.randomness.derive("splits").bytes(32)
    own = TreesOwn(candidates, mine.astype(np.uint64), targets, begin, secret)
    return TreeInputs(columns, dropped, own, scale, spread)


def _targets(data: TrainingData, train: Trees) -> tuple[np.ndarray, TargetScale | None, tuple[float, ...]]:
    """y of the table's rows, float64[n, K], the scale of numbers, and K scores to begin with: by this party's labels alone."""
    labels, whole = data.table.labels, (data.whole or data.table).labels
    if labels is None or whole is None:
        raise DataError("the table has no label column", code="E_NO_LABEL", hint="set data.label")
    if train.task == "classification":
        if train.epsilon is not None:  # the share of labels would tell them: leaves learn it
            return one_hot(labels, train.classes), None, (0.0,)
        shares = np.clip(one_hot(whole, train.classes).mean(axis=0), 1e-4, 1 - 1e-4).tolist()
        begin = [float(np.clip(math.log(share / (1 - share)), -MOST_BEGIN, MOST_BEGIN)) for share in shares]
        return one_hot(labels, train.classes), None, tuple(begin)
    scale = TargetScale.from_range(*train.target_range) if train.target_range else TargetScale.fit(whole)
    return np.clip(scale.apply(labels), -FAR / 2, FAR / 2)[:, None], scale, (0.0,)


def digest_of(own: TreesOwn, salt: bytes) -> bytes:
    """SHA-256 of all that a party's values are made of; ``salt`` is secret, so that nobody can try tables."""
    hashed = hashlib.sha256(b"vfl-node tree inputs 1" + salt + own.secret)
    parts: list[np.ndarray] = [own.candidates.bins, own.bits, own.targets, np.array(own.begin), *own.candidates.left]
    for values in parts:
        hashed.update(np.array(values.shape, "<u8").tobytes())
        hashed.update(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False).data)
    return hashed.digest()
