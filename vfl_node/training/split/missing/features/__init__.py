"""Synthetic features: what a party uses where it does not own the shared row.

::

    sampling                       a whole own row
    smoothed, naive                a row made up from own rows             encoded columns
    gaussian, random               an embedding; sampling below it         the cut layer
    none                           nothing: every shared row is owned

Each shared position has *one* draw for the whole job, in every epoch, repeat and evaluation:
the peer meets the position again and again, and a row that is drawn anew jumps where a real
one drifts (redrawn rows are told apart at AUC .86 after two epochs and 1.00 after ten; fixed
ones stay at .50 under the same attack). Each repeat scales the columns by the rows it trains
on; rows are therefore made up in the scaling of the party's whole table, which no repeat
changes, and then encoded as the repeat encodes real ones. Embeddings are drawn anew in each
step: one that stayed where the model moves would be told as well.

Source: Song et al. 2021, sections 3.2 and 4.2; the fixed draw and ``smoothed``
are ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Encoder, Features
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, UsageError
from vfl_node.training.split.missing.features.embeddings import Substitute
from vfl_node.training.split.missing.features.gaussian import Gaussian
from vfl_node.training.split.missing.features.naive import Naive
from vfl_node.training.split.missing.features.random import Random
from vfl_node.training.split.missing.features.rows import Rows
from vfl_node.training.split.missing.features.sampling import sampling
from vfl_node.training.split.missing.features.smoothed import Smoothed

__all__ = ["EMBEDDINGS", "MADE", "Rows", "Substitute", "stand_in"]

MADE: dict[str, Callable[[Features, Randomness], Rows]] = {
    "naive": Naive,
    "smoothed": Smoothed,
}
"""Strategies that make up rows, called with the own rows and the party's randomness."""

EMBEDDINGS: dict[str, Callable[[Randomness], Substitute]] = {"gaussian": Gaussian, "random": Random}
"""Strategies that make up embeddings, at the passive party only; in columns they are ``sampling``."""

_COPIED = {"sampling", *EMBEDDINGS}
_BLOCK = 8192


def stand_in(
    alignment: Alignment, table: Table, encoder: Encoder, strategy: str, randomness: Randomness
) -> tuple[Features, NDArray[np.int64]]:
    """What this party uses at each shared position.

    The draw at a position depends on the secret seed, the own rows and the position, never on
    which positions are owned; every position's is made, and that of the missing ones is used.
    Nor does it depend on ``encoder``, but for a made-up cell beyond its clipping.

    Args:
        alignment: this party's view of the m shared rows.
        table: its n rows.
        encoder: how the model reads them.
        strategy: ``train.missing.features``.
        randomness: this party's own, kept with the job; the same gives the same rows.

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
    if strategy == "none":
        raise UsageError(
            "some shared rows are not this party's own and train.missing.features is none",
            hint="set train.missing.features: sampling, or align by psi",
        )
    sources = sampling(len(table), len(alignment), randomness)
    if strategy in _COPIED or own.width == 0:
        return own, np.where(alignment.owned, alignment.rows, sources)
    whole = _refitted(encoder, table)
    randomness = randomness.derive(f"synthetic rows/{strategy}")
    draw = MADE[strategy](whole.transform(table), randomness)
    made = _made(draw, sources, ~alignment.owned, randomness)
    rows = alignment.rows.copy()
    rows[~alignment.owned] = len(table) + np.arange(alignment.missing)
    return own.followed_by(whole.translate(made, encoder, table)), rows


def _refitted(encoder: Encoder, table: Table) -> Encoder:
    """The columns of ``encoder`` as all rows of ``table`` suggest: the same in every repeat."""
    read = Table(table.ids, {column.name: table.columns[column.name] for column in encoder.columns})
    return Encoder.fit(read, np.arange(len(table)))


def _made(draw: Rows, sources: NDArray[np.int64], missing: NDArray[np.bool_], randomness: Randomness) -> Features:
    """A made-up row for each position that is missing, bool[m]. Memory: a block at a time, beside them."""
    parts: list[Features] = []
    for start in range(0, len(sources), _BLOCK):
        block = slice(start, start + _BLOCK)
        drawn = draw(sources[block], randomness.derive(f"block/{start}"))
        parts.append(drawn.take(np.flatnonzero(missing[block])))
    return parts[0].followed_by(*parts[1:])
