"""An obfuscated set is drawn once for a peer and both inputs; later jobs use it again, whatever else they ask for."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment.alignment import MemoryOfOneRun
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import UsageError
from vfl_node.settings import Obfuscation
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


def memories():
    return [MemoryOfOneRun(Randomness(bytes([i]) * 32)) for i in range(2)]


def again(run):
    return [m.again for m in run.spies[0].messages if isinstance(m, alignment_pb2.Obfuscation)]


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
    assert (again(first), again(later)) == ([False], [True])
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
        super().__init__(other.secret)
        self._kept = other._kept

    def recall(self, name):
        return None


@pytest.mark.parametrize("size", [9, 3, 20])
def test_two_jobs_that_draw_at_the_same_time_end_with_the_same_set(run_alignment, size):
    """The first to remember counts for both, whatever size the other one asked for; and its ledger is about its own draw."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered, obfuscation={"size": 9})
    racing = [Racing(remembered[0]), remembered[1]]
    second = run_alignment("apsi", ids_w, ids_s, memories=racing, seed=7, job_id="second", obfuscation={"size": size})
    assert again(second) == [False]
    assert len(second.lists["step 8"]) == {9: 9, 3: 8, 20: 20}[size]
    np.testing.assert_array_equal(second.lists["step 12"], first.lists["step 12"])
    assert_agree(second, ids_w, ids_s, 9)
    assert second.active.peer_learnt == second.passive.learnt
    assert ("intersection size" in {entry.what for entry in second.passive.learnt}) == (size < 5)
    # Resumed, the second job does without a draw of its own.
    resumed = run_alignment("apsi", ids_w, ids_s, memories=remembered, seed=7, job_id="second", obfuscation={"size": size})
    assert again(resumed) == [True]
    np.testing.assert_array_equal(resumed.lists["step 12"], first.lists["step 12"])


def test_the_same_job_resumed_goes_on_with_its_own_draw(run_alignment):
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first, second = (run_alignment("apsi", ids_w, ids_s, memories=remembered) for _ in range(2))
    assert (again(first), again(second)) == ([False], [False])
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
        remembered = memories()
    second = run_alignment("apsi", ids_w, ids_s, memories=remembered, seed=2, job_id="second")
    assert again(second) == [False]
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
