"""Numbers as targets of the tables of tests/training/logistic, and linear regressions over them in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.training.logistic.conftest import Attempt, Shared, difference, shared
from vfl_node.data.tables import Table
from vfl_node.job import Evaluate
from vfl_node.job.evaluate import METRICS
from vfl_node.training.linear.config import LinearRegression


def linear(**given: Any) -> LinearRegression:
    """A job's section as a job would hold it, with a small key and few iterations."""
    settings = {"iterations": 3, "least_rows": 0, "learning_rate": 0.3, **given}
    return LinearRegression(algorithm="linear", **settings).model_copy(update={"key_bits": 512})


def numbers(*, labels: str = "active", **given: Any) -> Shared:
    """As :func:`tests.training.logistic.conftest.shared`, with a target around 2,000 that needs both parties' columns."""
    over = shared(labels=labels, **given)
    rng, target = np.random.default_rng(3), {}
    for table in (over.clinic, over.lab):
        for row, identifier in enumerate(table.ids):
            seen = sum((place + 1) * float(column.values[row]) for place, column in enumerate(table.columns.values()))
            target[identifier] = target.get(identifier, 2000.0 + 5 * rng.normal()) + 40 * seen

    def with_targets(table: Table, *, labelled: bool) -> Table:
        return Table(table.ids, table.columns, np.array([target[i] for i in table.ids]) if labelled else None)

    clinic, lab = (with_targets(of, labelled=labels == role) for of, role in ((over.clinic, "active"), (over.lab, "passive")))
    named = list(over.lab.ids)
    return dataclasses.replace(
        over, clinic=clinic, lab=lab, labels=np.array([target[named[row]] for row in over.lab_view.rows])
    )


@dataclasses.dataclass
class NumbersAttempt(Attempt):
    """An attempt that measures numbers."""

    evaluate: Evaluate = dataclasses.field(default_factory=lambda: Evaluate(test_fraction=0, metrics=METRICS["regression"]))


@pytest.fixture(name="linear")
def linear_fixture() -> Callable[..., LinearRegression]:
    """Makes a job's section."""
    return linear


@pytest.fixture(name="numbers")
def numbers_fixture() -> Callable[..., Shared]:
    """Makes two parties' tables and views."""
    return numbers


@pytest.fixture(name="attempt")
def attempt_fixture() -> type[Attempt]:
    """Trains over shared rows."""
    return NumbersAttempt


@pytest.fixture(name="difference")
def difference_fixture() -> Callable[..., float]:
    """Compares weights with plaintext's."""
    return difference
