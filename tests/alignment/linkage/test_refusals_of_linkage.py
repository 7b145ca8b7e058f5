"""What a linkage refuses, and that it does so before anything else leaves."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tests.alignment.linkage.worlds import A, B, C, World, numbers, pairs
from vfl_node.alignment.lists import promises
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import PeerLost, PolicyError
from vfl_node.job import Align
from vfl_node.transport.generated.vfl.v1 import linkage_pb2, session_pb2


def world(folder, *, n_a=9, n_b=7, **limits):
    return World(folder, {A: numbers(n_a, 1), B: numbers(n_b, 2)}, limits=limits)


def code(result):
    assert isinstance(result, Exception), result
    return result.code


def test_the_passive_party_refuses_before_the_active_one_has_a_similarity(tmp_path):
    some = world(tmp_path, **{B: {"linkage": {"max_reuse": 2}}})
    results = some.job()
    assert code(results[B]) == "E_REUSE"
    assert "linkage.max_reuse" in results[B].message
    assert isinstance(results[A], PeerLost)
    kinds = {type(message) for message in some.sent[C, A]}
    assert kinds == {linkage_pb2.EncodingTerms}
    assert not {type(message) for message in some.sent[C, B]} & {session_pb2.Rows, session_pb2.Chunk}


@pytest.mark.parametrize("owner", [A, B, C])
def test_different_linkages_over_one_set_are_limited_at_each_party(tmp_path, owner):
    some = world(tmp_path, **{owner: {"budgets": {"linkages": 2}}})
    first = pairs(some, some.job())
    some.job(noise={"sigma": 0.5})
    results = some.job(noise={"sigma": 0.6})
    assert code(results[owner]) == "E_BUDGET"
    assert "budgets.linkages" in results[owner].message
    assert not [m for name in (A, B) for m in some.sent[C, name] if isinstance(m, session_pb2.Chunk)]
    assert pairs(some, some.job()) == first  # again


def test_another_set_of_the_peer_counts_too(tmp_path):
    some = world(tmp_path, **{B: {"budgets": {"linkages": 1}}})
    some.job()
    some.keys[A][0] = 100 - some.keys[A][0]
    assert code(some.job()[B]) == "E_BUDGET"


def test_another_set_does_not_begin_a_new_count_of_terms(tmp_path):
    """Else a record that is added to B's set gives A fresh noise on all other pairs, again and again."""
    some = world(tmp_path, **{C: {"budgets": {"linkages": 2}}})
    for epsilon in (0.2, 0.21):
        assert not isinstance(some.job(encoding={"epsilon": epsilon, "delta": 0.1})[A], Exception)
        some.keys[B][0] += 1
    assert code(some.job(encoding={"epsilon": 0.22, "delta": 0.1})[C]) == "E_BUDGET"
    assert not isinstance(some.job(encoding={"epsilon": 0.2, "delta": 0.1})[A], Exception)  # no noise is drawn anew


@pytest.mark.parametrize("refusal", ["E_TAU", "E_REUSE"])
def test_a_refused_linkage_does_not_count(tmp_path, refusal):
    """Nothing of it has left: whoever follows the hint must not meet another limit."""
    some = world(tmp_path, **{name: {"budgets": {"linkages": 1}} for name in (A, B, C)})
    some.limits[B]["linkage"] = {"max_reuse": 5}
    wrong = {"noise": {"tau": 1e-6}} if refusal == "E_TAU" else {"candidates": 7}
    for _ in range(2):
        results = some.job(**wrong)
        assert refusal in {getattr(result, "code", None) for result in results.values()}
        assert not [m for name in (A, B) for m in some.sent[C, name] if isinstance(m, session_pb2.Chunk)]
    assert pairs(some, some.job(candidates=2))
    assert code(some.job(candidates=1)[A]) == "E_BUDGET"


def test_neither_list_leaves_before_both_data_parties_have_counted(tmp_path):
    """Else a passive party with its candidates could end the job before the active one has counted."""
    for name, peer in ((A, C), (B, C)):
        some = world(tmp_path / name)
        some.begin()

        def never(message):
            if isinstance(message, linkage_pb2.LinkageAccepted):
                raise PeerLost("gone")
            return message

        some.attempt(change={(name, peer): never})
        assert not [m for to in (A, B) for m in some.sent[C, to] if isinstance(m, session_pb2.Chunk)]


@pytest.mark.parametrize("wrong", [{"without_candidate": 10}, {"mean": float("inf")}])
def test_a_scale_that_is_none(tmp_path, wrong):
    some = world(tmp_path)
    some.begin()

    def change(message):
        if isinstance(message, linkage_pb2.Scale):
            for field, value in wrong.items():
                setattr(message, field, value)
        return message

    assert code(some.attempt(change={(C, A): change})[A]) == "E_ELEMENT"


@pytest.mark.parametrize("sender", [A, B])
def test_other_filters_than_those_committed_to(tmp_path, sender):
    some = world(tmp_path)
    some.job()
    (sent,) = (m.rows for m in some.sent[sender, C] if isinstance(m, session_pb2.Chunk))
    other = bytes([sent[0] ^ 1]) + sent[1:]

    def changed(message):
        if isinstance(message, session_pb2.Chunk):
            message.rows = other
        if isinstance(message, session_pb2.RowsEnd):
            message.sha256 = hashlib.sha256(other).digest()
        return message

    some.begin()
    results = some.attempt(change={(sender, C): changed})
    assert code(results[C]) == "E_COMMITMENT"
    assert all(isinstance(results[name], PeerLost) for name in (A, B))


@pytest.mark.parametrize("field", ["commitment", "count"])
def test_a_party_that_tells_the_coordinator_something_else(tmp_path, field):
    some = world(tmp_path)
    some.begin()

    def other(message):
        if isinstance(message, linkage_pb2.EncodingTerms) and message.salt:
            setattr(message, field, {"commitment": bytes(32), "count": 8}[field])
        return message

    results = some.attempt(change={(A, C): other})
    assert code(results[B]) == "E_COMMITMENT"
    assert not [m for m in some.sent[B, C] if isinstance(m, session_pb2.Chunk)]


def test_seeds_that_differ(tmp_path):
    some = world(tmp_path)
    some.begin()

    def other(message):
        if isinstance(message, linkage_pb2.EncodingTerms) and message.salt:
            message.seed_mark = bytes(32)
        return message

    assert code(some.attempt(change={(A, C): other})[C]) == "E_COMMITMENT"


def test_noise_that_is_not_the_jobs(tmp_path):
    some = world(tmp_path)

    def quieter(message):
        if isinstance(message, linkage_pb2.Reuse | linkage_pb2.Scale):
            message.sigma /= 2
        return message

    for terms in ({"sigma": 0.4}, {"tau": 0.5}):
        some.begin(noise=terms)
        assert code(some.attempt(change={(C, B): quieter})[B]) == "E_NOISE"
        some.begin(noise=terms)
        assert code(some.attempt(change={(C, A): quieter})[A]) == "E_NOISE"


@pytest.mark.parametrize(("to", "value"), [(A, np.float32("nan")), (B, np.int32(7)), (B, np.int32(-2))])
def test_values_that_are_none(tmp_path, to, value):
    some = world(tmp_path)
    some.begin()

    def wrong(message):
        if isinstance(message, session_pb2.Chunk):
            message.rows = value.tobytes() + message.rows[4:]
        return message

    assert code(some.attempt(change={(C, to): wrong})[to]) == "E_ELEMENT"


def test_tau_that_no_noise_reaches_is_refused_naming_the_minimum(tmp_path):
    some = world(tmp_path)
    least = some.job()[A].linkage.tau_min
    results = some.job(noise={"tau": 0.9 * least})
    assert code(results[C]) == "E_TAU"
    assert f"{least:.6f}" in results[C].message
    assert "how long" in results[C].message  # what tau measures
    assert results[C].for_peer == results[C].message


def test_more_candidates_than_records(tmp_path):
    some = world(tmp_path)
    results = some.job(candidates=8)
    assert [code(results[name]) for name in (A, B)] == ["E_CANDIDATES", "E_CANDIDATES"]
    assert not some.received(C)


@pytest.mark.parametrize(("own", "what"), [([5.0, 95.0], "equally far"), ([50.0, 50.0], "no record")])
def test_distances_that_are_all_alike(tmp_path, own, what):
    theirs = own if what == "equally far" else [1.0, 99.0]
    results = World(tmp_path, {A: own, B: theirs}).job(candidates=1)
    assert code(results[C]) == "E_CONSTANT"
    assert what in results[C].message


@pytest.mark.parametrize("owner", [A, B, C])
def test_sets_that_are_too_small(tmp_path, owner):
    results = world(tmp_path, **{owner: {"min_own_rows": 8, "min_peer_rows": 8}}).job()
    assert code(results[owner]) == "E_TOO_FEW"


def test_a_key_that_cannot_be_encoded(tmp_path):
    some = world(tmp_path)
    some.keys[B][2] = 101
    results = some.job()
    assert code(results[B]) == "E_KEY_BOUNDS"
    assert "101" not in results[B].message


def test_an_earlier_promise_holds(tmp_path):
    some = world(tmp_path)
    identity = Identifiers.from_items(some.ids[B]).digest()
    promises.hold(some.partner(B, A), identity, Align(protocol="psu", padding=4), "passive", binding=True)
    results = some.job()
    assert isinstance(results[B], PolicyError)
    assert results[B].code == "E_PROMISE"
