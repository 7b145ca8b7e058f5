"""Columns as a decoder is to rebuild them, and its loss.

===========  =====================================  ==========================  =============
kind         which columns                          loss of a row, in nats      best constant
===========  =====================================  ==========================  =============
categories   categorical; missing is one more       cross-entropy               entropy
flag         two values, whatever their kind        binary cross-entropy        entropy
number       all other numbers, dates as seconds    squared error in            1
                                                    standard deviations
===========  =====================================  ==========================  =============

Columns of lists are not rebuilt. Rows that this party made up, and rows without a value (but for categories), count nowhere.

Source: arXiv 2104.14383, sections 4.1 and 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

from vfl_node.data.tables import CategoricalColumn, Column, ListColumn, Table, values_of
from vfl_node.errors import UsageError

Kind = Literal["categories", "flag", "number"]

MOST_LEVELS = 256
"""Most levels of a categorical column that can be rebuilt; one with more is nearly an identifier."""


@dataclass(frozen=True, eq=False)
class Target:
    """One column of m shared rows.

    Attributes:
        name: of the column, in this party's table. It never leaves the node.
        kind: see the module.
        width: how many outputs a decoder has for it.
        truth: [m]: categories int64, flags float32 of 0 and 1, numbers float32 in standard deviations from their mean; it means
            nothing where ``known`` is false.
        known: bool[m], whether the row is this party's own and has a value.
        constant_loss: loss of the best constant over the known rows.
    """

    name: str
    kind: Kind
    width: int
    truth: Tensor
    known: Tensor
    constant_loss: float


class Targets:
    """Columns that one decoder rebuilds together. Its outputs stand side by side: categories, flags, numbers.

    Args:
        columns: at least one, of the same m rows.
    """

    def __init__(self, columns: Sequence[Target]) -> None:
        order: Mapping[Kind, int] = {"categories": 0, "flag": 1, "number": 2}
        self.columns = tuple(sorted(columns, key=lambda column: order[column.kind]))
        self.width = sum(column.width for column in self.columns)
        of_kind = {kind: [column for column in self.columns if column.kind == kind] for kind in order}
        self._categories = _Categories(of_kind["categories"]) if of_kind["categories"] else None
        self._flags = _side_by_side(of_kind["flag"])
        self._numbers = _side_by_side(of_kind["number"])
        self._most = torch.tensor([column.constant_loss for column in self.columns], device=self.columns[0].truth.device)

    @property
    def most(self) -> Tensor:
        """Loss of the best constant of each column, float32[c]."""
        return self._most

    def losses(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Mean loss of each column over its known rows among ``rows``, float32[c]; 0 where there is none.

        Args:
            outputs: float32[B, width], of a decoder.
            rows: int64[B], shared positions.
        """
        losses, known = self.row_losses(outputs, rows)
        return (losses * known).sum(dim=0) / known.sum(dim=0).clamp(min=1)

    def row_losses(self, outputs: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of each row and column, float32[B, c], and whether it is known, bool[B, c]. Arguments as :meth:`losses`."""
        parts, known, start = [], [], 0
        if self._categories is not None:
            start = self._categories.width
            parts.append(self._categories.losses(outputs[:, :start], rows))
            known.append(self._categories.known[rows])
        if self._flags is not None:
            truth, columns = self._flags
            logits = outputs[:, start : start + truth.shape[1]]
            parts.append(binary_cross_entropy_with_logits(logits, truth[rows], reduction="none"))
            known.append(columns[rows])
            start += truth.shape[1]
        if self._numbers is not None:
            truth, columns = self._numbers
            parts.append((outputs[:, start:] - truth[rows]).square())
            known.append(columns[rows])
        return torch.cat(parts, dim=1), torch.cat(known, dim=1)

    def values(self, rows: Tensor) -> Tensor:
        """The columns at ``rows``, int64[B], as numbers, float32[B, width]: categories as one 1 each; 0 where not known."""
        of_categories = self._categories.columns if self._categories else ()
        parts = [one_hot(column.truth[rows], column.width).float() * column.known[rows][:, None] for column in of_categories]
        for side in (self._flags, self._numbers):
            if side is not None:
                truth, known = side
                parts.append(truth[rows] * known[rows])
        return torch.cat(parts, dim=1)


class _Categories:
    """Categorical columns together: three times faster than one after the other, with one exponential a logit."""

    def __init__(self, columns: Sequence[Target]) -> None:
        self.columns = tuple(columns)
        widths = torch.tensor([column.width for column in columns])
        truth, self.known = (torch.stack([getattr(column, name) for column in columns], dim=1) for name in ("truth", "known"))
        device = truth.device
        self.width = int(widths.sum())
        ends = widths.cumsum(0)
        self._column = torch.repeat_interleave(torch.arange(len(widths)), widths).to(device)  # of each logit
        self._sums = one_hot(self._column, len(widths)).float()  # float32[width, c]
        self._truth = truth + (ends - widths).to(device)  # place of the right logit
        last = torch.minimum((ends - widths)[:, None] + torch.arange(int(widths.max())), ends[:, None] - 1)
        self._places = last.to(device)  # int64[c, most levels], of each column's logits; the last one stands again

    def losses(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Cross-entropy of each row and column, float32[B, c], of logits float32[B, width]."""
        largest = logits.detach()[:, self._places].amax(dim=2)  # (B, c), so that no exponential overflows
        below = logits - largest.index_select(1, self._column)
        return (below.exp() @ self._sums).log() - below.gather(1, self._truth[rows])


def targets_of(
    table: Table, rows: NDArray[np.int64], names: Sequence[str], device: torch.device | None = None, *, party: str = ""
) -> Targets:
    """What a decoder of columns ``names`` of ``table`` is to give at the shared positions.

    Args:
        table: of this party.
        rows: int64[m], the table's row at each shared position; negative where this party has none.
        names: columns; none: all that have more than one value.
        device: where the truth is kept.
        party: for errors.

    Raises:
        UsageError: as :func:`check_columns`.
    """
    chosen = check_columns(table, names, party=party)
    return Targets([_target(name, table.columns[name], rows, device) for name in chosen])


def check_columns(
    table: Table, names: Sequence[str], *, party: str = "", setting: str = "columns", whole: bool = True
) -> tuple[str, ...]:
    """The columns that ``names`` mean; all that can be rebuilt if there is no name.

    Args:
        table: of this party.
        names: columns; none: all.
        party: for errors.
        setting: which names them, likewise.
        whole: whether these are all rows of the table; in others a column need not vary.

    Raises:
        UsageError: a column is absent (``E_COLUMN``), has one value only or lists, or more categories than :data:`MOST_LEVELS`
            (``E_CONFIG``); or there is none that can be rebuilt (``E_CONFIG``).
    """
    if not names:
        able = tuple(
            name
            for name, column in table.columns.items()
            if not isinstance(column, ListColumn) and _values(column) > 1 and not _has_too_many(column)
        )
        if whole and not able:
            raise UsageError(
                f"{setting}: no column of the table of {party or 'this party'} varies and has at most {MOST_LEVELS} categories",
                code="E_CONFIG",
                hint="there is nothing to rebuild: remove the setting",
                for_peer="its settings do not fit its table",
            )
        return able
    for name in names:
        text = ""
        if name not in table.columns:
            text = f"a column is not in the table of {party or 'this party'}"
        elif isinstance(table.columns[name], ListColumn):
            text = "a column holds lists, which no decoder rebuilds"
        elif whole and _values(table.columns[name]) < 2:
            text = "a column has one value only, which everybody guesses"
        elif _has_too_many(table.columns[name]):
            text = f"a column has more than {MOST_LEVELS} categories"
        if text:
            raise UsageError(
                f"{setting}: {text}",
                code="E_CONFIG" if name in table.columns else "E_COLUMN",
                hint=f"it is {name!r}: name columns of the table that a model reads, or declare their kind in data.columns",
                for_peer="its settings do not fit its table",
            )
    return tuple(dict.fromkeys(names))


def _has_too_many(column: Column) -> bool:
    return isinstance(column, CategoricalColumn) and _values(column) > MOST_LEVELS


def _values(column: Column) -> int:
    """How many different values a column has; a missing category is one."""
    values = values_of(column)
    return len(np.unique(values if isinstance(column, CategoricalColumn) else values[~np.isnan(values)]))


def _target(name: str, column: Column, rows: NDArray[np.int64], device: torch.device | None) -> Target:
    own = rows >= 0
    values = values_of(column)
    at = np.where(own, rows, 0)
    if isinstance(column, CategoricalColumn):
        levels, codes = np.unique(values, return_inverse=True)
        known, truth = own, codes[at]
        if len(levels) > 2:
            shares = np.bincount(truth[known], minlength=len(levels)) / max(int(known.sum()), 1)
            entropy = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
            return Target(
                name, "categories", len(levels), _to_tensor(truth.astype(np.int64), device), _to_tensor(known, device), entropy
            )
    else:
        known = own & ~np.isnan(values[at])
        levels = np.unique(values[~np.isnan(values)])
        if len(levels) > 2:
            mean, sd = (float(statistic(values[at][known])) if known.any() else 1.0 for statistic in (np.mean, np.std))
            scaled = np.where(known, (values[at] - mean) / (sd or 1.0), 0.0)
            return Target(name, "number", 1, _to_tensor(scaled.astype(np.float32), device), _to_tensor(known, device), 1.0)
        truth = np.where(known, values[at] == levels[-1], False)
    flag = truth.astype(np.float32)
    share = float(flag[known].mean()) if known.any() else 0.0
    entropy = -sum(p * float(np.log(p)) for p in (share, 1 - share) if p > 0)
    return Target(name, "flag", 1, _to_tensor(flag, device), _to_tensor(known, device), entropy)


def _to_tensor(values: NDArray[np.int64] | NDArray[np.float32] | NDArray[np.bool_], device: torch.device | None) -> Tensor:
    return torch.from_numpy(values).to(device)


def _side_by_side(columns: Sequence[Target]) -> tuple[Tensor, Tensor] | None:
    """Truth and known of c columns, [m, c] each; None of none."""
    if not columns:
        return None
    return torch.stack([column.truth for column in columns], dim=1), torch.stack([column.known for column in columns], dim=1)
