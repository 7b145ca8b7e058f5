"""More of a budget by agreement: asked for and approved under signatures, counted at both, and nothing else is believed."""

from __future__ import annotations

import errno
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trust.asking import REASON, Side, ask_and_deliver, day, deliver, link_up, use
from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.execution.trial import Trial
from vfl_node.node import counts as counts_module
from vfl_node.node.extensions import Extensions
from vfl_node.node.ledgers import verify_own
from vfl_node.node.partners import Partners
from vfl_node.node.store import Store
from vfl_node.node.voices import Voices
from vfl_node.process.files import write_checked
from vfl_node.transport.generated.vfl.v1.session_pb2 import ExtensionSaid, Notice
from vfl_node.trust import extensions, pending
from vfl_node.trust.signers import Signers


def test_what_both_agree_on_counts_at_both_until_its_day(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    clinic, lab = sides
    assert [use(side, number) for number in (1, 2) for side in sides] == ["1", "1", "E_BUDGET", "E_BUDGET"]
    asked = clinic.ask()
    deliver(clinic, lab)
    (seen,) = lab.extensions.list()
    assert (seen["id"], seen["side"], seen["more"], seen["reason"], seen["state"]) == (
        asked["id"],
        "theirs",
        2,
        REASON,
        "asked",
    )
    assert [use(side, 2) for side in sides] == ["E_BUDGET"] * 2  # nobody has said yes
    assert lab.extensions.approve(asked["id"])["state"] == "agreed"
    deliver(clinic, lab)
    assert clinic.state() == lab.state() == ["agreed"]
    assert [[use(side, number) for number in (2, 3, 4)] for side in sides] == [["2", "3", "E_BUDGET"]] * 2
    for side in sides:
        counts, allowed = side.store.partner(side.peer), side.settings.rules.limits_of(side.peer).budgets
        assert counts.list_uses(allowed)["alignments"].most == 3
        verdict = verify_own(side.settings, side.peer)
        assert (verdict.faults, verdict.notes) == ((), ())
        monkeypatch.setattr(counts_module, "utc_now", lambda: f"{day(31)}T00:00:00+00:00")
        assert counts.list_uses(allowed)["alignments"].left == -2
        assert (use(side, 5), use(side, 3)) == ("E_BUDGET", "3")  # what is counted stays free
        monkeypatch.undo()


def test_a_clock_that_goes_back_brings_nothing_back(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    clinic, lab = sides
    lab.extensions.approve(ask_and_deliver(clinic, lab, until=day(0)))
    partner = lab.store.partner("clinic")
    assert partner.extended("alignments", 1) == 3
    monkeypatch.setattr("vfl_node.trust.lanes.utc_now", lambda: f"{day(2)}T00:00:00+00:00")
    partner.lane.append("forget", {"lines": {}})
    monkeypatch.undo()
    assert partner.extended("alignments", 1) == 1


def test_an_answer_that_is_lost_is_sent_again_when_the_link_comes_up(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    asked = clinic.ask()
    clinic.told.clear()  # the link was down
    for _ in range(2):
        (shown,) = clinic.extensions.show("lab")
        assert lab.hears(shown) is None  # the owner is asked once
    lab.extensions.approve(asked["id"])
    lab.told.clear()
    (shown,) = clinic.extensions.show("lab")
    answer = lab.hears(shown)
    assert (answer,) == lab.extensions.show("clinic")
    assert answer
    for _ in range(2):
        clinic.hears(answer)
    assert [len(side.entries()) for side in sides] == [1, 1]
    assert clinic.extensions.show("lab") == ()
    assert clinic.entries()[0].body == lab.entries()[0].body


@pytest.mark.parametrize("approved", [False, True])
def test_what_is_taken_back_while_the_link_is_down_ends_the_same_at_both(sides: tuple[Side, Side], approved: bool) -> None:
    clinic, lab = sides
    asked = ask_and_deliver(clinic, lab)
    assert clinic.extensions.refuse(asked)["state"] == "withdrawing"
    with pytest.raises(UsageError) as busy:
        clinic.ask()
    assert busy.value.code == "E_BUSY"
    if approved:
        assert lab.extensions.approve(asked)["state"] == "agreed"
    link_up(clinic, lab)
    assert clinic.state() == lab.state() == ["agreed" if approved else "withdrawn"]
    assert [len(side.entries()) for side in sides] == [approved, approved]
    clinic.ask()


def test_what_is_taken_back_before_it_was_heard_has_ended(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    clinic.extensions.refuse(clinic.ask()["id"])
    link_up(clinic, lab)
    assert (clinic.state(), lab.state()) == (["withdrawn"], [])


def test_an_approval_that_was_lost_reaches_who_asked_days_later(
    sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic, lab = sides
    lab.extensions.approve(ask_and_deliver(clinic, lab))
    now = extensions.utc()
    monkeypatch.setattr(extensions, "utc", lambda: now + timedelta(days=15))
    link_up(clinic, lab)
    assert (clinic.state(), lab.state()) == (["expired"], ["agreed"])  # too late
    monkeypatch.setattr(extensions, "utc", lambda: now + timedelta(days=9))
    assert clinic.state() == ["expired"]
    link_up(clinic, lab)
    assert clinic.state() == ["agreed"]


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"envelope": "", "state": "asked", "said": []}'])
@pytest.mark.parametrize("checked", [False, True])
def test_a_request_that_is_damaged_is_none_and_hinders_nothing(sides: tuple[Side, Side], damage: bytes, checked: bool) -> None:
    clinic, lab = sides
    ask_and_deliver(clinic, lab)
    for side, name in ((clinic, "ours"), (lab, "theirs")):
        path = side.settings.state_dir / "partners" / side.peer / f"extension-{name}.kept"
        if checked:
            write_checked(path, damage)
        else:
            path.write_bytes(damage)
        assert (side.state(), side.extensions.show(side.peer)) == ([], ())
    assert lab.extensions.approve(ask_and_deliver(clinic, lab))["state"] == "agreed"


def test_a_ledger_that_is_damaged_leaves_the_link_and_the_list(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    lab.extensions.approve(ask_and_deliver(clinic, lab))
    lane = lab.store.partner("clinic").lane.path
    lane.write_bytes(lane.read_bytes().replace(b"cohort", b"COHORT"))
    lab.store = Store(lab.settings.state_dir.parent / "other")  # so that nothing is remembered
    lab.store.partner = Partners(lab.settings.state_dir / "partners", Trial(), None).find
    damaged = Extensions(lab.settings, lab.store, lab.staff)
    assert damaged.list() == []
    with pytest.raises(StateError):
        damaged.show("clinic")
    voices = Voices([damaged])
    assert voices.show("clinic") == []
    assert voices.hear("clinic", Notice(extension=ExtensionSaid(id="0" * 32, code="E_WITHDRAWN"))) is not None


def test_an_older_request_takes_the_place_of_no_later_one(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    clinic, lab = sides
    now = extensions.utc()
    monkeypatch.setattr("vfl_node.node.extensions.utc", lambda: now - timedelta(minutes=1))
    clinic.ask()
    earlier = clinic.told.pop()
    monkeypatch.undo()
    clinic.store.partner("lab")  # its owner begins anew
    (clinic.settings.state_dir / "partners" / "lab" / "extension-ours.kept").unlink()
    ask_and_deliver(clinic, lab, more=5.0)
    answer = lab.hears(earlier)
    assert answer
    assert answer.extension.code == "E_EXTEND"
    assert [each["more"] for each in lab.extensions.list()] == [5]


def test_a_request_of_keys_that_are_given_up_is_not_approved(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    clinic, lab = sides
    asked = ask_and_deliver(clinic, lab)
    key = Signers(lab.settings).key
    assert key
    other = Ed25519PrivateKey.generate().public_key()
    monkeypatch.setattr(lab.extensions, "_keys", lambda partner: (key, other))
    with pytest.raises(PolicyError) as refused:
        lab.extensions.approve(asked)
    assert refused.value.code == "E_SIGNATURE"


def test_who_is_paired_anew_under_a_name_has_asked_nothing(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    ask_and_deliver(clinic, lab)
    for side in sides:
        pending.forget(side.settings, side.peer)
        assert side.state() == []


def test_a_full_disk_is_said_to_the_owner(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("vfl_node.node.extension_requests.write_checked", full)
    with pytest.raises(StateError) as refused:
        sides[0].ask()
    assert refused.value.code == "E_DISK_FULL"
