"""Which party's columns help, and which columns: how much worse metrics are where a part belongs to other rows.

::

    several times, for each party that has columns:
        its part of the held-out rows is permuted: its embeddings, or the active party's own columns
        the top reads it beside the true parts of all others
        drop = how much worse each metric is then

Only the active party computes, from embeddings that it has received for the evaluation anyway: no further message. It permutes
the rows that it owns, whose metrics it measures, among themselves, so that as many of them have synthetic columns as before.
All rows are computed, since how long that takes must not tell how many it owns.

What a drop does not say: where columns of two parties tell the same, each can stand in for the other, and both drops are small.
A permuted part may not fit the other parts, so that the model is asked about rows that do not exist.

The active party does the same with each of its own columns. A passive party knows no metric: it finds how far its embeddings
move if the cells of a column belong to other rows. That is movement, not importance: the top may make nothing of it. Both take
:data:`DRAWN` rows, drawn with replacement from those that the party owns, so that the time is the same however many these are.

Leaks: nothing.

Source: Breiman 2001 (random forests, section 10), with all columns of a party as one variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.places import ColumnPlaces
from vfl_node.job.evaluate import LOWER_IS_BETTER
from vfl_node.models.inputs import ModelInput
from vfl_node.privacy.attachment import Attachment
from vfl_node.training.evaluation import Repeats, Values
from vfl_node.training.network.half import Positions

PERMUTATIONS = 5

DRAWN = 2048
"""Rows on which single columns are permuted."""

MOST_ROWS = 1 << 15
"""Held-out rows whose embeddings are stored for this; of more, the first ones, which are as random as any."""


class HeldOutInputs:
    """What the top reads of held-out rows, ``most`` of them at most."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._positions: list[Positions] = []
        self._embeddings: list[Sequence[Tensor]] = []
        self._room = most

    def add(self, positions: Positions, embeddings: Sequence[Tensor]) -> None:
        """Store a batch: int64[B], and float32[B, d] of each passive party; nothing once there are as many as wanted."""
        if self._room:
            self._positions.append(positions[: self._room])
            self._embeddings.append([embedding[: self._room] for embedding in embeddings])
            self._room -= len(self._positions[-1])

    @property
    def positions(self) -> Positions:
        """Positions of all rows, int64[n]."""
        return np.concatenate(self._positions)

    @property
    def embeddings(self) -> list[Tensor]:
        """Embeddings of each passive party, float32[n, d]."""
        return [torch.cat(parts) for parts in zip(*self._embeddings, strict=True)]


def drops(
    parts: HeldOutInputs,
    owned: NDArray[np.bool_],
    active: str | None,
    passive: Sequence[str],
    measure: Callable[[Positions, Sequence[Tensor]], Values],
    randomness: Randomness,
) -> dict[str, Repeats]:
    """Party → metric → its drop in each permutation; above 0 where the metric is worse than with the party's true part.

    Args:
        parts: of n held-out rows.
        owned: bool[m], which shared rows the active party owns.
        active: its name; None where it has no columns.
        passive: names of the others, in the order of ``parts``.
        measure: gives the metrics of all n rows, from the shared position whose own columns are read for each, int64[n], and
            each passive party's embeddings, float32[n, d].
        randomness: of this alone.

    Cost: :data:`PERMUTATIONS` forward passes of the active party's half for each party.
    """
    positions, embeddings = parts.positions, parts.embeddings
    places = np.flatnonzero(owned[positions])
    whole = measure(positions, embeddings)

    def order(number: int) -> NDArray[np.int64]:
        rows = np.arange(len(positions))
        rows[places] = places[randomness.derive(str(number)).permutation(len(places))]
        return rows

    def permute(party: str, rows: NDArray[np.int64]) -> Values:
        if party == active:
            return measure(positions[rows], embeddings)
        return measure(
            positions,
            [part[torch.from_numpy(rows)] if name == party else part for name, part in zip(passive, embeddings, strict=True)],
        )

    orders = [order(number) for number in range(PERMUTATIONS)]
    dropped = {
        party: [_drop(whole, permute(party, rows)) for rows in orders] for party in ([active] if active else []) + [*passive]
    }
    return {party: {name: [values[name] for values in each] for name in whole} for party, each in dropped.items()}


def _drop(whole: Values, permuted: Values) -> Values:
    """How much worse each metric is; None where it is not defined."""

    def drop(name: str) -> float | None:
        true, other = whole[name], permuted[name]
        if true is None or other is None:
            return None
        return other - true if name in LOWER_IS_BETTER else true - other

    return {name: drop(name) for name in whole}


def draw_rows(places: NDArray[np.int64], randomness: Randomness) -> NDArray[np.int64]:
    """:data:`DRAWN` of ``places``, int64[k], with replacement; none of none."""
    return places[randomness.choices(len(places), DRAWN)] if len(places) else places


def column_drops(
    rows: ModelInput,
    columns: Mapping[str, ColumnPlaces],
    measure: Callable[[ModelInput], Values],
    randomness: Randomness,
) -> dict[str, Repeats]:
    """Own column → metric → its drop in each permutation, as :func:`drops`.

    Args:
        rows: the active party's columns of n rows.
        columns: where each of its columns stands in them.
        measure: gives the metrics of these rows with other columns.
        randomness: of this alone.

    Cost: :data:`PERMUTATIONS` forward passes of n rows for each column.
    """
    whole = measure(rows)
    dropped = {
        name: [_drop(whole, measure(permuted)) for permuted in _permute_column(rows, places, randomness.derive(name))]
        for name, places in columns.items()
    }
    return {column: {name: [values[name] for values in each] for name in whole} for column, each in dropped.items()}


class ColumnMovements(Attachment):
    """How far a passive party's embeddings move where the cells of one of its columns belong to other rows.

    In units of how far embeddings lie from their mean, as roots of mean squares: 0 is nothing, and √2 is as far as from the
    embedding of another row.

    Args:
        embed: columns of n rows → float32[n, d]; a network at rest when the repeat ends.
        rows: the party's columns of n rows.
        columns: where each of its columns stands in them.
        randomness: of this alone.

    Cost: as :func:`column_drops`, once, at the end of the first repeat.
    """

    def __init__(
        self,
        embed: Callable[[ModelInput], Tensor],
        rows: ModelInput,
        columns: Mapping[str, ColumnPlaces],
        randomness: Randomness,
    ) -> None:
        self._embed, self._rows, self._columns, self._randomness = embed, rows, columns, randomness

    @override
    @torch.no_grad()
    def findings(self, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
        if before is not None:
            return {}
        whole = self._embed(self._rows)
        spread = _root_mean_square(whole - whole.mean(dim=0))
        moved = {
            name: torch.cat(
                [self._embed(rows) - whole for rows in _permute_column(self._rows, places, self._randomness.derive(name))]
            )
            for name, places in self._columns.items()
        }
        return {"movements": {name: _root_mean_square(each) / spread if spread else 0.0 for name, each in moved.items()}}


def _root_mean_square(rows: Tensor) -> float:
    return float(rows.double().square().sum(dim=1).mean().sqrt())


def _permute_column(rows: ModelInput, places: ColumnPlaces, randomness: Randomness) -> Iterator[ModelInput]:
    """``rows`` with one column's cells among other rows, :data:`PERMUTATIONS` times."""

    def swap(part: Tensor, at: list[int], order: Tensor) -> Tensor:
        swapped = part.clone()
        swapped[:, at] = part[order][:, at]
        return swapped

    for number in range(PERMUTATIONS):
        order = torch.from_numpy(randomness.derive(str(number)).permutation(len(rows))).to(rows.numeric.device)
        yield replace(
            rows,
            numeric=swap(rows.numeric, places.numeric, order),
            categorical=swap(rows.categorical, places.categorical, order),
            bags=None if rows.bags is None else swap(rows.bags, places.bags, order),
        )
