"""Who may end a job at one node, and in which state a failure leaves it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from vfl_node.errors import Cancelled, Paused, PeerError, PeerLost, PolicyError, ProtocolError, StateError, UsageError, VflError
from vfl_node.execution.live import Stop
from vfl_node.execution.outcome import JobOutcome
from vfl_node.node.ending import Ending
from vfl_node.node.endings import node_stopping
from vfl_node.node.faults import JOB_DONE


class At:
    """The end of a job at one party."""

    def __init__(self, folder: Path, own: str = "lab", *, sealed: bool = True) -> None:
        self.outcome, self.stop = JobOutcome(folder), Stop()
        self.outcome.artefacts.mkdir(parents=True)
        if sealed:
            self.outcome.seal()
        self.ending = Ending("clinic", own, self.outcome, self.stop)

    def ends_with(self, failure: VflError) -> tuple[str, str]:
        """State and code of the job whose attempt breaks off with ``failure``."""
        with pytest.raises(VflError) as caught, self.ending.heeding():
            raise failure
        state, error = self.ending.judge(caught.value)
        assert state != "unconfirmed" or "/health says under peers" in error.hint  # also of one that has another version since
        return state, error.code if error else ""


FINAL = [
    PeerError("notary stopped in phase 'stored': its data cannot be used"),
    PeerError("notary stopped in phase 'confirm': its owner cancelled the job", code="E_CANCELLED"),
    ProtocolError("notary sent what cannot be taken"),
]


@pytest.mark.parametrize("failure", FINAL)
def test_only_who_waits_for_the_active_partys_word_goes_on_after_what_ends_a_job(tmp_path: Path, failure: VflError) -> None:
    assert At(tmp_path / "1").ends_with(failure) == ("unconfirmed", "E_UNCONFIRMED")
    ended = ("cancelled" if failure.code == "E_CANCELLED" else "failed", failure.code)
    assert At(tmp_path / "2", sealed=False).ends_with(failure) == ended
    assert At(tmp_path / "3", "clinic").ends_with(failure) == ended


def test_a_job_that_is_paused_for_a_cause_may_go_on_whatever_breaks_it_off_meanwhile(tmp_path: Path) -> None:
    revoked, gone = PolicyError("lab was revoked", code="E_REVOKED"), UsageError("its card is gone", code="E_FILE")
    clinic = At(tmp_path / "1", "clinic", sealed=False)
    clinic.stop.ask(Paused(revoked.message, code=revoked.code))
    assert clinic.ends_with(gone) == ("paused", "E_REVOKED")
    clinic.outcome.seal()
    assert clinic.ends_with(PeerLost("it is done there", code=JOB_DONE)) == ("done", "")
    stopping = At(tmp_path / "2", "clinic", sealed=False)
    stopping.stop.ask(node_stopping())
    assert stopping.ends_with(gone) == ("failed", "E_FILE")


@pytest.mark.parametrize("failure", FINAL)
def test_the_active_partys_word_ends_it(tmp_path: Path, failure: VflError) -> None:
    lab = At(tmp_path)
    assert not lab.ending.hear("notary", failure)
    assert lab.stop.wish is None
    assert lab.ending.hear("clinic", failure)
    assert lab.ends_with(PeerError("what came of it")) == (
        "cancelled" if failure.code == "E_CANCELLED" else "failed",
        failure.code,
    )


@pytest.mark.parametrize(
    ("failure", "ends"),
    [
        (PeerLost("clinic was lost"), ("unconfirmed", "E_UNCONFIRMED")),
        (VflError("internal error: KeyError"), ("unconfirmed", "E_UNCONFIRMED")),
        (StateError("the disk is full", code="E_DISK_FULL"), ("failed", "E_DISK_FULL")),
        (PeerError("notary speaks version 3", code="E_VERSION"), ("failed", "E_VERSION")),
        (Paused("this node is stopping"), ("paused", "")),
        (PeerError("done at clinic", code="E_JOB_DONE"), ("done", "")),
    ],
)
def test_what_else_happens_to_a_party_that_waits(tmp_path: Path, failure: VflError, ends: tuple[str, str]) -> None:
    lab = At(tmp_path)
    if failure.code == "E_JOB_DONE":
        lab.ending.hear("clinic", failure)
    assert lab.ends_with(failure) == ends


def test_once_it_is_confirmed_nothing_ends_it(tmp_path: Path) -> None:
    for name in ("lab", "clinic"):
        party = At(tmp_path / name, name)
        party.outcome.confirm()
        assert not party.ending.end_with(Cancelled("too late"))
        assert party.ends_with(PeerError("too late")) == ("done", "")
