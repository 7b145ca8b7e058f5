"""Both parties send at the same time; still nothing computed from a list leaves before that list has been looked at.

A peer that sends a repeated element, another list than the one of its mark, or half of a list hears no answer to it. The first
two have a control: without the check the answer leaves.
"""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment.lists.lists import Lists
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, ProtocolError
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.transport.generated.vfl.v1 import session_pb2

IDS_A, IDS_P = [b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 13)]
ANSWERS = {  # to a list that arrives while the receiver sends its own
    ("psi", "step 1"): "step 3",
    ("psi", "step 2"): "step 4",
    ("psu", "step 3"): "step 4",
    ("psu", "step 5"): "step 8",
    ("psu", "step 11 request"): "step 11 reply",
    ("psu", "step 12 request"): "step 12 reply",
}
EVERY = pytest.mark.parametrize(("protocol", "step"), ANSWERS)
WITHOUT = pytest.mark.parametrize("barrier", [True, False], ids=["as it is", "without the barrier"])


def receiver(run, step):
    """What the party ended with that receives ``step``."""
    return run.passive if step in run.spies[0].names else run.active


@EVERY
@WITHOUT
def test_a_list_with_a_repeated_element_is_not_answered(run_alignment, monkeypatch, protocol, step, barrier):
    if not barrier:
        monkeypatch.setattr(Lists, "check_distinct", lambda self, name, column: column)

    def repeat(rows):
        return np.concatenate([rows[:-1], rows[:1]])

    run = run_alignment(protocol, IDS_A, IDS_P, change={step: repeat})
    assert (ANSWERS[protocol, step] in run.lists) is not barrier
    if barrier:
        error = receiver(run, step)
        assert (type(error), error.code) == (ProtocolError, "E_DUPLICATE")
        assert f"{protocol} {step} from" in error.message


@EVERY
@WITHOUT
def test_another_list_than_the_marks_is_not_answered(run_alignment, toy_group, monkeypatch, protocol, step, barrier):
    """In a later job: nothing of the earlier one is left but what the receiver remembers of its peer."""
    memories = [MemoryOfOneRun(Randomness(bytes([i]) * 32)) for i in range(2)]
    first = run_alignment(protocol, IDS_A, IDS_P, memories=memories)
    assert ANSWERS[protocol, step] in first.lists
    if not barrier:
        monkeypatch.setattr(MemoryOfOneRun, "keep", lambda self, name, value: value)
    stranger = toy_group.hash_to_group([b"an id to test"], f"vfl-node-v1-{protocol}-toy".encode())

    def replace(rows):
        return np.concatenate([rows[:-1], stranger])

    run = run_alignment(protocol, IDS_A, IDS_P, memories=memories, job_id="later", seed=2, change={step: replace})
    assert (ANSWERS[protocol, step] in run.lists) is not barrier
    if barrier:
        error = receiver(run, step)
        assert (type(error), error.code) == (ProtocolError, "E_MARK")


@EVERY
def test_half_of_a_list_is_not_answered(run_alignment, protocol, step):
    """The peer breaks off in the middle: the receiver has computed the powers of the first half by then."""

    async def half(channel, rows, start):
        await channel.send(session_pb2.Rows(count=len(rows), width=rows.shape[1]))
        await channel.send(session_pb2.Chunk(offset=0, rows=rows[:4].tobytes()))
        raise ConnectionError

    run = run_alignment(protocol, IDS_A, IDS_P, instead={step: half})
    assert isinstance(receiver(run, step), PeerLost)
    assert ANSWERS[protocol, step] not in run.lists
