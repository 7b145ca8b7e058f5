"""What owners sign when they agree on more of a budget: who may, what is refused, and what stands in ledgers."""

from __future__ import annotations

import base64
import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trust.asking import REASON, Side, ask_and_deliver, day, deliver, link_up, use
from vfl_node.errors import PolicyError, UsageError
from vfl_node.node.ledgers import verify_own
from vfl_node.session.counted import BUDGETS
from vfl_node.session.spent import Expense
from vfl_node.settings.bounds import Bound, raise_total
from vfl_node.settings.limits import Budgets
from vfl_node.transport.generated.vfl.v1.session_pb2 import ExtensionSaid, Notice
from vfl_node.trust import dsse, extensions
from vfl_node.trust.extensions import Extendable, Wish, read_request, sign_approval, sign_request
from vfl_node.trust.people import Person
from vfl_node.trust.signers import Signers


def test_a_refusal_and_a_request_that_is_taken_back_end_it_at_both(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    lab.extensions.refuse(first := ask_and_deliver(clinic, lab))
    lab.told.clear()
    (shown,) = clinic.extensions.show("lab")  # who asks again hears the same
    answer = lab.hears(shown)
    assert answer
    clinic.hears(answer)
    assert (clinic.state(), lab.state()) == (["refused"], ["refused"])
    assert "its owner refuses it (E_REFUSED)" in clinic.extensions.list()[0]["why"]
    second = ask_and_deliver(clinic, lab)
    clinic.extensions.refuse(second)
    deliver(clinic, lab)
    assert (clinic.state(), lab.state()) == (["withdrawn"], ["withdrawn"])
    for side in sides:
        for request_id in (first, second, "no such request"):
            with pytest.raises(UsageError) as refused:
                side.extensions.approve(request_id)
            assert refused.value.code == "E_NOT_ASKED"
    assert [use(side, number) for number in (1, 2) for side in sides] == ["1", "1", "E_BUDGET", "E_BUDGET"]


@pytest.mark.parametrize("at", ["asks", "answers"])
def test_a_policy_that_does_not_allow_it_refuses_at_once(sides: tuple[Side, Side], tmp_path: Path, at: str) -> None:
    clinic, lab = sides
    closed = clinic if at == "asks" else lab
    closed.settings.in_force.policy = type(closed.settings.rules).model_validate({"preset": "careful"})
    assert not closed.settings.rules.limits_of(closed.peer).budgets.extend  # the default
    if at == "asks":
        with pytest.raises(PolicyError) as refused:
            clinic.ask()
        assert (refused.value.code, "budgets.extend" in refused.value.hint) == ("E_POLICY", True)
        return
    ask_and_deliver(clinic, lab)
    assert (clinic.state(), lab.state()) == (["refused"], [])
    assert "(E_POLICY)" in clinic.extensions.list()[0]["why"]


def test_strict_wants_two_persons_at_the_node_that_is_strict(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    for side in sides:
        side.settings.in_force.policy = type(side.settings.rules).model_validate(
            {"preset": "strict", "everyone": {"budgets": {"extend": True, "alignments": 1}}}
        )
    for nobody in (None, "eve", "stranger"):
        with pytest.raises(UsageError) as refused:
            clinic.ask(person=nobody)
        assert refused.value.code == "E_PERSON"
    asked = clinic.ask(person="ann")
    assert (asked["state"], asked["yes"], clinic.told, clinic.extensions.show("lab")) == ("drafted", ["ann"], [], ())
    with pytest.raises(UsageError, match="ann has said yes already"):
        clinic.extensions.approve(asked["id"], "ann")
    assert clinic.extensions.approve(asked["id"], "bob")["state"] == "asked"
    deliver(clinic, lab)
    assert lab.extensions.approve(asked["id"], "bob")["state"] == "asked"
    del lab.staff.known["bob"]  # whose token is revoked: that yes counts no more
    assert lab.extensions.approve(asked["id"], "ann")["yes"] == ["ann"]
    lab.staff.known["bob"] = Person("bob", frozenset(("admin",)), "another token")
    assert lab.extensions.approve(asked["id"], "bob")["state"] == "agreed"
    deliver(clinic, lab)
    assert clinic.state() == ["agreed"]


def forged(sides: tuple[Side, Side], how: str) -> tuple[bytes, str]:
    """A request that the lab must not believe, and the code with which it refuses it."""
    key = Signers(sides[0].settings).key
    assert key
    about: dict[str, Any] = {"at": extensions.utc(), "federation": "trial", "by": "clinic", "to": "lab", "budget": "trainings"}
    about |= {"more": 3, "until": date.today() + timedelta(days=9), "reason": REASON}
    code = "E_EXTEND"
    match how:
        case "another key":
            key, code = Ed25519PrivateKey.generate(), "E_SIGNATURE"
        case "another federation" | "another asker" | "another partner":
            about[{"federation": "federation", "asker": "by", "partner": "to"}[how.split()[1]]] = "bank"
        case "too old":
            about |= {"at": extensions.utc() - timedelta(days=8)}
        case "of the future":
            about |= {"at": extensions.utc() + timedelta(hours=1)}
        case "too much":
            about |= {"more": 5000}
    wish = Wish.model_construct(**{"v": 1, "salt": "0" * 16} | about)
    return dsse.sign(extensions.REQUEST, wish.to_bytes(), key), code


@pytest.mark.parametrize(
    "how", ["another key", "another federation", "another asker", "another partner", "too old", "of the future", "too much"]
)
def test_a_request_that_is_not_what_it_should_be_is_refused(sides: tuple[Side, Side], how: str) -> None:
    lab = sides[1]
    envelope, code = forged(sides, how)
    answer = lab.hears(Notice(extension=ExtensionSaid(id="0" * 16, request=envelope)))
    assert answer
    assert answer.extension.code == code
    assert lab.extensions.list() == []


def test_the_same_request_without_a_mistake_is_heard(sides: tuple[Side, Side]) -> None:
    envelope, _ = forged(sides, "no mistake")
    assert sides[1].hears(Notice(extension=ExtensionSaid(id="0" * 16, request=envelope))) is None
    assert sides[1].state() == ["asked"]


def test_an_approval_counts_for_one_open_request_by_who_was_asked(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    key, stranger = Signers(lab.settings).key, Ed25519PrivateKey.generate()
    assert key
    earlier = clinic.ask()
    before = extensions.parse_request(clinic.told[-1].extension.request)
    clinic.extensions.refuse(earlier["id"])
    link_up(clinic, lab)
    asked = clinic.ask(more=1.0)
    request = extensions.parse_request(clinic.told[-1].extension.request)
    for approval, request_id in (
        (sign_approval(request, stranger), asked["id"]),
        (sign_approval(before, key), asked["id"]),
        (sign_approval(before, key), earlier["id"]),  # which is not open any more
        (b"no envelope", asked["id"]),
    ):
        clinic.hears(Notice(extension=ExtensionSaid(id=request_id, approval=approval)))
        assert (clinic.entries(), clinic.state()) == ([], ["asked"])
    clinic.hears(Notice(extension=ExtensionSaid(id=asked["id"], approval=sign_approval(request, key))))
    assert [entry.body["more"] for entry in clinic.entries()] == [1]


def test_an_approval_may_come_late_and_may_not_be_late(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    clinic, lab = sides
    first, second = ask_and_deliver(clinic, lab), None
    lab.extensions.approve(first)
    now = extensions.utc() + timedelta(days=8)
    monkeypatch.setattr(extensions, "utc", lambda: now)
    assert clinic.state() == ["expired"]
    deliver(clinic, lab)  # it was away for a week
    assert clinic.state() == ["agreed"]
    monkeypatch.undo()
    second = ask_and_deliver(clinic, lab)
    monkeypatch.setattr(extensions, "utc", lambda: now)
    with pytest.raises(UsageError, match="too late"):
        lab.extensions.approve(second)
    key = Signers(lab.settings).key
    assert key
    late = sign_approval(extensions.parse_request(lab_kept(lab)), key)
    clinic.hears(Notice(extension=ExtensionSaid(id=second, approval=late)))
    assert len(clinic.entries()) == 1


def lab_kept(lab: Side) -> bytes:
    kept = json.loads(lab.store.partner("clinic").recall("extension-theirs") or b"")
    return str(kept["envelope"]).encode()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"budget": "predicted_rows"}, "budget"),
        ({"more": 1.5}, "whole number"),
        ({"more": 0.0}, "more"),
        ({"more": float("nan")}, "more"),
        ({"until": day(-1)}, "last day"),
        ({"until": day(400)}, "last day"),
        ({"until": "tomorrow"}, "no day"),
        ({"reason": "two\nlines"}, "one line"),
        ({"reason": ""}, "reason"),
    ],
)
def test_what_cannot_be_asked_for_is_said(sides: tuple[Side, Side], changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        sides[0].ask(**changes)
    assert refused.value.code == "E_REQUEST"
    assert says in refused.value.message


def test_who_has_no_bound_or_no_link_or_no_key_is_told(sides: tuple[Side, Side], tmp_path: Path) -> None:
    clinic, _ = sides
    with pytest.raises(UsageError, match="no link with bank"):
        clinic.extensions.ask("bank", "trainings", 1, day(1), REASON)
    policy = {"preset": "careful", "everyone": {"budgets": {"extend": True, "trainings": None}}}
    clinic.settings.in_force.policy = type(clinic.settings.rules).model_validate(policy)
    with pytest.raises(UsageError, match="has no bound here"):
        clinic.ask(budget="trainings")
    assert clinic.settings.tls
    clinic.settings.tls.signing_key.unlink()
    with pytest.raises(UsageError) as unsigned:
        clinic.ask()
    assert unsigned.value.code == "E_CARD"


def test_an_agreement_of_epsilon_lets_a_job_spend_more(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    expense = Expense("default", "job-1", 1.0, limit=4.0)
    with pytest.raises(PolicyError):
        lab.store.partner("clinic").check_expense(expense)
    lab.extensions.approve(ask_and_deliver(clinic, lab, budget="epsilon", more=1.5))
    lab.store.partner("clinic").check_expense(expense)


def agreement(key: Ed25519PrivateKey, signer: Ed25519PrivateKey, **changes: Any) -> dict[str, Any]:
    """An entry of a ledger: the clinic's request by ``key``, approved in the name of its partner by ``signer``."""
    about: dict[str, Any] = {"at": extensions.utc(), "federation": "trial", "by": "clinic", "to": "lab", "budget": "trainings"}
    about |= {"more": 500, "until": date.today() + timedelta(days=9), "reason": REASON}
    request = sign_request(Wish(**about | changes), key)
    return extensions.make_entry(request, sign_approval(request, signer))


def test_verifying_a_ledger_finds_an_agreement_that_the_partner_has_not_signed(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    lab.extensions.approve(ask_and_deliver(clinic, lab))
    deliver(clinic, lab)
    lane, body = clinic.store.partner("lab").lane, dict(clinic.entries()[0].body)
    own, theirs = Signers(clinic.settings).key, Signers(lab.settings).key
    assert own
    assert theirs
    nobody = json.loads(sign_approval(extensions.parse_request(body["request"].encode()), theirs))
    nobody |= {"payload": base64.b64encode(b"not even an approval").decode(), "signatures": [{"keyid": "nobody", "sig": ""}]}
    lane.append("extend", body)
    assert clinic.store.partner("lab").extended("alignments", 1) == 3  # twice the same counts once
    for number, (entry, fault, note) in enumerate(
        [
            (agreement(own, theirs), "", ""),
            (body, "the same agreement stands there once more", ""),
            (agreement(own, theirs) | {"more": 1}, "something else", ""),
            (agreement(own, own, to="clinic"), "of other parties", ""),
            (agreement(own, theirs, by="bank"), "of other parties", ""),
            (agreement(own, own), "", "the signature of lab is not by the key on its card"),
            (agreement(own, theirs) | {"approval": "{}"}, "cannot be used", ""),
            (agreement(own, theirs) | {"approval": json.dumps(nobody)}, "cannot be used", ""),
            ({"id": "0" * 32}, "cannot be read", ""),
        ],
        3,
    ):
        lane.append("extend", entry)
        verdict = verify_own(clinic.settings, "lab")
        newest = [text for text in verdict.faults if text.startswith(f"entry {number + 1}:")]
        assert (fault in "".join(newest), bool(newest)) == (True, bool(fault)), (number, verdict)
        noted = [text for text in verdict.notes if text.startswith(f"entry {number + 1}:")]
        assert (note in "".join(noted), bool(noted)) == (True, bool(note)), (number, verdict)


def test_every_budget_that_is_counted_can_be_extended_and_windows_stay() -> None:
    assert set(get_args(Extendable)) == {*BUDGETS, "epsilon"}
    assert set(get_args(Extendable)) | {"predicted_rows", "extend"} == set(Budgets.model_fields)
    bounds = (Bound(most=2, per="week"), Bound(most=20))
    assert raise_total(bounds, 3.0) == (Bound(most=2, per="week"), Bound(most=23))
    assert (raise_total(None, 3.0), raise_total(1, 3.0), raise_total(4, 0.5)) == (None, 4, 4.5)


def test_what_is_read_says_who_signed(sides: tuple[Side, Side]) -> None:
    key = Ed25519PrivateKey.generate()
    wish = Wish(
        at=extensions.utc(),
        federation="trial",
        by="a",
        to="b",
        budget="changes",
        more=1,
        until=extensions.utc().date(),
        reason="r",
    )
    request = sign_request(wish, key)
    read = read_request(request.envelope, federation="trial", own="b", peer="a", key=key.public_key())
    assert (read, len(read.id)) == (request, 32)
