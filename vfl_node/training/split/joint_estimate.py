"""An estimate of the joint attack for the owner of columns alone: the peer's columns are not at hand.

Half of the own columns, a random one, stands for the peer's. A bottom of the job's shape, with random initial weights, embeds
the other half, with another person's cells in a share of the rows, and the attack (:mod:`vfl_node.privacy.attacks.joint`)
looks for these. Of :data:`SPLITS` such splits the largest figure counts.

It is a guess: how much the own columns tell of each other is not how much the peer's tell of them. Against the true attack it
was .15 too low to .33 too high (docs/explanations/privacy/joint-attack.md). Training the bottom on what gradients say changed
it by .03 at most, so it is not trained.

Nothing of it is sent. It does not depend on which rows are shared, so how long it takes tells nothing of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import Column, Table, rows_of
from vfl_node.errors import VflError
from vfl_node.metrics.classes import auc
from vfl_node.models import architecture_of
from vfl_node.models.building import build_bottom
from vfl_node.models.initial_weights import initialise
from vfl_node.privacy.attacks import joint
from vfl_node.privacy.silent import attempt
from vfl_node.training.boosted_tree import design
from vfl_node.training.network.positioned_input import PositionedInput
from vfl_node.training.section import JointAttack
from vfl_node.training.split.config import Train

SPLITS = 5
ROWS = 2048
"""Records that are looked at; of more a random part."""

SYNTHETIC = 0.3
"""Share of them whose embeddings are another person's."""


def estimate(table: Table, train: Train, models: Mapping[str, str]) -> JointAttack | None:
    """What an active party might find in the embeddings of a passive one with this ``table``.

    Args:
        table: of the passive party.
        train: the job's section, for the shape of the bottom.
        models: this owner's own architectures.

    Returns:
        None where there are fewer than two columns or 200 records, the library is not installed, or the job's architecture
        cannot be built for fewer columns.

    Cost: five times 15 fits of 50 trees to at most 2,048 records; 3 s (one core of a small server). All its draws are fixed, so
        the same table gives the same figure.
    """
    if len(table.columns) < 2 or len(table) < joint.LEAST or not joint.available():
        return None
    draws = Randomness(bytes(32))
    rows = joint.sample(np.arange(len(table)), draws.derive("rows"), ROWS)
    columns = {name: rows_of(column, rows) for name, column in table.columns.items()}
    own = Table(Identifiers.from_items(table.ids.take(rows)), columns)
    synthetic = draws.derive("synthetic").uniform((len(rows),)) < SYNTHETIC
    others = draws.derive("others").permutation(len(rows))
    sources = np.where(synthetic, others, np.arange(len(rows)))
    try:
        values = [_split(own, theirs, sources, synthetic, train, models, draws) for theirs in _halves(tuple(columns), draws)]
    except VflError:  # an installed architecture that only fits its own columns
        return None
    known = [value for value in values if value is not None]
    return JointAttack(value=max(known), estimate=True, judged=len(rows)) if known else None


def _halves(names: tuple[str, ...], draws: Randomness) -> Iterator[tuple[str, ...]]:
    """The columns that stand for the peer's, in each split."""
    for split in range(SPLITS):
        order = draws.derive(f"split/{split}").permutation(len(names))
        yield tuple(names[place] for place in order[: len(names) // 2].tolist())


def _split(
    own: Table,
    theirs: tuple[str, ...],
    sources: NDArray[np.int64],
    synthetic: NDArray[np.bool_],
    train: Train,
    models: Mapping[str, str],
    draws: Randomness,
) -> float | None:
    """AUC of the attack where ``theirs`` stand for the peer's columns; None where it is not defined."""
    rows, draws = np.arange(len(own)), draws.derive(" ".join(theirs))
    cells, categorical = design(_select_columns(own, theirs), rows)
    rest = _select_columns(own, tuple(name for name in own.columns if name not in theirs))
    features = Encoder.fit(rest, rows, train.scaling, train.least_rows).transform(rest)
    inputs = PositionedInput.from_features(features, sources, torch.device("cpu"))
    bottom = build_bottom(architecture_of(train.model, models), train, inputs.schema, train.bottom)
    initialise(bottom, draws.derive("weights"))
    bottom.eval()
    with torch.no_grad():
        embeddings: Tensor = bottom(inputs.take(rows))
    shown, flags = embeddings.double().numpy(), np.array(categorical, dtype=bool)
    scores = attempt(lambda: joint.scores(cells, shown, draws, categorical=flags))
    return None if scores is None else auc(synthetic, scores)


def _select_columns(table: Table, names: tuple[str, ...]) -> Table:
    """The records of ``table`` with these columns only."""
    columns: dict[str, Column] = {name: table.columns[name] for name in names}
    return Table(table.ids, columns)
