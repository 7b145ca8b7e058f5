"""PSI: Python's set as oracle, one order for both, and nothing on the wire but blinded lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

IDS = st.lists(st.binary(min_size=1, max_size=1), unique=True, max_size=12)


def as_set(rows):
    return {bytes(row) for row in rows}


def assert_is_intersection(run, ids_a, ids_p):
    shared = set(ids_a) & set(ids_p)
    of_a, of_p = [ids_a[i] for i in run.active.rows], [ids_p[i] for i in run.passive.rows]
    assert of_a == of_p
    assert sorted(of_a) == sorted(shared)
    assert run.active.owned.all()
    assert run.active.intersection == run.passive.intersection == len(shared)
    assert (run.active.ours, run.active.theirs) == (run.passive.theirs, run.passive.ours) == (len(ids_a), len(ids_p))


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


def test_the_order_of_rows_changes_nothing_but_the_mapping(run_alignment):
    ids_a, ids_p = [b"%d" % i for i in range(20)], [b"%d" % i for i in range(12, 30)]
    first, second = run_alignment("psi", ids_a, ids_p), run_alignment("psi", ids_a[::-1], ids_p)
    np.testing.assert_array_equal(first.passive.rows, second.passive.rows)
    np.testing.assert_array_equal(19 - first.active.rows, second.active.rows)


def test_lists_have_nothing_in_common_but_the_intersection(run_alignment):
    run = run_alignment("psi", [b"%d" % i for i in range(9)], [b"%d" % i for i in range(5, 16)])
    common = {
        pair: len(as_set(run.lists[pair[0]]) & as_set(run.lists[pair[1]]))
        for pair in itertools.combinations(sorted(run.lists), 2)
    }
    assert common.pop(("step 3", "step 4")) == 4
    assert set(common.values()) == {0}


def test_a_list_in_the_tables_order_would_tell_row_numbers(run_alignment):
    """Without the secret order of step 2 the active party reads the passive party's row numbers off step 4."""
    ids_a, ids_p = [b"%d" % i for i in range(60)], [b"%d" % i for i in range(30, 90)]

    def rows_seen(run):
        doubly = as_set(run.lists["step 3"])
        return {i for i, row in enumerate(run.lists["step 4"]) if bytes(row) in doubly}

    assert rows_seen(run_alignment("psi", ids_a, ids_p, unshuffled={"step 2"})) == set(range(30))
    assert 5 < len(rows_seen(run_alignment("psi", ids_a, ids_p)) & set(range(30))) < 25


def test_domains_separate_the_protocols(run_alignment, toy_group):
    """The same identifier gives unrelated elements in PSU and PSI, so lists of one say nothing about the other."""
    tags = [f"vfl-node-v1-{protocol}-toy".encode() for protocol in ("psu", "psi")]
    psu, psi = (as_set(toy_group.hash_to_group([b"x", b"y"], tag)) for tag in tags)
    assert not psu & psi
    run = run_alignment("psi", [b"x", b"y"], [b"x"])
    assert as_set(run.power(run.lists["step 1"], toy_group.inverse(run.scalar("active", "scalar")))) == psi


def test_says_what_it_learnt(run_alignment):
    run = run_alignment("psi", [b"a", b"b", b"c"], [b"b"])
    assert run.active.learnt == ("the number of lab's records: 1", "which 1 of its own 3 records lab holds too")
    assert run.passive.learnt == ("the number of clinic's records: 3", "which 1 of its own 1 records clinic holds too")
