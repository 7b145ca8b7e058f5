"""A beat says whether a job with the peer has got on, and nothing else."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.node.peer_state import PeerState
from vfl_node.node.pulse import Beats
from vfl_node.transport.generated.vfl.v1.session_pb2 import Beat
from vfl_node.transport.streams import StreamPipe

JOBS = {"ours": ("lab", "insurer"), "another": ("lab",)}


class Clinic:
    """The beats of a clinic that has a job with both of its peers and one with the lab only."""

    def __init__(self, *, relays: bool = False) -> None:
        self.states = {name: PeerState(name, None) for name in ("lab", "insurer")}
        self.steps = dict.fromkeys(JOBS, 0)
        self.shares = lambda peer: {job: self.steps[job] for job in JOBS if peer in JOBS[job]}
        self.beats = Beats(self.states, threading.Condition(), steps=lambda peer: self.shares(peer), relays=relays)
        self.beats._pulse = SimpleNamespace(spells=lambda: 0)  # type: ignore[assignment]
        self.pipes: dict[tuple[str, str], StreamPipe] = {}
        for job, peers in JOBS.items():
            for name in peers:
                self.pipes[name, job] = StreamPipe(name)
                self.states[name].pipes[self.pipes[name, job]] = job
        self.told()

    def told(self) -> set[str]:
        """Who is told of progress now."""
        return {name for name in self.states if self.beats.make_beat(name).progressed}


def test_two_jobs_of_very_different_size_are_told_of_with_the_same_beats() -> None:
    assert [(field.name, field.type) for field in Beat.DESCRIPTOR.fields] == [("progressed", 8)]  # a bool
    said = []
    for pieces in (11, 787_000):
        clinic, beats = Clinic(), []
        for share in (0, pieces // 3, pieces // 3, 0, pieces // 3):
            clinic.pipes["lab", "ours"].pieces += share
            clinic.steps["ours"] += share
            beats.append(clinic.beats.make_beat("lab").SerializeToString())
        said.append(beats)
    assert said[0] == said[1]
    assert len({*map(bytes, said[0])}) == 2


@pytest.mark.parametrize(("job", "told"), [("ours", {"lab", "insurer"}), ("another", {"lab"})])
def test_a_peer_is_told_of_the_jobs_that_it_takes_part_in(job: str, told: set[str]) -> None:
    clinic = Clinic()
    assert clinic.told() == set()
    clinic.steps[job] += 1
    assert clinic.told() == told
    clinic.pipes["lab", job].pieces += 1
    assert clinic.told() == told
    assert clinic.told() == set()


def test_who_computes_tells_those_it_has_a_job_with() -> None:
    clinic = Clinic()
    spells = iter(range(1, 99))
    clinic.beats._pulse = SimpleNamespace(spells=lambda: next(spells))  # type: ignore[assignment]
    clinic.told()
    assert clinic.told() == {"lab", "insurer"}
    clinic.shares = lambda peer: {"another": 0} if peer == "lab" else {}
    clinic.told()
    assert clinic.told() == {"lab"}


@pytest.mark.parametrize("relays", [True, False])
def test_an_active_node_says_that_another_party_makes_progress_while_it_waits_itself(relays: Any) -> None:
    """A passive party must not take it for hanging; and not for getting on because of what it said itself."""
    clinic = Clinic(relays=relays)
    clinic.states["lab"].beat(progressed=False)
    assert clinic.told() == set()
    clinic.states["lab"].beat(progressed=True)
    assert clinic.told() == ({"insurer"} if relays else set())
    del clinic.states["lab"].pipes[clinic.pipes["lab", "ours"]]  # their conversation has ended
    clinic.told()
    clinic.states["lab"].beat(progressed=True)
    assert clinic.told() == set()
