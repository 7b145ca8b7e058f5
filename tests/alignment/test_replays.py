"""A resumed attempt goes on with the same lists; another list, size or claim is refused, and answered by nothing."""

from __future__ import annotations

import os

import numpy as np
import pytest

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, ProtocolError, StateError
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.settings.node import Obfuscation
from vfl_node.transport.generated.vfl.v1 import session_pb2

IDS_A, IDS_P = [b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 12)]
ROLES = ("active", "passive")
LISTS = {  # each list's receiver
    "psu": {
        "step 3": "passive",
        "step 5": "active",
        "step 4": "active",
        "step 8": "passive",
        "step 11 request": "passive",
        "step 9": "active",
        "step 12 request": "active",
        "step 11 reply": "active",
        "step 12 reply": "passive",
    },
    "psi": {"step 1": "passive", "step 2": "active", "step 3": "active", "step 4": "passive"},
    "apsi": {
        "step 3": "active",
        "step 4": "passive",
        "step 6": "active",
        "step 8": "passive",
        "step 10": "active",
        "step 12": "passive",
    },
}
ORACLES = {  # requests that are answered under secret scalars, and the answers
    ("psu", "step 11 request"): "step 11 reply",
    ("psu", "step 12 request"): "step 12 reply",
    ("apsi", "step 8"): "step 10",
}
EVERY = pytest.mark.parametrize("protocol", LISTS)
EVERY_STEP = pytest.mark.parametrize(("protocol", "step"), [(protocol, step) for protocol in LISTS for step in LISTS[protocol]])
EVERY_ORACLE = pytest.mark.parametrize(("protocol", "step"), ORACLES)


@pytest.fixture
def attempt(run_alignment, folders):
    """Runs one attempt after another of the same job; both parties keep everything unless told to lose it."""
    kept = {"folders": folders, "pins": [MemoryPins(), MemoryPins()]}
    kept["memories"] = [MemoryOfOneRun(Randomness(bytes([i]) * 32)) for i in range(2)]

    def run(protocol, lose=(), **how):
        how = {name: value for name, value in kept.items() if name not in lose} | how
        return run_alignment(protocol, IDS_A, IDS_P, **how)

    return run


@pytest.fixture
def stranger(toy_group):
    """A valid element that neither party sent; such as one whose power a party would like to know."""

    def element(protocol):
        return toy_group.hash_to_group([b"an id to test"], f"vfl-node-v1-{protocol}-toy".encode())

    return element


def both(run, protocol, step):
    """(what the receiver of a step ended with, what its sender ended with)."""
    results = {"active": run.active, "passive": run.passive}
    return results.pop(LISTS[protocol][step]), *results.values()


def assert_replay(run, protocol, step):
    receiver, sender = both(run, protocol, step)
    assert (type(receiver), receiver.code) == (StateError, "E_REPLAY")
    assert isinstance(sender, PeerLost)
    assert ORACLES.get((protocol, step)) not in run.lists


def first_replaced(other):
    return lambda rows: np.concatenate([other, rows[1:]])


def last_replaced(other):
    return lambda rows: np.concatenate([rows[:-1], other])


@EVERY
@pytest.mark.parametrize("lose", [(), ("folders",), ("pins", "folders")], ids=["nothing", "folders", "all"])
def test_the_same_attempt_again_is_the_same_byte_by_byte(attempt, protocol, lose):
    first, second = attempt(protocol), attempt(protocol, lose)
    assert first.lists.keys() == second.lists.keys()
    for step, rows in first.lists.items():
        np.testing.assert_array_equal(rows, second.lists[step])
    for role in ("active", "passive"):
        np.testing.assert_array_equal(getattr(first, role).rows, getattr(second, role).rows)
    sent = {step: len(rows) - spy.starts[step] for spy in second.spies for step, rows in spy.lists.items()}
    assert sum(sent.values()) == (0 if not lose else sum(map(len, first.lists.values())))


@EVERY_STEP
@pytest.mark.parametrize("lose", [(), ("folders",), ("pins",)], ids=["nothing", "folders", "pins"])
def test_another_list(attempt, stranger, protocol, step, lose):
    """Refused by its pin, by the SHA-256 of what is held of it, or by both."""
    attempt(protocol)
    run = attempt(protocol, lose, change={step: first_replaced(stranger(protocol))})
    assert_replay(run, protocol, step)
    if "folders" in lose:
        assert both(run, protocol, step)[0].message.startswith(f"{protocol} {step} ")


@EVERY_STEP
def test_a_list_whose_beginning_differs(attempt, stranger, protocol, step):
    """Of a list that broke off nothing is pinned, but the rest must follow what has arrived."""

    async def broken_off(channel, rows, start):
        await channel.send(session_pb2.Rows(count=len(rows), width=rows.shape[1]))
        await channel.send(session_pb2.Chunk(offset=0, rows=rows[:4].tobytes()))
        raise ConnectionError

    assert isinstance(both(attempt(protocol, instead={step: broken_off}), protocol, step)[0], PeerLost)
    assert_replay(attempt(protocol, change={step: first_replaced(stranger(protocol))}), protocol, step)
    run = attempt(protocol)
    assert isinstance(run.active, Alignment), run.active
    assert {**run.spies[0].starts, **run.spies[1].starts}[step] == 4


@EVERY
@pytest.mark.parametrize("role", ["active", "passive"])
@pytest.mark.parametrize("more", [-1, 1])
def test_another_size(attempt, protocol, role, more):
    def announce(message):
        message.count += more
        return message

    attempt(protocol)
    run = attempt(protocol, greet={role: announce})
    refusing = run.passive if role == "active" else run.active
    assert (type(refusing), refusing.code) == (StateError, "E_REPLAY")
    assert refusing.message.startswith(f"{protocol} size ")
    assert len(run.lists) <= 1  # the other one may have begun


@EVERY_STEP
@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])], ids=["few", "many"])
def test_another_count(attempt, protocol, step, change):
    attempt(protocol)
    run = attempt(protocol, change={step: change})
    receiver, sender = both(run, protocol, step)
    assert receiver.code in ("E_REPLAY", "E_COUNT")
    assert isinstance(sender, PeerLost)
    assert ORACLES.get((protocol, step)) not in run.lists


@EVERY_STEP
@pytest.mark.parametrize(("rows", "first"), [(1000, True), (2**63, False)], ids=["first attempt", "later attempt"])
def test_a_claim_to_hold_more_than_there_is(attempt, protocol, step, rows, first):
    def claim(message):
        next(held for held in message.held if held.list == step).rows = rows
        return message

    if not first:
        attempt(protocol)
    run = attempt(protocol, greet={LISTS[protocol][step]: claim})
    claiming, sender = both(run, protocol, step)
    assert (type(sender), sender.code) == (ProtocolError, "E_COUNT")
    assert f"claims {rows} elements of {step}" in sender.message
    assert isinstance(claiming, PeerLost)
    assert step not in run.lists


@EVERY
def test_a_claim_to_hold_a_list_that_does_not_exist(attempt, protocol):
    def claim(message):
        message.held.add(list="../step 99", rows=3)
        return message

    run = attempt(protocol, greet={"active": claim, "passive": claim})
    assert isinstance(run.active, Alignment)
    assert isinstance(run.passive, Alignment)


# ---- what is remembered beyond the job


@pytest.mark.parametrize("loser", [0, 1], ids=["active", "passive"])
@pytest.mark.parametrize("lose", [(), ("folders",)], ids=["nothing else", "folders"])
def test_dummies_of_another_memory_are_refused(attempt, loser, lose):
    """They would be others than those of the lists that were sent, and rows would be read off at wrong places."""
    first = attempt("psu", dummies=9)
    memories = [MemoryOfOneRun(Randomness(bytes([7 if i == loser else i]) * 32)) for i in range(2)]
    run = attempt("psu", lose, dummies=9, memories=memories)
    codes = {run.active.code, run.passive.code}  # both have other ones: the peer's mark is another
    assert {"E_STATE_LOST"} <= codes <= {"E_STATE_LOST", "E_PEER_LOST"}
    assert not run.lists
    put_back = attempt("psu", lose, dummies=9)
    np.testing.assert_array_equal(put_back.active.rows, first.active.rows)
    np.testing.assert_array_equal(put_back.passive.rows, first.passive.rows)


@EVERY
def test_a_job_does_not_go_on_with_other_memories(attempt, protocol):
    """What blinds a set comes from them: stored lists would be mixed with others."""
    attempt(protocol)
    run = attempt(protocol, memories=[MemoryOfOneRun(Randomness(bytes([7 + i]) * 32)) for i in range(2)])
    assert {run.active.code, run.passive.code} <= {"E_STATE_LOST", "E_PEER_LOST"}
    assert not run.lists
    again = attempt(protocol)
    assert isinstance(again.active, Alignment)


@pytest.mark.parametrize("lost", [False, True])
def test_a_choice_of_the_obfuscated_set_is_not_made_again_by_another_security_number(attempt, lost):
    """From two choices of one job the strong party could tell more. The memory gives the same one; the pin is for its loss."""
    before, after = (Obfuscation(security_number=xi) for xi in (0, 0.9))
    first = attempt("apsi", obfuscation="private", wish=before)
    lose = ("folders", "memories") if lost else ("folders",)
    run = attempt("apsi", lose, obfuscation="private", wish=after)
    if lost:
        assert (type(run.active), run.active.code) == (StateError, "E_STATE_LOST")
        assert not run.lists
    else:
        np.testing.assert_array_equal(run.lists["step 8"], first.lists["step 8"])


# ---- an oracle request that was answered already


@EVERY_ORACLE
def test_an_extended_request_is_not_answered(attempt, stranger, protocol, step):
    """All of the earlier request, and an element behind it: its beginning does not differ."""
    attempt(protocol)
    run = attempt(protocol, change={step: lambda rows: np.concatenate([rows, stranger(protocol)])})
    assert both(run, protocol, step)[0].code == ("E_REPLAY" if protocol == "apsi" else "E_COUNT")
    assert ORACLES[protocol, step] not in run.lists


@EVERY_ORACLE
@pytest.mark.parametrize("pinned", ["by the job", "by the mark", "nowhere"])
def test_a_request_with_another_end_is_not_answered_where_the_end_was_lost(
    attempt, monkeypatch, folders, stranger, protocol, step, pinned
):
    """The receiver's file lost its last chunk, so the beginning it holds does not differ. Either pin refuses alone."""
    monkeypatch.setattr("vfl_node.transport.channel.CHUNK_BYTES", 40)  # 4 elements
    attempt(protocol)
    folder = folders[("active", "passive").index(LISTS[protocol][step])]
    marks = folder / f"{step.replace(' ', '-')}.marks"
    os.truncate(marks, marks.stat().st_size - 40)
    for answer in folder.glob(f"{step.replace(' ', '-')}-powers.*"):
        answer.unlink()
    (folder / f"{ORACLES[protocol, step].replace(' ', '-')}.rows").unlink(missing_ok=True)
    lose = () if pinned == "by the job" else ("pins",)
    if pinned == "nowhere":
        monkeypatch.setattr("vfl_node.alignment.lists.lists.Lists._first_of_this_mark", lambda self, name, digest: digest)
    run = attempt(protocol, lose, change={step: last_replaced(stranger(protocol))})
    assert 4 <= {**run.spies[0].starts, **run.spies[1].starts}[step] < len(run.lists[step])
    if pinned == "by the job":
        assert_replay(run, protocol, step)
    elif pinned == "by the mark":
        assert both(run, protocol, step)[0].code == "E_MARK"
        assert ORACLES[protocol, step] not in run.lists
    else:
        assert ORACLES[protocol, step] in run.lists
