"""Every receiving step refuses what the protocol does not permit, and answers nothing to it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from benchmarks.sessions import limits_from
from tests.thorough import every
from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.costs import memory_bytes
from vfl_node.alignment.sizes import announced_count
from vfl_node.crypto.randomness import Randomness
from vfl_node.engines.contract import Inline
from vfl_node.errors import DataError, PeerLost, PolicyError, ProtocolError, UsageError
from vfl_node.job import Align
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.limits import Budgets, Limits, SizeLimits
from vfl_node.transport.generated.vfl.v1 import session_pb2

IDS_A, IDS_P = [b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 12)]

RECEIVER = {
    ("psu", "step 3"): "passive",
    ("psu", "step 5"): "active",
    ("psu", "step 4"): "active",
    ("psu", "step 8"): "passive",
    ("psu", "step 11 request"): "passive",
    ("psu", "step 9"): "active",
    ("psu", "step 12 request"): "active",
    ("psu", "step 11 reply"): "active",
    ("psu", "step 12 reply"): "passive",
    ("psi", "step 1"): "passive",
    ("psi", "step 2"): "active",
    ("psi", "step 3"): "active",
    ("psi", "step 4"): "passive",
    ("apsi", "step 3"): "active",
    ("apsi", "step 4"): "passive",
    ("apsi", "step 6"): "active",
    ("apsi", "step 8"): "passive",
    ("apsi", "step 10"): "active",
    ("apsi", "step 12"): "passive",
}
ANSWER = {  # which list is computed from which one
    ("psu", "step 3"): "step 4",
    ("psu", "step 5"): "step 8",
    ("psu", "step 4"): "step 8",
    ("psu", "step 8"): "step 9",
    ("psu", "step 11 request"): "step 11 reply",
    ("psu", "step 12 request"): "step 12 reply",
    ("psi", "step 1"): "step 3",
    ("psi", "step 2"): "step 4",
    ("apsi", "step 3"): "step 8",
    ("apsi", "step 4"): "step 6",
    ("apsi", "step 6"): "step 8",
    ("apsi", "step 8"): "step 10",
    ("apsi", "step 10"): "step 12",
}
EVERY_STEP = pytest.mark.parametrize(("protocol", "step"), RECEIVER)


def each_step_with(*values):
    """Each step with each (value, reason); in `make test` with one or two of them, which come in turn."""
    pairs = [(*step, *value) for step in RECEIVER for value in values]
    return pytest.mark.parametrize(("protocol", "step", "value", "reason"), every(len(values) - 1, pairs))


def with_first(value, order):
    def change(rows):
        changed = rows.copy()
        changed[0] = np.frombuffer(value.to_bytes(rows.shape[1], order), np.uint8)
        return changed

    return change


def sides(run, protocol, step):
    """(what the receiver of a step ended with, what its sender ended with)."""
    both = {"active": run.active, "passive": run.passive}
    receiver = RECEIVER[protocol, step]
    return both.pop(receiver), *both.values()


def assert_refused(run, protocol, step, code):
    receiver, sender = sides(run, protocol, step)
    assert isinstance(receiver, ProtocolError), receiver
    assert receiver.code == code
    assert f"{protocol} {step} from" in receiver.message or code in ("E_COUNT", "E_ORDER", "E_TRUNCATED")
    assert isinstance(sender, PeerLost)
    assert ANSWER.get((protocol, step)) not in run.lists


@each_step_with(
    (0, "is 0, 1 or p-1"),
    (1, "is 0, 1 or p-1"),
    (2**80 - 5837 - 1, "is 0, 1 or p-1"),
    (2**80 - 5837, "is not below p"),
    (2**80 - 5837 - 4, "is not a square"),  # -4, and -1 is no square
)
def test_invalid_elements_of_a_safe_prime_group(run_alignment, protocol, step, value, reason):
    run = run_alignment(protocol, IDS_A, IDS_P, change={step: with_first(value, "big")})
    assert_refused(run, protocol, step, "E_ELEMENT")
    assert reason in sides(run, protocol, step)[0].message


@each_step_with(
    (0, "has small order"),
    (1, "has small order"),
    (2, "is not on the curve"),
    (2**255 - 20, "is not on the curve"),  # p-1 has order 4 on the twist
    (2**255 - 19 + 9, "is not canonical"),
    (9 + 2**255, "is not canonical"),
)
def test_invalid_elements_of_curve25519(run_alignment, groups, protocol, step, value, reason):
    run = run_alignment(protocol, IDS_A, IDS_P, group=groups["curve25519"], change={step: with_first(value, "little")})
    assert_refused(run, protocol, step, "E_ELEMENT")
    assert reason in sides(run, protocol, step)[0].message


@EVERY_STEP
def test_an_element_that_occurs_twice(run_alignment, protocol, step):
    run = run_alignment(protocol, IDS_A, IDS_P, change={step: lambda rows: np.concatenate([rows[:1], rows[:-1]])})
    assert_refused(run, protocol, step, "E_UNION" if (protocol, step) == ("psu", "step 9") else "E_DUPLICATE")  # it is sorted


def plus_order_two(rows):
    """The last point replaced by the first plus (0, 0): another encoding, the same power."""
    u = int.from_bytes(rows[0].tobytes(), "little")
    shifted = pow(u, -1, 2**255 - 19)
    return np.concatenate([rows[:-1], np.frombuffer(shifted.to_bytes(32, "little"), np.uint8)[None]])


@pytest.mark.parametrize(
    ("protocol", "step"),
    [("psu", step) for step in ("step 3", "step 5", "step 8", "step 11 request", "step 12 request")]
    + [("psi", "step 1"), ("psi", "step 2")]
    + [("apsi", step) for step in ("step 3", "step 4", "step 8", "step 10", "step 12")],
)
def test_an_element_that_occurs_twice_but_for_a_small_order_component(run_alignment, groups, protocol, step):
    run = run_alignment(protocol, IDS_A, IDS_P, group=groups["curve25519"], change={step: plus_order_two})
    assert_refused(run, protocol, step, "E_DUPLICATE")


@EVERY_STEP
@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])], ids=["few", "many"])
def test_a_wrong_count(run_alignment, protocol, step, change):
    # Step 8 of a union has bounds only: at least the larger set, at most both together. These sets reach one bound each.
    inside, outside = IDS_A[:4], [b"%d" % i for i in range(50, 54)]
    few = len(change(np.zeros((2, 1), np.uint8))) == 1
    ids_p = (inside if few else outside) if (protocol, step) == ("psu", "step 8") else IDS_P
    terms = {"obfuscation": {"fraction": 1}} if protocol == "apsi" else {}  # as many as asked for, and as there are
    run = run_alignment(protocol, IDS_A, ids_p, change={step: change}, **terms)
    if (protocol, step, few) == ("apsi", "step 12", True):
        assert len(run.passive) == len(IDS_P) - 1  # it may be the set of an earlier job: any size will do
    else:
        assert_refused(run, protocol, step, "E_COUNT")


def test_step_8_within_its_bounds_but_wrong_is_noticed_by_the_active_party(run_alignment):
    run = run_alignment("psu", IDS_A, IDS_P, change={"step 8": lambda rows: rows[:-1]})
    assert isinstance(run.passive, PeerLost)
    assert (run.active.code, "expected 12" in run.active.message) == ("E_COUNT", True)


async def longer_than_announced(channel, rows, start):
    await channel.send(session_pb2.Rows(count=len(rows), width=rows.shape[1]))
    await channel.send(session_pb2.Chunk(offset=0, rows=rows.tobytes() + rows[0].tobytes()))


async def shorter_than_announced(channel, rows, start):
    await channel.send(session_pb2.Rows(count=len(rows), width=rows.shape[1]))
    await channel.send(session_pb2.Chunk(offset=0, rows=rows[:-1].tobytes()))
    await channel.send(session_pb2.RowsEnd(count=len(rows) - 1, sha256=hashlib.sha256(rows[:-1].tobytes()).digest()))


async def with_another_digest(channel, rows, start):
    await channel.send(session_pb2.Rows(count=len(rows), width=rows.shape[1]))
    await channel.send(session_pb2.Chunk(offset=0, rows=rows.tobytes()))
    await channel.send(session_pb2.RowsEnd(count=len(rows), sha256=bytes(32)))


async def broken_off(channel, rows, start):
    await channel.send(session_pb2.Rows(count=len(rows), width=rows.shape[1]))
    await channel.send(session_pb2.Chunk(offset=0, rows=rows[:-1].tobytes()))
    raise ConnectionError


@EVERY_STEP
@pytest.mark.parametrize(
    ("send", "code"),
    [(longer_than_announced, "E_CHUNK"), (shorter_than_announced, "E_ORDER"), (with_another_digest, "E_TRUNCATED")],
)
def test_a_list_that_is_not_as_announced(run_alignment, protocol, step, send, code):
    run = run_alignment(protocol, IDS_A, IDS_P, instead={step: send})
    receiver, sender = sides(run, protocol, step)
    assert (receiver.code, isinstance(receiver, ProtocolError)) == (code, True)
    assert isinstance(sender, PeerLost)
    assert ANSWER.get((protocol, step)) not in run.lists


@EVERY_STEP
def test_a_stream_that_breaks_off_is_never_a_list_that_ended(run_alignment, protocol, step):
    run = run_alignment(protocol, IDS_A, IDS_P, instead={step: broken_off})
    receiver, sender = sides(run, protocol, step)
    assert isinstance(receiver, PeerLost)
    assert isinstance(sender, ConnectionError)
    assert ANSWER.get((protocol, step)) not in run.lists


@pytest.mark.parametrize(
    ("protocol", "step"), [("psu", "step 11 reply"), ("psu", "step 12 reply"), ("apsi", "step 10"), ("apsi", "step 12")]
)
def test_an_element_that_leads_outside_the_union(run_alignment, toy_group, protocol, step):
    stranger = toy_group.hash_to_group([b"stranger"], b"elsewhere")
    run = run_alignment(protocol, IDS_A, IDS_P, change={step: lambda rows: np.concatenate([stranger, rows[1:]])})
    # Only the strong party can tell that an element of the obfuscated set is none of its own.
    receiver = run.passive if step == "step 10" else sides(run, protocol, step)[0]
    assert receiver.code == "E_UNION"


# ---- sets


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
@pytest.mark.parametrize("role", ["active", "passive"])
def test_duplicate_identifiers(run_alignment, protocol, role):
    twice = [b"secret-one", b"b", b"secret-one"]
    run = run_alignment(protocol, *((twice, IDS_P) if role == "active" else (IDS_A, twice)))
    refusing, other = (run.active, run.passive) if role == "active" else (run.passive, run.active)
    assert isinstance(refusing, DataError)
    assert refusing.code == "E_DUP_IDS"
    assert "1 of 3" in refusing.message
    assert "secret-one" not in str(refusing)
    assert isinstance(other, PeerLost)
    assert not run.lists


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
def test_a_set_of_ours_that_is_too_small(run_alignment, protocol):
    run = run_alignment(protocol, IDS_A, IDS_P, limits=Limits(min_own_rows=8, min_peer_rows=1))
    assert (run.passive.code, isinstance(run.passive, PolicyError)) == ("E_TOO_FEW", True)
    assert not run.spies[1].messages  # not even its size
    assert not run.lists


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
@pytest.mark.parametrize(
    ("limits", "count", "code"),
    [
        (Limits(min_own_rows=1, min_peer_rows=7), 6, "E_TOO_FEW"),
        (limits_from(1, size=SizeLimits(rows=100)), 101, "E_TOO_MANY"),
        (limits_from(1, size=SizeLimits(rows=100)), 2**63, "E_TOO_MANY"),
    ],
)
def test_an_announced_size_outside_the_limits(run_alignment, protocol, limits, count, code):
    def announce(message):
        message.count = count
        return message

    run = run_alignment(protocol, IDS_A, IDS_P, limits=limits, greet={"passive": announce})
    assert (run.active.code, isinstance(run.active, PolicyError)) == (code, True)
    assert isinstance(run.passive, PeerLost)
    assert not {"step 3", "step 1", "step 4"} & run.spies[0].lists.keys()


@pytest.mark.parametrize(
    ("terms", "most"), [({}, 8), ({"padding": 1}, 15), ({"dummies": 20}, 48)], ids=["records", "padding", "dummies"]
)
def test_a_set_of_ours_that_is_too_large_as_announced(run_alignment, terms, most):
    """Refused before anything is said, and said to be our own: the peer would refuse it under the same limit."""
    run = run_alignment("psu", IDS_A, IDS_P, limits=limits_from(1, size=SizeLimits(rows=most)), **terms)
    assert (type(run.active), run.active.code) == (PolicyError, "E_TOO_MANY")
    assert "this party" in run.active.message
    assert str(most + 1) in run.active.message
    assert not run.spies[0].messages
    assert not run.lists


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
@pytest.mark.parametrize("mark", [b"", bytes(31), bytes(33)], ids=len)
def test_a_mark_of_another_length(run_alignment, protocol, mark):
    def announce(message):
        message.mark = mark
        return message

    run = run_alignment(protocol, IDS_A, IDS_P, introduce={"passive": announce})
    assert isinstance(run.active, ProtocolError)
    assert f"a mark of {len(mark)} bytes" in run.active.message
    assert not run.spies[0].lists


def test_the_least_set_size_does_not_count_dummies(run_alignment):
    ours = run_alignment("psu", IDS_A, IDS_P, dummies=20, limits=limits_from(8))
    assert ours.passive.code == "E_TOO_FEW"

    def announce(message):
        message.count = 7 + 2 * 20
        return message

    theirs = run_alignment("psu", IDS_A, IDS_A, dummies=20, limits=limits_from(8), greet={"passive": announce})
    assert theirs.active.code == "E_TOO_FEW"
    assert "7 records" in theirs.active.message


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
def test_a_set_changed_too_often(run_alignment, protocol):
    """The owner's budget counts pairs of sets, of this party and of the peer by its own word, before any list leaves."""

    class Counting(MemoryOfOneRun):
        def __init__(self, secret):
            super().__init__(secret)
            self.pairs = set()

        def count(self, what):
            if what.kind == "inputs":
                self.pairs.add(what.line)
                if len(self.pairs) > what.limit:
                    raise PolicyError("too many", code="E_BUDGET", hint="", for_peer="")
            return 1

    memories = [Counting(Randomness(bytes([i]) * 32)) for i in range(2)]
    limits = limits_from(1, budgets=Budgets(alignments=2))

    def again(ids_a, ids_p):
        return run_alignment(protocol, ids_a, ids_p, memories=memories, limits=limits)

    for ids_a, ids_p in [(IDS_A, IDS_P), (IDS_A[::-1], IDS_P), (IDS_A, IDS_P[1:])]:
        assert isinstance(again(ids_a, ids_p).active, Alignment)
    run = again(IDS_A[1:], IDS_P)
    assert run.active.code == "E_BUDGET"
    assert not run.lists


def test_a_disk_that_is_too_small(monkeypatch, run_alignment):
    monkeypatch.setattr("vfl_node.alignment.lists.columns.Columns.free_bytes", lambda self: 100)
    run = run_alignment("psu", IDS_A, IDS_P)
    assert (run.active.code, run.passive.code) == ("E_DISK_FULL", "E_DISK_FULL")
    assert not run.lists


@pytest.mark.parametrize(("protocol", "terms"), [("psi", {}), ("psu", {}), ("psu", {"padding": 5, "dummies": 2}), ("apsi", {})])
def test_memory_is_enough_to_the_byte(monkeypatch, run_alignment, toy_group, workers, protocol, terms):
    align = Align.model_construct(protocol=protocol, **terms)
    sizes = [announced_count(len(IDS_A), align, "active"), announced_count(len(IDS_P), align, "passive")]
    needed = [memory_bytes(own, sum(sizes), toy_group.width, workers.workers) for own in sizes]
    for free in (max(needed), max(needed) - 1):
        monkeypatch.setattr("vfl_node.session.session.free_bytes", lambda free=free: free)
        run = run_alignment(protocol, IDS_A, IDS_P, **terms)
        codes = [getattr(side, "code", None) for side in (run.active, run.passive)]
        if free == max(needed):
            assert codes == [None, None]
        else:
            short = needed.index(max(needed))
            assert codes[short] == "E_MEMORY"
            assert run.lists.keys() <= {"step 2", "step 5"}  # P sends its own list meanwhile
            assert "GiB are free" in (run.active, run.passive)[short].message


class Many(Inline):
    """An engine of many workers elsewhere."""

    workers = 1000


def test_workers_on_other_machines_need_no_memory_of_this_one(monkeypatch, run_alignment, toy_group, workers):
    needed = max(
        memory_bytes(own, len(IDS_A) + len(IDS_P), toy_group.width, workers.workers) for own in (len(IDS_A), len(IDS_P))
    )
    monkeypatch.setattr("vfl_node.session.session.free_bytes", lambda: needed)
    run = run_alignment("psi", IDS_A, IDS_P, machine={"workers": Many(), "beside": workers})
    assert [getattr(side, "code", None) for side in (run.active, run.passive)] == [None, None]


def test_memory_grows_with_records_and_workers_by_what_a_bucket_takes():
    few, more = (memory_bytes(10, 20, 32, workers) for workers in (1, 32))
    assert 64 << 20 < few < more < 65 << 20
    assert memory_bytes(10**9, 2 * 10**9, 32, 32) - memory_bytes(10**9, 2 * 10**9, 32, 31) < 800 << 20
    assert memory_bytes(10**6, 2 * 10**6, 32, 2) < 320 << 20


def test_a_size_that_this_owner_must_choose_and_has_not_chosen(run_alignment):
    run = run_alignment("apsi", IDS_A, IDS_P, obfuscation="private")
    assert (run.active.code, isinstance(run.active, UsageError)) == ("E_CONFIG", True)
    assert isinstance(run.passive, PeerLost)
    assert not run.spies[0].messages
