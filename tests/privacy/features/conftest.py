"""Columns, and embeddings that tell of them as much as a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers
from vfl_node.data.tables import CategoricalColumn, NumericColumn, Table
from vfl_node.privacy.features.attacks import rebuild
from vfl_node.privacy.features.measures import Score, measure
from vfl_node.privacy.features.targets import Targets, targets_of


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def targets(columns: Mapping[str, NDArray[Any]]) -> Targets:
    """All of ``columns``: text is categorical, numbers are as they are."""

    def column(values: NDArray[Any]) -> NumericColumn | CategoricalColumn:
        if values.dtype.kind == "f":
            return NumericColumn(values)
        levels, codes = np.unique(values, return_inverse=True)
        return CategoricalColumn(codes.astype(np.int64), tuple(levels))

    rows = len(next(iter(columns.values())))
    table = Table(
        Identifiers.from_items(str(row).encode() for row in range(rows)),
        {name: column(of) for name, of in columns.items()},
        None,
    )
    return targets_of(table, np.arange(rows), tuple(columns))


def attacked(columns: Mapping[str, NDArray[Any]], rows: NDArray[Any], known: int, *more: NDArray[Any]) -> dict[str, Score]:
    """How well columns are rebuilt from ``rows`` (and other views of them), of which the first ``known`` are known."""
    views = [torch.from_numpy(view.astype(np.float32)) for view in (rows, *more)]
    of, at = targets(columns), torch.arange(len(rows))
    said = rebuild([view[:known] for view in views], at[:known], [view[known:] for view in views], of, Randomness(bytes(32)))
    return measure(of, said, at[known:])


@pytest.fixture(name="targets")
def targets_fixture() -> Any:
    return targets


@pytest.fixture(name="attacked")
def attacked_fixture() -> Any:
    return attacked
