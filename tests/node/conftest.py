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


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """One that is not started, has met lab, and looks anew each time."""
    from vfl_node.node import health
    from vfl_node.node.service import Node
    from vfl_node.node.spending import counts_with
    from vfl_node.settings.node import Settings

    monkeypatch.setattr(health, "LOOK_S", 0.0)
    (tmp_path / "table.csv").write_text("id,x,label\n" + "".join(f"r{k},{k},{k % 2}\n" for k in range(60)))
    settings = Settings(
        name="clinic",
        role="active",
        insecure_loopback=True,
        http=None,
        state_dir=tmp_path / "state",
        device="cpu",
        data={"path": tmp_path / "table.csv"},
        peers={"lab": {"address": "127.0.0.1:9"}},
    )
    made = Node(settings)
    (tmp_path / "state/partners/lab").mkdir(parents=True)
    counts_with(made.settings, "lab").lane.append("note", {})
    yield made
    made._store.close()


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
