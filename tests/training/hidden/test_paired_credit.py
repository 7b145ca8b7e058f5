"""Training without a coordinator gives a dealer's model on a real table: clients of a bank, split as FATE ships them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.hidden.bounded import default_credit
from tests.crypto.lattice.variants import compiled
from tests.training.hidden.conftest import weights_of
from tests.training.hidden.test_paired import WHOLE
from tests.training.shares_attempts import World, lay_out

pytestmark = [compiled, pytest.mark.data, pytest.mark.slow]

SHARE = 0.85
"""Which part of the clients a party has that does not have all of them."""


def credit(shared_data: Path, protocol: str) -> World:
    """All 30,000 clients; under apsi the passive party has all of them."""
    tables = default_credit(shared_data)
    rng, people = np.random.default_rng(0), len(tables.label)
    owned = rng.random((2, people)) < SHARE
    owned[1] |= protocol == "apsi"
    index = {"psu": owned.any(axis=0), "psi": owned.all(axis=0), "apsi": owned[1]}[protocol]
    columns = [{name: np.array(values) for name, values in of.items()} for of in (tables.active, tables.passive)]
    order = rng.permutation(np.flatnonzero(index))
    return lay_out(protocol, owned, order, columns, tables.label.astype(np.float32), rng)


TRAIN = {**WHOLE, "epochs": 10, "learning_rate": 0.3, "metrics_by": "none"}
NEAR = 1e-5


@pytest.mark.parametrize("protocol", ["psi", "psu", "apsi"])
@pytest.mark.parametrize("loss", ["exact", "taylor"])
def test_the_model_is_that_of_a_dealer(shared_data: Path, attempt: Any, protocol: str, loss: str) -> None:
    """Ten steps over all rows from the same first weights; both round by coins of their own."""
    over, train = credit(shared_data, protocol), {**TRAIN, "loss": loss}
    ours, dealt = (weights_of(attempt({**train, "randomness": by})(over)) for by in ("parties", "coordinator"))
    for one, other in zip(ours, dealt, strict=True):
        assert np.abs(one - other).max() < NEAR
        assert np.abs(other).max() > 0.1


def test_one_label_of_thirty_thousand_is_further_off(shared_data: Path, attempt: Any) -> None:
    """The control: two models without a coordinator, of tables that differ in one label."""
    over = credit(shared_data, "psi")
    (table, view), lab = over.data["clinic"], over.data["lab"]
    labels = table.labels.copy()
    at = view.rows[0]
    labels[at] = 1 - labels[at]
    other = replace(over, data={"clinic": (replace(table, labels=labels), view), "lab": lab})
    one, two = (weights_of(attempt(TRAIN, {"test_fraction": 0})(of)) for of in (over, other))
    assert max(np.abs(first - second).max() for first, second in zip(one, two, strict=True)) > NEAR
