"""Split training with several passive parties: what one model in one process computes, and what each party may know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("passive", [1, 2, 4])
def test_it_trains(several_parties: Callable[..., Any], several_runs: Any, passive: int) -> None:
    parties = several_parties(passive, owned=0.8)
    results = several_runs()(parties)
    assert results["clinic"].metrics["auc"] > 0.5
