"""An obfuscated set is drawn once for a peer and both inputs; later jobs use it again, whatever else they ask for."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment.alignment import Alignment
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerLost, ProtocolError, StateError, UsageError
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.settings.node import Obfuscation
from vfl_node.transport.generated.vfl.v1 import alignment_pb2


def as_set(rows):
    return {bytes(row) for row in rows}


def sets(n_w, n_s, shared):
    ids = [b"id%d" % i for i in range(n_w + n_s - shared)]
    return ids[:n_w], ids[n_w - shared :]


def assert_agree(run, ids_w, ids_s, m):
    """Both have the same m records of the strong party, all that the weak one has among them."""
    of_s = [ids_s[i] for i in run.passive.rows]
    assert len(of_s) == m
    assert [ids_w[i] if i >= 0 else None for i in run.active.rows] == [item if item in ids_w else None for item in of_s]
    assert set(ids_w) & set(ids_s) <= set(of_s)


def memories(of=b""):
    return [MemoryOfOneRun(Randomness((of + bytes([i])).rjust(32))) for i in range(2)]


def told(run):
    return [m for m in run.spies[0].messages if isinstance(m, alignment_pb2.Obfuscation)]


def again(run):
    return told(run)[0].again


def raised(run):
    """What the ledgers say of a size that had to be raised."""
    assert run.active.peer.learnt == run.passive.learnt
    return [entry.text for entry in run.passive.learnt if entry.what == "intersection size"]


async def broken_off(channel, rows, start):
    raise ConnectionError


@pytest.mark.parametrize("wanted", [{"size": 9}, {"size": 3}, {"fraction": 1}, "private"])
def test_a_later_job_uses_the_same_set(run_alignment, wanted):
    """Byte for byte, with other rows, another seed and whatever size it asks for; and so often as one likes."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    wish = Obfuscation(security_number=0.9)
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered, obfuscation={"size": 9})
    later = run_alignment(
        "apsi", ids_w[::-1], ids_s[3:] + ids_s[:3], memories=remembered, seed=7, job_id="later", obfuscation=wanted, wish=wish
    )
    assert (again(first), again(later)) == (False, True)
    assert later.lists.keys() == {"step 12"}
    np.testing.assert_array_equal(later.lists["step 12"], first.lists["step 12"])
    assert_agree(later, ids_w[::-1], ids_s[3:] + ids_s[:3], 9)
    assert [entry.count for entry in later.passive.learnt] == [8, 9]
    assert [p.done for p in later.progress] == [p.total for p in later.progress]


def test_two_draws_would_tell_more_than_one(run_alignment):
    """The negative control of the memory: what draws without it have in common is closer and closer to I."""
    ids_w, ids_s = sets(8, 60, 5)
    drawn = []
    for seed in range(1, 9):
        run = run_alignment("apsi", ids_w, ids_s, obfuscation={"size": 20}, seed=seed, job_id=f"{seed}")
        drawn.append({ids_s[i] for i in run.passive.rows})
    assert set.intersection(*drawn) == set(ids_w) & set(ids_s)
    assert len(set.intersection(*drawn[:2])) < 15


class Racing(MemoryOfOneRun):
    """A memory in which another job writes after this one has read."""

    def __init__(self, other):
        self.__dict__ = other.__dict__

    def recall(self, name):
        return None


@pytest.mark.parametrize("size", [9, 3])
def test_two_jobs_that_draw_at_the_same_time_end_with_the_same_set(run_alignment, size):
    """The first to remember counts for both, whatever size the other one asked for; the ledger knows whose size it is."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered, obfuscation={"size": 9})
    racing = [Racing(remembered[0]), remembered[1]]
    second = run_alignment("apsi", ids_w, ids_s, memories=racing, seed=7, job_id="second", obfuscation={"size": size})
    assert [(m.again, m.same_size) for m in told(second)] == [(False, False), (False, True)]
    assert len(first.lists["step 8"]) == len(second.lists["step 8"]) == 9
    np.testing.assert_array_equal(second.lists["step 12"], first.lists["step 12"])
    assert_agree(second, ids_w, ids_s, 9)
    assert raised(second) == []  # 9 was asked for, only not by this job
    # Resumed, the second job does without a draw of its own.
    resumed = run_alignment("apsi", ids_w, ids_s, memories=remembered, seed=7, job_id="second", obfuscation={"size": size})
    assert again(resumed)
    np.testing.assert_array_equal(resumed.lists["step 12"], first.lists["step 12"])


def test_of_two_jobs_at_the_same_time_the_one_that_asks_for_more_ends(run_alignment):
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    run_alignment("apsi", ids_w, ids_s, memories=remembered, obfuscation={"size": 9})
    racing = [Racing(remembered[0]), remembered[1]]
    second = run_alignment("apsi", ids_w, ids_s, memories=racing, seed=7, job_id="second", obfuscation={"size": 20})
    assert (type(second.active), second.active.code) == (UsageError, "E_CONFIG")
    assert "{size: 9}" in second.active.hint
    assert isinstance(second.passive, PeerLost)
    assert "step 8" not in second.lists


def test_jobs_broken_off_at_the_size_show_one_size_only(run_alignment):
    """The strong party could search for |I| by sizes that are raised or not; it ends each job before a set is remembered."""
    ids_w, ids_s = sets(8, 20, 5)

    def shown(memories_of):
        runs = [
            run_alignment(
                "apsi",
                ids_w,
                ids_s,
                memories=memories_of(size),
                obfuscation={"size": size},
                seed=size,
                job_id=f"{size}",
                instead={"step 10": broken_off},
            )
            for size in (3, 10, 4, 6, 5, 1, 20)
        ]
        assert not any("step 12" in run.lists for run in runs)
        return runs, {len(run.lists["step 8"]) for run in runs if "step 8" in run.lists}

    assert shown(lambda size: memories())[1] == {8, 10, 6, 5, 20}  # without a memory: 4 is raised, 5 is not
    remembered = memories()
    runs, sizes = shown(lambda size: remembered)
    assert sizes == {8}
    assert [getattr(run.active, "code", None) == "E_CONFIG" for run in runs] == [size > 8 for size in (3, 10, 4, 6, 5, 1, 20)]
    last = run_alignment("apsi", ids_w, ids_s, memories=remembered, obfuscation={"size": 2}, job_id="last")
    assert_agree(last, ids_w, ids_s, 8)
    assert raised(last) == []  # it was raised from another job's
    # The job that drew it, resumed.
    first = run_alignment("apsi", ids_w, ids_s, memories=memories(), obfuscation={"size": 3})
    assert len(raised(first)) == 1


def test_a_set_under_the_mark_of_a_smaller_one_gets_no_set_of_shared_records_only(run_alignment):
    """The size is remembered by the peer's mark, so more could be shared than there is room for: a mark is held to its list."""
    ids_w, ids_s = sets(8, 20, 2)
    remembered, marks = memories(), []

    def same_mark(message):
        marks.append(message.mark)
        message.mark = marks[0]
        return message

    how = {"memories": remembered, "obfuscation": {"size": 3}, "introduce": {"passive": same_mark}}
    run_alignment("apsi", ids_w, ids_s, instead={"step 10": broken_off}, **how)
    run = run_alignment("apsi", ids_w, ids_s[2:14] + ids_w, job_id="second", **how)
    assert (type(run.active), run.active.code) == (ProtocolError, "E_MARK")
    assert "step 8" not in run.lists


def test_a_remembered_set_that_was_damaged_is_not_sent(run_alignment):
    """The strong party would be shown elements that are none of its own, or another choice."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered)
    (name,) = (name for name in remembered[0]._stored if name.startswith("obfuscated-") and not name.endswith("-size"))
    whole = remembered[0]._stored[name]
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[:-10], whole + whole[-10:]):
        remembered[0]._stored[name] = damaged
        run = run_alignment("apsi", ids_w, ids_s, memories=remembered, job_id="later")
        assert (type(run.active), run.active.code) == (StateError, "E_STATE_CORRUPT")
        assert not run.lists
    remembered[0]._stored[name] = whole
    later = run_alignment("apsi", ids_w, ids_s, memories=remembered, job_id="later")
    assert isinstance(later.active, Alignment)
    np.testing.assert_array_equal(later.lists["step 12"], first.lists["step 12"])


def test_the_same_job_resumed_goes_on_with_its_own_draw(run_alignment):
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first, second = (run_alignment("apsi", ids_w, ids_s, memories=remembered) for _ in range(2))
    assert (again(first), again(second)) == (False, False)
    for step, rows in first.lists.items():
        np.testing.assert_array_equal(second.lists[step], rows)


@pytest.mark.parametrize("changed", ["active", "passive", "peer"])
def test_a_changed_input_or_another_peer_gets_a_new_set(run_alignment, changed):
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered)
    if changed == "active":
        ids_w = [*ids_w, b"one more"]
    elif changed == "passive":
        ids_s = [*ids_s, b"one more"]
    else:
        remembered = memories(b"another")
    second = run_alignment("apsi", ids_w, ids_s, memories=remembered, seed=2, job_id="second")
    assert not again(second)
    assert as_set(second.lists["step 12"]) != as_set(first.lists["step 12"])


def test_another_group_does_not_get_another_set(run_alignment, groups):
    """Its elements would be others, so the set would have to be drawn anew; the strong party could compare the two."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    run_alignment("apsi", ids_w, ids_s, memories=remembered)
    later, racing = (
        run_alignment("apsi", ids_w, ids_s, memories=these, group=groups["curve25519"], job_id="later")
        for these in (remembered, [Racing(remembered[0]), remembered[1]])
    )
    for run in (later, racing):
        assert (type(run.active), run.active.code) == (UsageError, "E_CONFIG")
        assert "toy" in run.active.hint
        assert "step 12" not in run.lists
    assert not later.lists
