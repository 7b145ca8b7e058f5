from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment.alignment import Alignment
from vfl_node.errors import DataError, UsageError
from vfl_node.training.missing import shared_labels


def alignment(rows: list[int]) -> Alignment:
    return Alignment("psu", "curve25519", np.asarray(rows, dtype=np.int64), ours=3, theirs=3, intersection=None)


def used(rows: list[int], labels: list[int], train: list[int], strategy: str = "majority") -> list[float]:
    values = shared_labels(alignment(rows), np.asarray(labels, np.float32), np.asarray(train, np.int64), strategy)
    assert values.dtype == np.float32
    return list(values)


def test_owned_rows_keep_their_label_and_others_take_the_majority() -> None:
    assert used([1, -1, 0, 2, -1], [0, 1, 0], [0, 1, 2, 3, 4]) == [1, 0, 0, 0, 0]
    assert used([1, -1, 0, 2, -1], [1, 1, 0], [0, 1, 2, 3, 4]) == [1, 1, 1, 0, 1]


def test_the_majority_is_that_of_the_labels_trained_on() -> None:
    assert used([1, -1, 0, 2], [0, 1, 1], [1, 2]) == [1, 0, 0, 1]


def test_even_classes_give_the_negative_one() -> None:
    assert used([0, 1, -1], [0, 1], [0, 1, 2]) == [0, 1, 0]


def test_no_label_to_learn_from_and_no_strategy_are_refused() -> None:
    with pytest.raises(DataError, match="E_EMPTY"):
        used([-1, -1, 0], [1], [0, 1])
    with pytest.raises(UsageError, match=r"missing\.labels"):
        used([0, -1], [1], [0, 1], "none")
    assert used([0, 1], [1, 0], [0, 1], "none") == [1, 0]
