"""The columns of every shared row at one party: its own, and synthetic ones where it does not own the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder, Features
from vfl_node.data.tables import CategoricalColumn, Column, ListColumn, Table
from vfl_node.errors import DataError, UsageError
from vfl_node.job.names import Scaling
from vfl_node.training.split.missing.features.contract import Rows, synthetic_rows
from vfl_node.training.split.missing.features.rows import sampling
from vfl_node.training.split.missing.section import Missing

_BLOCK = 8192


def fill_in(
    alignment: Alignment,
    table: Table,
    encoder: Encoder,
    missing: Missing,
    randomness: Randomness,
    scaling: Scaling = "standard",
) -> tuple[Features, NDArray[np.int64]]:
    """What this party uses at each shared position.

    The draw at a position depends on the secret seed, the own rows and the position, never on
    which positions are owned; every position's is made, and that of the missing ones is used.
    Nor does it depend on ``encoder``, but for a made-up cell beyond its clipping.

    Args:
        alignment: this party's view of the m shared rows.
        table: its n rows.
        encoder: how the model reads them.
        missing: the job's ``train.missing``, which names the strategy.
        randomness: this party's own, kept with the job; the same gives the same rows.
        scaling: the job's ``train.scaling``. Strategies compare rows, so ``none`` is ``auto`` to them.

    Returns:
        The encoded columns, n rows and after them those that the strategy made up, and
        int64[m], the row of them that is used at each shared position.

    Raises:
        DataError: the party has no row at all (``E_EMPTY``), or the table lacks a column of
            ``encoder`` (``E_COLUMN``).
        UsageError: rows are missing and the strategy does not fill them.
    """
    if len(table) == 0:
        raise DataError("this party's table has no rows", code="E_EMPTY")
    own = encoder.transform(table)
    if alignment.owned.all():
        return own, alignment.rows
    strategy = missing.feature_strategy
    if not strategy.fills:
        raise UsageError(
            "some shared rows are not this party's own and train.missing.features is none",
            hint="set train.missing.features: sampling, or align by psi",
        )
    sources = sampling(len(table), len(alignment), randomness)
    if not strategy.rows or own.width == 0:
        return own, np.where(alignment.owned, alignment.rows, sources)
    whole = _refit(encoder, table, scaling)
    randomness = randomness.derive(f"synthetic rows/{missing.features}")
    draw = synthetic_rows(strategy, whole.transform(table), randomness)
    synthetic = _draw_blockwise(draw, sources, ~alignment.owned, randomness)
    rows = alignment.rows.copy()
    rows[~alignment.owned] = len(table) + np.arange(alignment.missing)
    return own.append(whole.translate(synthetic, encoder, table)), rows


def _refit(encoder: Encoder, table: Table, scaling: Scaling) -> Encoder:
    """The columns of ``encoder`` as all rows of ``table`` suggest, every level by itself: the same in every repeat."""
    read = {column.name: _make_comparable(table.columns[column.name]) for column in encoder.columns}
    compared = Table(table.ids, read, image=encoder.image)
    return Encoder.fit(compared, np.arange(len(table)), "auto" if scaling == "none" else scaling)


def _make_comparable(column: Column) -> Column:
    """The column, scaled in some way."""
    if isinstance(column, CategoricalColumn | ListColumn) or column.scaling != "none":
        return column
    return replace(column, scaling="auto")


def _draw_blockwise(draw: Rows, sources: NDArray[np.int64], missing: NDArray[np.bool_], randomness: Randomness) -> Features:
    """A made-up row for each position that is missing, bool[m]. Memory: a block at a time, beside them."""
    parts: list[Features] = []
    for start in range(0, len(sources), _BLOCK):
        block = slice(start, start + _BLOCK)
        drawn = draw(sources[block], randomness.derive(f"block/{start}"))
        parts.append(drawn.take(np.flatnonzero(missing[block])))
    return parts[0].append(*parts[1:])
