"""Federations of two or three real nodes, each a process, as a user starts them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # a child imports what it runs: modules beside this one

from nodes import TWO, Child, Federation

from tests.node.several import SeveralTrial, make_several
from tests.node.stage import Stage


@pytest.fixture
def ram() -> Iterator[Path]:
    """A folder in memory, where there is such a thing: a disk makes whoever writes durably wait."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def forked() -> Callable[..., Child]:
    """Starts processes that have imported a node; what they run may be of a module beside this one."""
    return Child


@pytest.fixture(scope="module")
def federations(trial: Any) -> Iterator[Callable[..., Federation]]:
    """Makes federations, whose processes end with the module."""
    made: list[Federation] = []

    def make(folder: Path, roles: Mapping[str, str] = TWO, tables: Any = trial) -> Federation:
        made.append(Federation(folder, tables, roles))
        return made[-1]

    yield make
    for federation in made:
        federation.end_all()


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> SeveralTrial:
    """As :func:`tests.node.several.make_several`."""
    return make_several(tmp_path_factory.mktemp("several"))


@pytest.fixture(scope="module")
def theatre(
    request: pytest.FixtureRequest,
    federations: Any,
    forked: Any,
    several: SeveralTrial,
    tmp_path_factory: pytest.TempPathFactory,
) -> Stage:
    """Nodes of several passive parties, as the module's ``ROLES`` and ``JOB`` say."""
    module = request.module
    stage = Stage(federations(tmp_path_factory.mktemp("stage"), module.ROLES, several), forked, module.JOB)
    stage.federation.start_several()
    return stage


@pytest.fixture
def stage(theatre: Stage) -> Iterator[Stage]:
    """All nodes up and connected, and nothing told to them yet."""
    theatre.ready()
    yield theatre
    theatre.cancel_all()


@pytest.fixture
def federation(tmp_path: Path, trial: Any) -> Iterator[Federation]:
    made = Federation(tmp_path, trial)
    yield made
    made.end_all()
