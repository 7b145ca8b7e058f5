"""A linkage gives what a search over plain filters gives, the same in every job, and tells no party more than it should."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alignment.linkage.worlds import A, B, C, World, numbers, pairs
from tests.alignment.worlds import RAM
from vfl_node.alignment.linkage.similarity import tau_of
from vfl_node.session.memory import JointMemory
from vfl_node.transport.generated.vfl.v1 import linkage_pb2, session_pb2


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, {A: numbers(9, 1), B: numbers(7, 2)})


def distances(world):
    """int64[n_A, n_B], in the order of the tables, and whether the two filters have a common one."""
    a, b = (np.unpackbits(world.filters(name), axis=1).astype(np.int64) for name in (A, B))
    both = a @ b.T
    return a.sum(1)[:, None] + b.sum(1)[None] - 2 * both, both > 0


def check_against_brute_force(world, results):
    """Candidates are the nearest within reach, similarities standardised distances; of equal distances any may be left."""
    apart, within = distances(world)
    found = pairs(world, results)
    a, b = ({name: row for row, name in enumerate(world.ids[of])} for of in (A, B))
    chosen = np.zeros_like(within)
    for own, theirs in found:
        chosen[a[own], b[theirs]] = True
    assert (within | ~chosen).all()
    k = world.align.candidates
    for row in range(len(apart)):
        allowed = np.sort(apart[row][within[row]])[:k]
        np.testing.assert_array_equal(np.sort(apart[row][chosen[row]]), allowed)
    standard = (-apart - -apart[chosen].mean()) / apart[chosen].std()
    for (own, theirs), similarity in found.items():
        assert similarity == pytest.approx(standard[a[own], b[theirs]], abs=1e-5)


def test_the_nearest_of_each_record(world):
    results = world.job(noise={"sigma": 0})
    check_against_brute_force(world, results)
    assert sorted(results[A].rows) == list(range(9))
    assert results[A].candidates == results[B].candidates == 4
    assert results[B].rows.shape == results[A].similarities.shape == (9, 4)


values = st.lists(st.integers(0, 100), min_size=3, max_size=9)


@settings(max_examples=12, deadline=None)
@given(values, values, st.integers(1, 3))
def test_brute_force(ours, theirs, k):
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        _test_brute_force(World(Path(folder), {A: ours, B: theirs}), k)


def _test_brute_force(world, k):
    results = world.job(noise={"sigma": 0}, candidates=k)
    if isinstance(results[C], Exception):
        apart, within = distances(world)
        nearest = [np.sort(apart[row][within[row]])[:k] for row in range(len(apart))]
        assert len(set(np.concatenate(nearest))) <= 1
        assert results[C].code == "E_CONSTANT"
    else:
        check_against_brute_force(world, results)


def test_figures(world):
    results = world.job(noise={"tau": 0.5})
    for name in (A, B):
        facts = results[name].linkage
        assert facts.tau == pytest.approx(0.5)
        assert facts.expected_disclosed == pytest.approx(0.5 * 7)
        assert (facts.without_candidate, facts.bits % 8) == ((results[B].rows < 0).all(axis=1).sum(), 0)
        assert facts.tau_min < 0.5
    assert results[A].linkage.reuse is None
    most = np.bincount(results[B].rows[results[B].rows >= 0]).max()
    assert results[B].linkage.reuse == most
    apart, within = distances(world)
    chosen = [np.sort(apart[row][within[row]])[:4] for row in range(9)]
    assert tau_of(results[A].linkage.sigma, np.concatenate(chosen).std()) == pytest.approx(0.5)


def test_everybody_says_the_same_of_everybody(world):
    results = world.job()
    of_active = {entry.what: entry for entry in results[B].peers[A].learnt}
    for entry in results[A].learnt:  # which alone does not know how often a record is used
        assert (entry == of_active[entry.what]) == (entry.what != "similarities")
        assert entry.count == of_active[entry.what].count
    assert results[B].learnt == results[A].peers[B].learnt == results[C][B]
    assert results[A].linkage.coordinator_learnt == results[B].linkage.coordinator_learnt == results[C][C]
    assert {entry.what for entry in results[C][C]} == {"encodings", "distances"}


def test_a_second_job_tells_nothing_new(world):
    first, second = pairs(world, world.job()), pairs(world, world.job())
    assert first == second
    other = pairs(world, world.job(noise={"sigma": 0.5}))
    assert all(abs(other[pair] - first[pair]) > 1e-6 for pair in first.keys() & other.keys())


def test_unchanged_pairs_keep_their_similarity_when_another_record_changes(world, monkeypatch):
    first = pairs(world, world.job())
    world.keys[B][3] = 100 - world.keys[B][3]
    changed = world.ids[B][3]
    second = pairs(world, world.job())
    kept = {pair for pair in first.keys() & second.keys() if pair[1] != changed}
    assert len(kept) > 15
    assert all(first[pair] == second[pair] for pair in kept)
    forgets = JointMemory.recall  # the control: mean and deviation are computed again
    monkeypatch.setattr(JointMemory, "recall", lambda of, name: None if name.startswith("scale") else forgets(of, name))
    monkeypatch.setattr(JointMemory, "keep", lambda of, name, data: data)
    third = pairs(world, world.job())
    assert all(first[pair] != third[pair] for pair in kept)


def test_tau_gives_the_noise_of_the_scale_that_is_kept(world, monkeypatch):
    """Not of a job's own one, which another job was faster to keep: the same noise under two σ could be subtracted."""
    tau = {"noise": {"tau": 0.1}}
    first = pairs(world, world.job(**tau))
    recall, late = JointMemory.recall, [True]
    monkeypatch.setattr(JointMemory, "recall", lambda self, name: None if late and late.pop() else recall(self, name))
    world.keys[A][0] = 100 - world.keys[A][0]
    second = pairs(world, world.job(**tau))
    assert not late
    both = [pair for pair in first.keys() & second.keys() if pair[0] != world.ids[A][0]]
    assert len(both) > 4
    assert all(first[pair] == second[pair] for pair in both)


def test_only_equal_keys(tmp_path):
    world = World(tmp_path, {A: [3, 50, 50, 80], B: [50, 3, 50]})
    results = world.job(equal_only=True, candidates=2, noise={"sigma": 0})
    found = pairs(world, results)
    a, b = world.ids[A], world.ids[B]
    assert found == dict.fromkeys([(a[0], b[1]), *((a[row], b[other]) for row in (1, 2) for other in (0, 2))], 0.0)
    assert (results[A].linkage.tau, results[A].linkage.without_candidate) == (None, 1)


def test_the_order_of_the_tables_never_shows(tmp_path):
    orders = {A: np.random.default_rng(3).permutation(9), B: np.random.default_rng(4).permutation(7)}
    own = {A: numbers(9, 1), B: numbers(7, 2)}
    first = World(tmp_path / "one", own)
    there = pairs(first, first.job())
    ids = {name: [first.ids[name][i] for i in order] for name, order in orders.items()}
    second = World(tmp_path / "two", {name: own[name][order] for name, order in orders.items()}, ids=ids)
    assert pairs(second, second.job()) == there
    for ends, sent in first.sent.items():
        assert [m.SerializeToString() for m in sent] == [m.SerializeToString() for m in second.sent[ends]]


def test_what_the_coordinator_receives(world):
    world.job()
    received = world.received(C)
    kinds = {type(message) for message in received}
    assert kinds == {
        linkage_pb2.EncodingTerms,
        linkage_pb2.LinkageAccepted,
        *(session_pb2.Rows, session_pb2.Chunk, session_pb2.RowsEnd, session_pb2.PhaseEnd),
    }
    columns = sorted(message.rows for message in received if isinstance(message, session_pb2.Chunk))
    assert sorted(map(len, columns)) == [7 * world.filters(B).shape[1], 9 * world.filters(A).shape[1]]
    seed = world.partner(A, B).recall("pivot-seed")
    assert seed == world.partner(B, A).recall("pivot-seed")
    assert all(seed not in message.SerializeToString() for message in received)


def test_the_active_party_gets_no_place_and_the_passive_one_no_similarity(world):
    results = world.job()
    to = {name: [m.rows for m in world.received(name) if isinstance(m, session_pb2.Chunk)] for name in (A, B)}
    assert to[A] == [results[A].similarities.astype("<f4").tobytes()]
    (candidates,) = to[B]
    places = np.frombuffer(candidates, dtype="<i4").reshape(9, 4)
    assert set(places.ravel()) <= set(range(-1, 7))
    for name in (A, B):
        kinds = {type(message) for message in world.received(name)}
        assert (linkage_pb2.Scale in kinds, linkage_pb2.Reuse in kinds) == (name == A, name == B)


def test_a_party_that_lost_the_seed_gets_it_from_the_other_one(world):
    first = pairs(world, world.job())
    (world.folder / A / "partners" / B / "pivot-seed.kept").unlink()
    assert pairs(world, world.job()) == first
    assert world.partner(A, B).recall("pivot-seed") == world.partner(B, A).recall("pivot-seed")
