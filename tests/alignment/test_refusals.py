"""Every receiving step refuses what the protocol does not permit, and answers nothing to it."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment.alignment import MemoryPins
from vfl_node.crypto.workers import ThreadWorkers
from vfl_node.errors import DataError, PeerLost, ProtocolError, StateError
from vfl_node.progress import Silent
from vfl_node.transport.channel import memory_channels, run_together
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

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
}
EVERY_STEP = pytest.mark.parametrize(("protocol", "step"), RECEIVER)


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
    assert f"{protocol} {step} from" in receiver.message or code == "E_COUNT"
    assert isinstance(sender, PeerLost)


@EVERY_STEP
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "is 0, 1 or p-1"),
        (1, "is 0, 1 or p-1"),
        (2**80 - 5837 - 1, "is 0, 1 or p-1"),
        (2**80 - 5837, "is not below p"),
        (2**80 - 5837 - 4, "is not a square"),  # -4, and -1 is no square
    ],
)
def test_invalid_elements_of_a_safe_prime_group(run_alignment, protocol, step, value, reason):
    run = run_alignment(protocol, IDS_A, IDS_P, change={step: with_first(value, "big")})
    assert_refused(run, protocol, step, "E_ELEMENT")
    assert reason in sides(run, protocol, step)[0].message


@EVERY_STEP
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "has small order"),
        (1, "has small order"),
        (2, "is not on the curve"),
        (2**255 - 20, "is not on the curve"),  # p-1 has order 4 on the twist
        (2**255 - 19 + 9, "is not canonical"),
        (9 + 2**255, "is not canonical"),
    ],
)
def test_invalid_elements_of_curve25519(run_alignment, groups, protocol, step, value, reason):
    run = run_alignment(protocol, IDS_A, IDS_P, group=groups["curve25519"], change={step: with_first(value, "little")})
    assert_refused(run, protocol, step, "E_ELEMENT")
    assert reason in sides(run, protocol, step)[0].message


@EVERY_STEP
def test_an_element_that_occurs_twice(run_alignment, protocol, step):
    run = run_alignment(protocol, IDS_A, IDS_P, change={step: lambda rows: np.concatenate([rows[:1], rows[:-1]])})
    assert_refused(run, protocol, step, "E_DUPLICATE")


def plus_order_two(rows):
    """The last point replaced by the first plus (0, 0): another encoding, the same power."""
    u = int.from_bytes(rows[0].tobytes(), "little")
    shifted = pow(u, -1, 2**255 - 19)
    return np.concatenate([rows[:-1], np.frombuffer(shifted.to_bytes(32, "little"), np.uint8)[None]])


@pytest.mark.parametrize(
    ("protocol", "step"),
    [("psu", step) for step in ("step 3", "step 5", "step 8", "step 11 request", "step 12 request")]
    + [("psi", "step 1"), ("psi", "step 2")],
)
def test_an_element_that_occurs_twice_but_for_a_small_order_component(run_alignment, groups, protocol, step):
    run = run_alignment(protocol, IDS_A, IDS_P, group=groups["curve25519"], change={step: plus_order_two})
    assert_refused(run, protocol, step, "E_DUPLICATE")


@EVERY_STEP
@pytest.mark.parametrize("change", [lambda rows: rows[:-1], lambda rows: np.concatenate([rows, rows[:1]])], ids=["few", "many"])
def test_a_wrong_count(run_alignment, protocol, step, change):
    # Step 8 has bounds only: at least the larger set, at most both together. These sets reach one bound each.
    inside, outside = IDS_A[:4], [b"%d" % i for i in range(50, 54)]
    few = len(change(np.zeros((2, 1), np.uint8))) == 1
    ids_p = (inside if few else outside) if step == "step 8" else IDS_P
    assert_refused(run_alignment(protocol, IDS_A, ids_p, change={step: change}), protocol, step, "E_COUNT")


def test_step_8_within_its_bounds_but_wrong_is_noticed_by_the_active_party(run_alignment):
    run = run_alignment("psu", IDS_A, IDS_P, change={"step 8": lambda rows: rows[:-1]})
    assert isinstance(run.passive, PeerLost)
    assert (run.active.code, "expected 12" in run.active.message) == ("E_COUNT", True)


@pytest.mark.parametrize("step", ["step 11 reply", "step 12 reply"])
def test_a_reply_that_leads_outside_the_union(run_alignment, toy_group, step):
    stranger = toy_group.hash_to_group([b"stranger"], b"elsewhere")
    run = run_alignment("psu", IDS_A, IDS_P, change={step: lambda rows: np.concatenate([stranger, rows[1:]])})
    receiver, _ = sides(run, "psu", step)
    assert receiver.code == "E_UNION"


# ---- a resumed attempt


def test_the_same_attempt_again_sends_the_same_bytes(run_alignment):
    pins = [MemoryPins(), MemoryPins()]
    first, second = (run_alignment("psu", IDS_A, IDS_P, pins=pins) for _ in range(2))
    assert first.lists.keys() == second.lists.keys()
    for step, rows in first.lists.items():
        np.testing.assert_array_equal(rows, second.lists[step])
    np.testing.assert_array_equal(first.active.rows, second.active.rows)


@EVERY_STEP
def test_another_list_in_a_later_attempt_is_refused(run_alignment, toy_group, protocol, step):
    pins = [MemoryPins(), MemoryPins()]
    run_alignment(protocol, IDS_A, IDS_P, pins=pins)
    chosen = toy_group.hash_to_group([b"an id to test"], f"vfl-node-v1-{protocol}-toy".encode())
    ask = {step: lambda rows: np.concatenate([chosen, rows[1:]])}
    run = run_alignment(protocol, IDS_A, IDS_P, pins=pins, change=ask)
    receiver, sender = sides(run, protocol, step)
    assert isinstance(receiver, StateError)
    assert receiver.code == "E_REPLAY"
    assert receiver.message.startswith(f"{protocol} {step} ")
    assert isinstance(sender, PeerLost)
    if step.endswith("request"):
        assert step.replace("request", "reply") not in run.lists


# ---- sets


@pytest.mark.parametrize("protocol", ["psu", "psi"])
def test_duplicate_identifiers(run_alignment, protocol):
    run = run_alignment(protocol, [b"secret-one", b"b", b"secret-one"], IDS_P)
    assert isinstance(run.active, DataError)
    assert run.active.code == "E_DUP_IDS"
    assert "1 of 3" in run.active.message
    assert "secret-one" not in str(run.active)
    assert isinstance(run.passive, PeerLost)


def test_an_absurd_set_size(toy_group):
    from vfl_node.alignment import psu
    from vfl_node.crypto.randomness import Randomness

    async def absurd(channel):
        async with channel.phase("align"):
            await channel.send(alignment_pb2.SetSize(count=2**40))
            await channel.receive(alignment_pb2.SetSize)

    ours, theirs = memory_channels("clinic", "lab")
    side = psu.active(
        ours,
        IDS_A,
        group=toy_group,
        randomness=Randomness(bytes(32)),
        workers=ThreadWorkers(1),
        pins=MemoryPins(),
        progress=Silent(),
    )
    result, _ = run_together((side, ours), (absurd(theirs), theirs))
    assert result.code == "E_COUNT"
