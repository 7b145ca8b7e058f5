"""PSI: Python's set as oracle, one order for both, and nothing on the wire but blinded lists."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.ledger import Disclosure

IDS = st.lists(st.binary(min_size=1, max_size=1), unique=True, max_size=12)


def as_set(rows):
    return {bytes(row) for row in rows}


def assert_is_intersection(run, ids_a, ids_p):
    shared = set(ids_a) & set(ids_p)
    of_a, of_p = [ids_a[i] for i in run.active.rows], [ids_p[i] for i in run.passive.rows]
    assert of_a == of_p
    assert sorted(of_a) == sorted(shared)
    assert run.active.owned.all()
    assert run.active.peer.intersection == run.passive.peer.intersection == len(shared)
    assert run.active.ours == run.passive.peer.records == len(ids_a)
    assert run.passive.ours == run.active.peer.records == len(ids_p)


@pytest.mark.parametrize("name", ["toy", "curve25519"])
@given(ids_a=IDS, ids_p=IDS)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_equals_pythons_set(run_alignment, groups, name, ids_a, ids_p):
    run = run_alignment("psi", ids_a, ids_p, group=groups[name])
    assert_is_intersection(run, ids_a, ids_p)
    assert [p.done for p in run.progress] == [p.total for p in run.progress] == 2 * [len(ids_a) + len(ids_p)]


@pytest.mark.parametrize(("n_a", "n_p", "shared"), [(0, 0, 0), (0, 3, 0), (4, 4, 4), (4, 5, 0), (5, 2, 2)])
def test_edge_cases(run_alignment, n_a, n_p, shared):
    ids = [b"%d" % i for i in range(n_a + n_p - shared)]
    ids_a, ids_p = ids[:n_a], ids[n_a - shared :]
    assert_is_intersection(run_alignment("psi", ids_a, ids_p), ids_a, ids_p)


def test_lists_have_nothing_in_common_but_the_intersection(run_alignment):
    run = run_alignment("psi", [b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 16)])
    common = {
        pair: len(as_set(run.lists[pair[0]]) & as_set(run.lists[pair[1]]))
        for pair in itertools.combinations(sorted(run.lists), 2)
    }
    assert common.pop(("step 3", "step 4")) == 4
    assert set(common.values()) == {0}


@pytest.mark.parametrize("step", ["step 1", "step 2"])
def test_an_own_list_in_canonical_order_would_prove_ids_absent(run_alignment, proven_absent, step):
    """Each party knows its shared ids' places in the peer's list; what the order has no room for is not in it."""
    ids = [b"%d" % i for i in range(500)]
    own, theirs, strangers = ids[:200], ids[100:300], ids[300:]
    ids_a, ids_p = (own, theirs) if step == "step 2" else (theirs, own)

    def claims(run):
        """A party that holds ``own`` knows the order of its own list, so whose answer is where in the other one."""
        mine, reply, answer = ("step 1", "step 3", "step 4") if step == "step 2" else ("step 2", "step 4", "step 3")
        place = {bytes(row): i for i, row in enumerate(run.lists[answer])}
        order = run.order("active" if step == "step 2" else "passive", mine)
        shared = {own[i]: place[bytes(row)] for i, row in zip(order, run.lists[reply], strict=True) if bytes(row) in place}
        assert shared.keys() == set(own) & set(theirs)
        return proven_absent(shared, len(theirs), ids[200:])

    proven = claims(run_alignment("psi", ids_a, ids_p, unshuffled={step}))
    assert proven <= set(strangers)
    assert len(proven) > 60
    by_chance = claims(run_alignment("psi", ids_a, ids_p))
    assert abs(len(by_chance & set(strangers)) / 200 - len(by_chance & set(theirs)) / 100) < 0.1


def test_says_what_it_learnt(run_alignment):
    run = run_alignment("psi", [b"a", b"b", b"c"], [b"b"])
    assert run.active.learnt == (
        Disclosure("set size", 1, "the number of lab's records: 1"),
        Disclosure("intersection", 1, "which 1 of its own 3 records are also held by lab"),
    )
    assert run.passive.learnt == (
        Disclosure("set size", 3, "the number of clinic's records: 3"),
        Disclosure("intersection", 1, "which 1 of its own 1 records are also held by clinic"),
    )
    assert (run.active.peer.learnt, run.passive.peer.learnt) == (run.passive.learnt, run.active.learnt)
