"""What a node knows of one peer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.errors import PolicyError
from vfl_node.node.peer_state import ECHOES, Echoes, PeerState
from vfl_node.transport.generated.vfl.v1.session_pb2 import Echo


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


def test_the_round_trip_is_the_shortest_of_the_last_answers_in_time() -> None:
    now = [0.0]
    echoes, peer = Echoes(lambda: now[0]), Echoes()
    assert echoes.round_trip_ms is None

    def pass_through(seconds: float) -> None:
        question = echoes.ask()
        answer = peer.hear(question)
        assert answer is not None
        now[0] += seconds
        assert echoes.hear(answer) is None

    pass_through(0.5)
    pass_through(0.25)
    assert echoes.round_trip_ms == 250
    late = peer.hear(echoes.ask())
    assert late is not None
    now[0] += 9
    echoes.ask()
    now[0] += 0.001
    echoes.hear(late)  # of the question before
    assert echoes.round_trip_ms == 250
    for _ in range(ECHOES):
        pass_through(0.75)
    assert echoes.round_trip_ms == 750


def test_one_answer_counts_once() -> None:
    """A peer that sends it again cannot make the link look quick."""
    now = [0.0]
    echoes = Echoes(lambda: now[0])
    answer = Echo(number=echoes.ask().number, answer=True)
    echoes.hear(Echo(number=7, answer=True))
    now[0] = 2.0
    echoes.hear(answer)
    echoes.hear(answer)
    assert echoes.round_trip_ms == 2000
    assert len(echoes._took) == 1
