"""Synthetic features: what a party uses where it does not own the shared row.

::

    sampling                       a whole own row
    interpolated, jittered, naive  a row made up from own rows             encoded columns
    gaussian, random               an embedding; sampling below it         the cut layer
    none                           nothing: every shared row is owned

Each shared position has *one* draw for the whole job, in every epoch, repeat and evaluation:
the peer meets the position again and again, and a row that is drawn anew jumps where a real
one drifts (redrawn rows are told apart at AUC .86 after two epochs and 1.00 after ten; fixed
ones stay at .50 under the same attack). Another repeat scales the columns by other rows, so
that a row that is made up may there have another near row. Embeddings are drawn anew in each
step: one that stayed where the model moves would be told as well.

Source: Song et al. 2021, sections 3.2 and 4.2; the fixed draw and the two strategies of rows
that are near real ones are ours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.features import Features
from vfl_node.errors import DataError, UsageError
from vfl_node.training.missing.features.embeddings import Substitute
from vfl_node.training.missing.features.gaussian import Gaussian
from vfl_node.training.missing.features.interpolated import Interpolated
from vfl_node.training.missing.features.jittered import Jittered
from vfl_node.training.missing.features.naive import Naive
from vfl_node.training.missing.features.random import Random
from vfl_node.training.missing.features.rows import Rows
from vfl_node.training.missing.features.sampling import sampling

__all__ = ["EMBEDDINGS", "MADE", "Rows", "Substitute", "stand_in"]

MADE: dict[str, Callable[[Features, Randomness], Rows]] = {
    "interpolated": Interpolated,
    "jittered": Jittered,
    "naive": Naive,
}
"""Strategies that make up rows, called with the own rows and the party's randomness."""

EMBEDDINGS: dict[str, Callable[[Randomness], Substitute]] = {"gaussian": Gaussian, "random": Random}
"""Strategies that make up embeddings, at the passive party only; in columns they are ``sampling``."""

_COPIED = {"sampling", *EMBEDDINGS}
_BLOCK = 8192


def stand_in(
    alignment: Alignment, features: Features, strategy: str, randomness: Randomness
) -> tuple[Features, NDArray[np.int64]]:
    """What this party uses at each shared position.

    The draw at a position depends on the secret seed, the own rows and the position, never on
    which positions are owned; every position's is made, and that of the missing ones is used.

    Args:
        alignment: this party's view of the m shared rows.
        features: its n rows, encoded.
        strategy: ``train.missing.features``.
        randomness: this party's own, kept with the job; the same gives the same rows.

    Returns:
        The columns, n rows and after them those that the strategy made up, and int64[m], the
        row of them that is used at each shared position.

    Raises:
        DataError: the party has no row at all (``E_EMPTY``).
        UsageError: rows are missing and the strategy does not fill them.
    """
    if len(features) == 0:
        raise DataError("this party's table has no rows", code="E_EMPTY")
    if alignment.owned.all():
        return features, alignment.rows
    if strategy == "none":
        raise UsageError(
            "some shared rows are not this party's own and train.missing.features is none",
            hint="set train.missing.features: sampling, or align by psi",
        )
    sources = sampling(len(features), len(alignment), randomness)
    if strategy in _COPIED or features.width == 0:
        return features, np.where(alignment.owned, alignment.rows, sources)
    made = _made(MADE[strategy], features, sources, ~alignment.owned, randomness.derive(f"synthetic rows/{strategy}"))
    rows = alignment.rows.copy()
    rows[~alignment.owned] = len(features) + np.arange(alignment.missing)
    return made, rows


def _made(
    rows: Callable[[Features, Randomness], Rows],
    features: Features,
    sources: NDArray[np.int64],
    missing: NDArray[np.bool_],
    randomness: Randomness,
) -> Features:
    """``features``, and after them a made-up row for each position that is missing, bool[m]. Memory: a block at a time."""
    draw = rows(features, randomness)
    parts = [features]
    for start in range(0, len(sources), _BLOCK):
        block = slice(start, start + _BLOCK)
        drawn = draw(sources[block], randomness.derive(f"block/{start}"))
        parts.append(drawn.take(np.flatnonzero(missing[block])))
    return Features(
        np.concatenate([part.numeric for part in parts]),
        np.concatenate([part.categorical for part in parts]),
        features.cardinalities,
    )
