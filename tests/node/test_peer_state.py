"""What a node knows of one peer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.errors import PolicyError
from vfl_node.node.peer_state import PeerState


def link(instance: str = "first", ended: Any = None) -> Any:
    return SimpleNamespace(instance=instance, ended=ended)


def test_a_link_goes_up_is_replaced_and_goes_down() -> None:
    state, first, second = PeerState("lab", "lab.example:7443"), link(), link()
    assert state.connect(first) is None
    assert "lab (at lab.example:7443), connected since" in state.describe()
    assert state.connect(second) is first
    state.end_link(first)  # by now it is another one
    assert state.link is second
    state.end_link(second)
    assert (state.link, state.status()["online"]) == (None, False)


def test_a_cause_is_news_once_and_goes_when_the_link_is_up() -> None:
    state = PeerState("lab", None)
    assert state.disconnect("connection refused", "E_UNREACHABLE")
    assert not state.disconnect("connection refused", "E_FENCED")
    assert state.code == "E_FENCED"
    assert state.describe().startswith("lab (which dials in to this node), absent since")
    assert state.describe().endswith(": connection refused")
    state.connect(link())
    assert (state.cause, state.code, state.disconnect("connection refused", "E_UNREACHABLE")) == ("", "", True)


def test_a_beat_says_whether_there_was_progress() -> None:
    state = PeerState("lab", None, moved=0.0)
    state.beat(progressed=False)
    assert (state.moves, state.moved) == (0, 0.0)
    state.beat(progressed=True)
    assert (state.moves, state.moved > 0) == (1, True)


def test_another_process_under_the_same_name_is_turned_away_while_the_link_lives() -> None:
    state = PeerState("lab", None)
    state.check_same_process(link("second"))  # nobody is connected
    state.connect(link("first"))
    state.check_same_process(link("first"))
    with pytest.raises(PolicyError) as caught:
        state.check_same_process(link("second"))
    assert caught.value.code == "E_FENCED"
    state.connect(link("first", ended=PolicyError("over")))
    state.check_same_process(link("second"))
