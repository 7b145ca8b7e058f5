from __future__ import annotations

from pathlib import Path

import pytest

from tests.trust.asking import Side
from tests.trust.parties import Party
from tests.trust.test_kept import WORDS, Own
from vfl_node.trust import pending


@pytest.fixture(scope="session")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party("clinic", tmp_path_factory.mktemp("clinic"))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party("lab", tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Party:
    return Party("bank", tmp_path_factory.mktemp("bank"))


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Side, Side]:
    clinic, lab = Own("clinic", tmp_path / "clinic"), Own("lab", tmp_path / "lab")
    pending.accept(clinic.settings, pending.keep(clinic.settings, lab.card, None, "passive", WORDS))
    pending.accept(lab.settings, pending.keep(lab.settings, clinic.card, "clinic.example:7443", "active", WORDS))
    return Side(clinic), Side(lab)
