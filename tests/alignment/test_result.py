"""The result that every trainer consumes: facts for each peer, candidates, and its stored forms."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from vfl_node.alignment import stored
from vfl_node.alignment.alignment import NOT_MINE, Alignment, PeerFacts
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.ledger import Disclosure

ROWS = np.array([2, NOT_MINE, 0, 1])
CANDIDATES = np.array([[2, 0], [NOT_MINE, NOT_MINE], [1, NOT_MINE]])
SIMILARITIES = np.array([[0.9, 0.5], [0, 0], [0.25, 0]], dtype=np.float32)


def alignment(**changes):
    facts = PeerFacts(3, intersection=2, missing=1, learnt=(Disclosure("set size", 3, "three"),))
    learnt = (Disclosure("union size", None, "hidden"),)
    fields = {"spec": ALIGNMENTS["psu"], "group": "g", "rows": ROWS, "ours": 3, "peers": {"lab": facts}, "learnt": learnt}
    return Alignment(**fields | changes)


def candidates(**changes):
    return alignment(**({"rows": CANDIDATES} | changes))


def similarities(**changes):
    return alignment(**({"rows": np.arange(3), "similarities": SIMILARITIES} | changes))


def test_one_row_for_each_position():
    assert len(alignment()) == 4
    assert alignment().owned.tolist() == [True, False, True, True]
    assert alignment().missing == 1


def test_a_position_with_any_candidate_is_owned():
    assert len(candidates()) == 3
    assert candidates().owned.tolist() == [True, False, True]
    assert candidates().missing == 1


def test_how_many_candidates_a_position_has():
    assert alignment().candidates is None
    assert candidates().candidates == similarities().candidates == 2
    assert similarities().missing == 0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"rows": ROWS.astype(np.int32)}, "int64"),
        ({"rows": np.array([0, -2])}, "at least -1"),
        ({"rows": np.zeros((2, 2, 2), dtype=np.int64)}, "int64"),
        ({"rows": CANDIDATES, "similarities": SIMILARITIES}, "must not know"),
        ({"similarities": np.ones(4, dtype=np.float32)}, "shape"),
        ({"similarities": SIMILARITIES}, "shape"),
        ({"rows": np.arange(3), "similarities": SIMILARITIES.astype(np.float64)}, "float32"),
        ({"rows": np.arange(3), "similarities": np.where(CANDIDATES < 0, np.float32("nan"), SIMILARITIES)}, "finite"),
    ],
)
def test_what_is_no_alignment_is_refused(changes, what):
    with pytest.raises(ValueError, match=what):
        alignment(**changes)


@pytest.mark.parametrize(
    ("rows", "missing", "synthetic"),
    [([0, 1], 0, False), ([0, NOT_MINE], 0, True), ([0, 1], 1, True), ([0, 1], None, True)],
)
def test_rows_that_some_party_may_lack_are_synthetic(rows, missing, synthetic):
    assert alignment(rows=np.array(rows), peers={"lab": PeerFacts(2, missing=missing)}).has_synthetic_rows == synthetic


def test_facts_are_those_of_each_peer():
    several = alignment(peers={"lab": PeerFacts(3, missing=0), "bank": PeerFacts(5, missing=2)}, rows=np.arange(3))
    assert several.has_synthetic_rows
    with pytest.raises(ValueError, match="too many values"):
        _ = several.peer
    one = alignment()
    assert one.peer is one.peers["lab"]


def test_properties_are_those_of_the_protocol():
    properties = {name: alignment(spec=ALIGNMENTS[name]) for name in ("psu", "psi", "apsi")}
    assert [name for name, of in properties.items() if of.every_row_is_shared] == ["psi"]
    assert [name for name, of in properties.items() if of.hides_intersection] == ["apsi"]


SEVERAL = {"lab": PeerFacts(3), "bank": PeerFacts(4)}


def test_what_all_have_is_with_one_peer_what_both_have():
    assert alignment().common == 2
    assert alignment(peers={"lab": PeerFacts(3)}).common is None
    assert alignment(peers=SEVERAL).common is None
    assert alignment(peers=SEVERAL, common=1).common == 1


def test_a_stored_alignment_with_one_peer_is_what_earlier_versions_read():
    assert "common" not in json.loads(stored.parts(alignment())[1])
    assert json.loads(stored.parts(alignment(peers=SEVERAL, common=1))[1])["common"] == 1


@pytest.mark.parametrize("of", [alignment(), candidates(), similarities(), alignment(union=9, peers=SEVERAL, common=1)])
def test_stored_and_read_again(of):
    arrays, head = stored.parts(of)
    again = stored.join_parts(arrays, head, ["another name"])
    assert replace(again, rows=of.rows, similarities=of.similarities) == of
    np.testing.assert_array_equal(again.rows, of.rows)
    assert (again.similarities is None) == (of.similarities is None)


def version_1(**changes):
    head = {"protocol": "psu", "group": "g", "ours": 3, "theirs": 3, "intersection": 2, "padded": False}
    head |= {"learnt": [], "peer_learnt": [{"what": "set size", "count": 3, "text": "three"}]}
    return json.dumps(head | changes)


@pytest.mark.parametrize(
    ("changes", "facts", "union"),
    [
        ({}, {"records": 3, "intersection": 2, "missing": 1, "padded": False}, 4),
        ({"intersection": None}, {"records": 3, "intersection": None, "missing": None, "padded": False}, None),
        ({"padded": True}, {"records": 3, "intersection": 2, "missing": None, "padded": True}, None),
        ({"padded": True, "protocol": "apsi"}, {"records": 3, "intersection": 2, "missing": 1, "padded": True}, None),
    ],
)
def test_an_alignment_of_version_1_is_read(changes, facts, union):
    read = stored.join_parts({"rows": ROWS}, version_1(**changes), ["lab"])
    assert read.peers == {"lab": PeerFacts(**facts, learnt=(Disclosure("set size", 3, "three"),))}
    assert read.union == union
    assert read.rows is ROWS


@pytest.mark.parametrize("head", ["{", "[]", "{}", json.dumps({"version": 3}), json.dumps({"version": stored.VERSION})])
def test_another_version_is_refused(head):
    with pytest.raises((KeyError, TypeError, ValueError)):
        stored.join_parts({"rows": ROWS}, head, ["lab"])
