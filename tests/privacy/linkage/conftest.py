"""Linkages of made-up points, and of flats and schools where their data is."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.linkage_privacy import Linkage, made_up, singapore


@pytest.fixture(scope="session")
def linkage() -> Linkage:
    """400 records, and 80 of which each gets 20 as candidates."""
    return Linkage(made_up(400, 80), 20, 0.1)


@pytest.fixture(scope="session")
def schools(shared_data: Path) -> Linkage:
    """600 addresses of Singapore, and its primary schools, of which each gets 50."""
    if not (shared_data / "hdb_schools").is_dir():
        pytest.skip("no hdb_schools among the shared data sets")
    return Linkage(singapore(shared_data, 600), 50)
