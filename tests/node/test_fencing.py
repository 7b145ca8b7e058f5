"""Two nodes under one identity: the second is turned away, the first goes on, and who comes after it takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.test_full_disk import NAMES, Pair
from vfl_node.node.service import Node


@pytest.fixture
def pair(ram: Path, trial: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    for module in ("dialling", "calls"):
        monkeypatch.setattr(f"vfl_node.node.{module}.RETRY_S", (0.02,))
    made = Pair(ram, trial)
    yield made
    made.stop()


def second(pair: Pair) -> Node:
    """Another node of the lab's, with a state folder of its own."""
    settings = pair.nodes["lab"].settings
    twin = Node(settings.model_copy(update={"state_dir": pair.folder / "twin" / "state", "peer_wait_s": 0.5}))
    twin.start()
    return twin


def test_a_second_node_is_turned_away_and_the_first_goes_on(pair: Pair) -> None:
    pair.wait(lambda: pair.nodes["clinic"].peers.online("lab"))
    pair.nodes["twin"] = second(pair)
    twin = pair.nodes["twin"].peers
    pair.wait(lambda: "another node under this name" in str(twin.status()["clinic"]["cause"]))
    assert not twin.online("clinic")
    job_id = pair.submit()
    pair.wait(lambda: all(pair.ended(name, job_id) for name in NAMES))
    assert [pair.view(name, job_id)["state"] for name in NAMES] == ["done", "done"]
    assert pair.nodes["twin"].jobs() == []
    own = pair.nodes["twin"].submit(pair.trial.job().canonical())["id"]
    pair.wait(lambda: pair.ended("twin", own))
    view = pair.view("twin", own)
    assert (view["error"]["code"], view["resumable"]) == ("E_FENCED", True)
    assert pair.nodes["clinic"].peers.online("lab")


def test_who_comes_after_the_first_has_ended_takes_over(pair: Pair) -> None:
    pair.wait(lambda: pair.nodes["clinic"].peers.online("lab"))
    pair.nodes["twin"] = second(pair)
    twin = pair.nodes["twin"].peers
    pair.wait(lambda: "another node under this name" in str(twin.status()["clinic"]["cause"]))
    pair.nodes.pop("lab").stop()
    pair.wait(lambda: twin.online("clinic"))
