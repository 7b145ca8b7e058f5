"""More of a budget by agreement: asked for and approved under signatures, counted at both, and nothing else is believed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_args

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trust.test_kept import WORDS, Own
from vfl_node.errors import PolicyError, UsageError
from vfl_node.node import counts as counts_module
from vfl_node.node.extensions import Extensions
from vfl_node.node.ledgers import verify_own
from vfl_node.node.store import Store
from vfl_node.session.counted import BUDGETS, aligned_sets
from vfl_node.session.spent import Expense
from vfl_node.settings.bounds import Bound, raise_total
from vfl_node.settings.limits import Budgets
from vfl_node.transport.generated.vfl.v1.session_pb2 import ExtensionSaid, Notice
from vfl_node.trust import dsse, extensions, pending
from vfl_node.trust.extensions import Extendable, Wish, read_request, sign_approval, sign_request
from vfl_node.trust.people import Person
from vfl_node.trust.signers import Signers

POLICY = "preset: careful\neveryone: {budgets: {extend: true, alignments: 1}}\n"
REASON = "a second cohort"


def day(ahead: int) -> str:
    return (datetime.now(timezone.utc) + timedelta(days=ahead)).date().isoformat()


@dataclass
class Staff:
    """People with tokens."""

    known: dict[str, Person]

    def get(self, name: str) -> Person | None:
        return self.known.get(name)

    def find(self, token: str) -> Person | None:
        return None


class Side:
    """One node, without a port: what it tells is kept, and heard by the other one when it is delivered."""

    def __init__(self, own: Own, policy: str = POLICY) -> None:
        own.config.with_name("policy.yaml").write_text(policy)
        self.own, self.settings = own, own.settings
        self.store = Store(self.settings.state_dir, signing=Signers(self.settings))
        approvers = {name: Person(name, frozenset(("approver",)), name) for name in ("ann", "bob")}
        self.staff = Staff(approvers | {"eve": Person("eve", frozenset(("viewer",)), "eve")})
        self.extensions = Extensions(self.settings, self.store, self.staff)
        self.told: list[Notice] = []
        self.extensions.tell = lambda _, notice: self.told.append(notice)

    @property
    def peer(self) -> str:
        return "lab" if self.settings.name == "clinic" else "clinic"

    def ask(self, **changes: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {"budget": "alignments", "more": 2.0, "until": day(30), "reason": REASON, "person": None}
        return self.extensions.ask(self.peer, **asked | changes)

    def hears(self, notice: Notice) -> Notice | None:
        return self.extensions.hear(self.peer, notice.extension)

    def state(self) -> list[str]:
        return [each["state"] for each in self.extensions.list()]

    def entries(self) -> list[Any]:
        return list(self.store.partner(self.peer).lane.list("extend"))

    def align(self, number: int) -> int:
        limits = self.settings.rules.limits_of(self.peer).budgets
        return self.store.partner(self.peer).count(aligned_sets(bytes([number]) * 8, limits.alignments))


def deliver(one: Side, other: Side) -> None:
    """Whatever both tell is heard, until nothing is left."""
    while one.told or other.told:
        for sender, receiver in ((one, other), (other, one)):
            heard, sender.told[:] = list(sender.told), []
            receiver.told += [answer for notice in heard if (answer := receiver.hears(notice))]


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Side, Side]:
    clinic, lab = Own("clinic", tmp_path / "clinic"), Own("lab", tmp_path / "lab")
    pending.accept(clinic.settings, pending.keep(clinic.settings, lab.card, None, "passive", WORDS))
    pending.accept(lab.settings, pending.keep(lab.settings, clinic.card, "clinic.example:7443", "active", WORDS))
    return Side(clinic), Side(lab)


def use(side: Side, number: int) -> str:
    try:
        return str(side.align(number))
    except PolicyError as error:
        return error.code


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


def ask_and_deliver(one: Side, other: Side, **changes: Any) -> str:
    asked = str(one.ask(**changes)["id"])
    deliver(one, other)
    return asked


def test_an_answer_that_is_lost_is_sent_again_when_the_link_comes_up(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    asked = clinic.ask()
    clinic.told.clear()  # the link was down
    for _ in range(2):
        shown = clinic.extensions.show("lab")
        assert shown
        assert lab.hears(shown) is None  # the owner is asked once
    lab.extensions.approve(asked["id"])
    lab.told.clear()
    shown = clinic.extensions.show("lab")
    assert shown
    answer = lab.hears(shown)
    assert answer
    for _ in range(2):
        clinic.hears(answer)
    assert [len(side.entries()) for side in sides] == [1, 1]
    assert clinic.extensions.show("lab") is None
    assert clinic.entries()[0].body == lab.entries()[0].body


def test_a_refusal_and_a_request_that_is_taken_back_end_it_at_both(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    lab.extensions.refuse(first := ask_and_deliver(clinic, lab))
    lab.told.clear()
    shown = clinic.extensions.show("lab")  # who asks again hears the same
    assert shown
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
    assert (asked["state"], asked["yes"], clinic.told, clinic.extensions.show("lab")) == ("drafted", ["ann"], [], None)
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


def test_verifying_a_ledger_finds_an_agreement_that_the_partner_has_not_signed(sides: tuple[Side, Side]) -> None:
    clinic, lab = sides
    lab.extensions.approve(ask_and_deliver(clinic, lab))
    deliver(clinic, lab)
    lane, body = clinic.store.partner("lab").lane, dict(clinic.entries()[0].body)
    request = extensions.parse_request(body["request"].encode())
    key = Signers(clinic.settings).key
    assert key
    changed: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        (body | {"more": 500}, lambda verdict: "something else" in verdict.faults[-1]),
        (
            body | {"approval": sign_approval(request, key).decode()},
            lambda verdict: "lab with another key" in verdict.notes[-1],
        ),
        (body | {"approval": "{}"}, lambda verdict: bool(verdict.faults)),
        ({"id": body["id"]}, lambda verdict: "cannot be read" in verdict.faults[-1]),
    ]
    for number, (entry, is_found) in enumerate(changed, 2):
        lane.append("extend", entry)
        verdict = verify_own(clinic.settings, "lab")
        assert is_found(verdict), (number, verdict)


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
    assert (read, len(read.id)) == (request, 16)
