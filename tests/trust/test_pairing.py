"""The protocol of pairing by itself, message by message, and the invite that counts tries."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trust.parties import Party
from vfl_node.errors import PolicyError, ProtocolError, UsageError, VflError
from vfl_node.transport.generated.vfl.v1.session_pb2 import PairMessage
from vfl_node.trust.invites import TRIES, Invites, parse_code, spell_code
from vfl_node.trust.pairing import Inviter, Joiner, Met

CODE, LEAF = b"\1\2\3\4\5", b"\7" * 32

Change = Callable[[int, PairMessage], PairMessage]


def play(
    clinic: Party, lab: Party, *, heard: bytes = CODE, seen: bytes = LEAF, change: Change = lambda number, message: message
) -> tuple[Met, Met]:
    """Both sides, with each message changed on its way by ``change(number, message)``."""
    inviter, joiner = Inviter(CODE, clinic.own, leaf=LEAF), Joiner(heard, lab.own, leaf=seen)
    second = inviter.answer(change(1, joiner.begin()))
    last, at_clinic = inviter.meet(change(3, joiner.confirm(change(2, second))))
    return at_clinic, joiner.meet(change(4, last))


def test_the_right_code_makes_both_known_with_equal_words(clinic: Party, lab: Party) -> None:
    at_clinic, at_lab = play(clinic, lab)
    assert (at_clinic.card, at_lab.card) == (lab.card, clinic.card)
    assert at_clinic.words == at_lab.words
    assert len(at_lab.words) == 4
    assert play(clinic, lab)[0].words != at_clinic.words


def test_another_code_or_certificate_opens_nothing(clinic: Party, lab: Party) -> None:
    for wrong in ({"heard": b"\1\2\3\4\6"}, {"seen": b"\6" * 32}):
        with pytest.raises(PolicyError, match="the codes of the two sides differ") as caught:
            play(clinic, lab, **wrong)
        assert caught.value.code == "E_INVITE"
        assert "010203" not in caught.value.message


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("field", ["element", "card_sha256", "commitment", "box"])
def test_no_bit_of_any_message_may_change(clinic: Party, lab: Party, number: int, field: str) -> None:
    def change(at: int, message: PairMessage) -> PairMessage:
        value = bytearray(getattr(message, field))
        if at != number or not value:
            return message
        value[-1] ^= 1
        return PairMessage(**{name.name: bytes(part) for name, part in message.ListFields()} | {field: bytes(value)})

    sent = {"element": (1, 2), "card_sha256": (1,), "commitment": (2,), "box": (3, 4)}[field]
    if number in sent:
        with pytest.raises((PolicyError, ProtocolError)):
            play(clinic, lab, change=change)
    else:
        play(clinic, lab, change=change)


@pytest.mark.parametrize("element", [b"", b"A", b"B" + b"\0" * 32, b"B" + b"\xff" * 32, b"S" + b"\1" * 32, b"B" + b"\1" * 99])
def test_what_is_no_element_is_refused(clinic: Party, element: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        Inviter(CODE, clinic.own, leaf=LEAF).answer(PairMessage(element=element, card_sha256=b"\0" * 32))
    assert caught.value.code == "E_ELEMENT"


def test_an_element_that_comes_back_is_refused(lab: Party) -> None:
    for side in (b"B", b"A"):
        joiner = Joiner(CODE, lab.own, leaf=LEAF)
        own = joiner.begin().element
        with pytest.raises(ProtocolError):
            joiner.confirm(PairMessage(element=side + own[1:]))


def test_messages_of_an_earlier_pairing_open_nothing(clinic: Party, lab: Party) -> None:
    kept: dict[int, PairMessage] = {}

    def keep(number: int, message: PairMessage) -> PairMessage:
        return kept.setdefault(number, message)

    play(clinic, lab, change=keep)
    inviter = Inviter(CODE, clinic.own, leaf=LEAF)
    inviter.answer(kept[1])
    with pytest.raises(PolicyError, match="differ"):
        inviter.meet(kept[3])


def test_who_knows_the_code_and_stands_between_gives_other_words(clinic: Party, lab: Party, bank: Party) -> None:
    """What the words are for: the code was overheard."""
    to_lab = Inviter(CODE, bank.own, leaf=LEAF)
    joiner = Joiner(CODE, lab.own, leaf=LEAF)
    last, _ = to_lab.meet(joiner.confirm(to_lab.answer(joiner.begin())))
    at_lab = joiner.meet(last)
    at_clinic, _ = play(clinic, bank)
    assert at_lab.words != at_clinic.words
    assert {at_lab.card.card.name, at_clinic.card.card.name} == {"bank"}


@given(st.binary(min_size=5, max_size=5))
def test_a_code_is_read_as_it_was_said(secret: bytes) -> None:
    said = spell_code(secret)
    assert parse_code(said) == secret
    assert parse_code(f" {said.lower().replace('-', '')} ") == secret
    assert parse_code(said.replace("0", "o").replace("1", "l")) == secret


@pytest.mark.parametrize("said", ["", "9KQ4", "9KQ4-M2X", "9KQ4-M2XPP", "9KQ4-M2XU", "9KQ4-M2X\u0130"])
def test_what_is_no_code_is_not_repeated(said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_code(said)
    assert caught.value.code == "E_INVITE"
    assert not said or said not in str(caught.value)


def test_an_invite_ends_by_time_tries_use_and_its_owner() -> None:
    now = [0.0]
    draws = itertools.count()
    invites = Invites(lambda size: next(draws).to_bytes(size, "big"), lambda: now[0])
    with pytest.raises(PolicyError):
        invites.take_try()
    first = parse_code(invites.open(5))
    assert invites.take_try() == first
    now[0] = 300.0
    with pytest.raises(PolicyError, match="no invite is open"):
        invites.take_try()
    invites.open(5)
    assert [invites.take_try() for _ in range(TRIES)]
    assert invites.left == 0
    with pytest.raises(PolicyError):
        invites.take_try()
    secret = parse_code(invites.open(5))
    with pytest.raises(PolicyError, match="ended meanwhile"):
        invites.use(first)
    invites.use(secret)
    with pytest.raises(PolicyError):
        invites.use(secret)
    for minutes in (0, -1, 61, float("nan")):
        with pytest.raises(UsageError):
            invites.open(minutes)
    invites.open(1)
    invites.close()
    assert invites.left == 0


def test_the_last_try_may_still_be_the_right_one() -> None:
    invites = Invites()
    secret = parse_code(invites.open(5))
    for _ in range(TRIES):
        invites.take_try()
    invites.use(secret)


def test_of_many_tries_at_once_five_are_answered() -> None:
    invites, outcomes, gate = Invites(), list[bool](), threading.Barrier(40)
    invites.open(5)

    def guess() -> None:
        gate.wait()
        try:
            invites.take_try()
            outcomes.append(True)
        except VflError:
            outcomes.append(False)

    threads = [threading.Thread(target=guess) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == TRIES
