"""Training of two parties without a coordinator: the same model, and what goes wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.training.hidden.conftest import weights_of

PARTIES = {"randomness": "parties"}


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
@pytest.mark.parametrize("how", [{}, {"loss": "taylor"}], ids=["exact", "taylor"])
def test_the_model_is_that_of_plain_training(world: Any, attempt: Any, protocol: str, how: dict[str, Any]) -> None:
    over = world(2, protocol, people=160)
    run = attempt({**PARTIES, **how})
    results = run(over)
    for found, expected in zip(weights_of(results), run.reference(over), strict=True):
        assert np.abs(found - expected).max() < 2e-4
