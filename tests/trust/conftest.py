from __future__ import annotations

import pytest

from tests.trust.parties import Party


@pytest.fixture(scope="session")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party("clinic", tmp_path_factory.mktemp("clinic"))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party("lab", tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party("bank", tmp_path_factory.mktemp("bank"))
