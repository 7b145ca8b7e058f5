"""A linkage in shares finds what filters find, tells the coordinator nothing, and is the same in every job and attempt."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.alignment.linkage.test_restart_of_linkage import Deaths
from tests.alignment.linkage.worlds import TERMS, A, B, C, Killed, World, numbers, pairs
from tests.thorough import every, examples
from vfl_node.alignment.linkage.shares import uses_of
from vfl_node.alignment.linkage.terms import digest_of
from vfl_node.alignment.words import ReportedAlignment, words_of
from vfl_node.configuration.models import parse
from vfl_node.errors import PeerLost, StateError
from vfl_node.job import Align, Job, parse_job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.session.preflight import differing_fields
from vfl_node.transport.generated.vfl.v1 import linkage_pb2, session_pb2, shares_pb2

OWN = {A: numbers(9, 1), B: numbers(7, 2)}
SHARES = {"comparison": "shares"}
PARTIES = "parties: {active: clinic, passive: lab, coordinator: hub}"


def world(folder, *, n_a=9, n_b=7, **limits):
    return World(folder, {A: numbers(n_a, 1), B: numbers(n_b, 2)}, limits=limits)


def code(result):
    assert isinstance(result, Exception), result
    return result.code


def exact(some: World, **terms: Any) -> dict[tuple[bytes, bytes], float]:
    return pairs(some, some.job(noise={"sigma": 0}, **terms))


@pytest.mark.parametrize(("n_a", "n_b", "candidates"), [(9, 7, 4), (70, 13, 3), (5, 66, 5), (4, 4, 4)])
def test_it_finds_what_filters_find(tmp_path, n_a, n_b, candidates):
    """The same candidates, of equal distances too, and without noise the same similarities, bit by bit."""
    some = World(tmp_path, {A: numbers(n_a, 1).round(-1), B: numbers(n_b, 2).round(-1)})
    by_filters = exact(some, candidates=candidates)
    assert exact(some, candidates=candidates, **SHARES) == by_filters
    assert len(set(by_filters.values())) > 1


def test_similarities_have_the_noise_of_the_job(tmp_path):
    some = world(tmp_path, n_a=200, n_b=50)
    clean, noisy = exact(some), pairs(some, some.job(noise={"sigma": 0.5}, **SHARES))
    noise = np.array([noisy[pair] - clean[pair] for pair in clean])
    assert len(noise) == 800
    assert noise.std() == pytest.approx(0.5, rel=0.1)
    assert abs(noise.mean()) < 0.06


def test_a_second_job_tells_nothing_new(tmp_path):
    some = world(tmp_path)
    first = pairs(some, some.job(**SHARES))
    orders = [some.job(**SHARES) for _ in range(2)]
    assert pairs(some, orders[0]) == first
    assert np.array_equal(orders[0][B].rows, orders[1][B].rows)  # and in the same order


def test_masks_are_others_in_each_job(tmp_path):
    some = world(tmp_path)
    opened = []
    for _ in range(2):
        some.job(**SHARES)
        opened.append([m.values for m in some.sent[A, B] if isinstance(m, shares_pb2.MaskedShares)])
    assert len(opened[0]) == len(opened[1])
    assert opened[0][0] != opened[1][0]


OTHERS = {"a record of A": A, "a record of B": B, "sigma": {"noise": {"sigma": 0.5}}, "candidates": {"candidates": 3}}


@pytest.mark.parametrize(("other", "forgetful"), every(2, list(product(OTHERS, [None, A, B]))))
def test_there_is_one_linkage_in_shares(tmp_path, other, forgetful):
    """Sums of two that differ little would tell distances exactly; whoever remembers the first one refuses another."""
    some, change = world(tmp_path), OTHERS[other]
    first = pairs(some, some.job(**SHARES))
    if isinstance(change, str):
        some.keys[change][0] = 100 - some.keys[change][0]
    if forgetful:
        (kept,) = (some.folder / forgetful / "partners" / (B if forgetful == A else A)).glob("shared-linkage*")
        kept.unlink()
    results = some.job(**SHARES, **({} if isinstance(change, str) else change))
    refusing = [name for name in (A, B) if name != forgetful]
    assert all(code(results[name]) == "E_BUDGET" for name in refusing)
    assert not [m for m in some.sent[A, B] if isinstance(m, shares_pb2.MaskedShares)]
    if not forgetful:
        if isinstance(change, str):
            some.keys[change][0] = 100 - some.keys[change][0]
        assert pairs(some, some.job(**SHARES)) == first


def test_what_the_coordinator_gets(tmp_path):
    """Nothing but numbers of records, and the same bytes whatever the filters are."""
    received, dealt = [], []
    for keys in (OWN, {A: OWN[A][::-1].copy(), B: np.full(7, 50.0)}):
        some = World(
            tmp_path / str(len(received)), keys, ids={name: [b"%d" % i for i in range(len(keys[name]))] for name in keys}
        )
        with mock.patch("vfl_node.alignment.linkage.terms.commitment_to", return_value=bytes(32)):
            results = some.job(**SHARES)
        assert not any(isinstance(result, Exception) for result in results.values())
        received.append([m.SerializeToString(deterministic=True) for m in some.received(C)])
        dealt.append([m.values for to in (A, B) for m in some.sent[C, to] if isinstance(m, shares_pb2.Corrections)])
        kinds = {type(message) for message in some.received(C)}
        assert kinds == {
            linkage_pb2.EncodingTerms,
            linkage_pb2.LinkageAccepted,
            shares_pb2.CorrectionsUsed,
            session_pb2.PhaseEnd,
        }
    assert dealt[0] == dealt[1]
    sizes = [sorted(map(len, each)) for each in received]
    assert sizes[0] == sizes[1]
    assert {entry.what for entry in results[C][C]} == {"set sizes"}


def test_everybody_says_the_same_of_everybody(tmp_path):
    results = world(tmp_path).job(**SHARES)
    assert results[B].learnt == results[A].peers[B].learnt == results[C][B]
    assert results[A].linkage.coordinator_learnt == results[B].linkage.coordinator_learnt == results[C][C]
    assert results[A].linkage.comparison == "shares"
    figures = {"candidates": 4, **dataclasses.asdict(results[A].linkage)}
    assert "compared in shares" in words_of(ALIGNMENTS["linkage"]).figures(figures)[0]
    assert "compared" not in words_of(ALIGNMENTS["linkage"]).figures(figures | {"comparison": "filters"})[0]
    most = np.bincount(results[B].rows[results[B].rows >= 0]).max()
    assert (results[A].linkage.reuse, results[B].linkage.reuse) == (None, most)
    assert results[A].linkage.without_candidate == results[B].linkage.without_candidate


def test_equal_records_are_used_together():
    """Each has noise of its own, so their similarities add up."""
    filters = np.array([[1], [2], [1]], np.uint8)
    assert uses_of(filters, np.array([1, 1, 2])).tolist() == [3, 1, 3]


def test_blocks_of_records(tmp_path):
    """The candidates, their order and the noise do not depend on them."""
    some = World(tmp_path, {A: numbers(150, 1), B: numbers(7, 2)})
    whole = some.job(**SHARES)
    with mock.patch("vfl_node.alignment.linkage.plan.BLOCK_PAIRS", 1):
        parts = some.job(**SHARES)
    sections = {m.values for m in some.sent[A, B] if isinstance(m, shares_pb2.MaskedShares)}
    assert len(sections) > 100
    np.testing.assert_array_equal(parts[A].similarities, whole[A].similarities)
    np.testing.assert_array_equal(parts[B].rows, whole[B].rows)


def test_the_default_is_as_it_was():
    """The job, and what linkages are counted and noise is drawn by: digests of the version before this key."""
    by_default = Align(protocol="linkage", **TERMS, comparison="filters")
    written = json.dumps(by_default.model_dump(mode="json"), sort_keys=True)
    assert hashlib.sha256(written.encode()).hexdigest() == "78502dcc9e98fc158f7c5520f6f294877e1e411e5437eb56e5ebac47b2b0080c"
    assert digest_of(by_default, bytes(32)).hex() == "455fbac0082dceda9f2489b542199f5251b0aefb9d3f77138fd54a543c19e5e5"
    assert digest_of(Align(protocol="linkage", **TERMS, **SHARES), bytes(32)) != digest_of(by_default, bytes(32))


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"equal_only": True}, "take psi"),
        ({"noise": {"tau": 0.5}}, "say sigma"),
        ({"noise": {"sigma": 1001}}, "1,000 at most"),
    ],
)
def test_terms_that_are_refused(terms, text):
    with pytest.raises(ValueError, match=text):
        Align(protocol="linkage", **{**TERMS, **SHARES, **terms})


@pytest.mark.parametrize("most", [{"MOST_PAIRS": 62}, {"MOST_PASSIVE": 6}, {"MOST_CANDIDATES": 35}])
def test_too_many_pairs(tmp_path, most):
    some = world(tmp_path)
    with mock.patch.multiple("vfl_node.alignment.linkage.policy", **most):
        results = some.job(**SHARES)
    assert code(results[A]) == code(results[B]) == "E_PAIRS"
    assert "63 pairs" in results[A].message
    assert not some.received(C)


def test_a_record_that_would_be_used_too_often(tmp_path):
    """A has no similarity; the linkage counts, as B has its candidates."""
    some = world(tmp_path, **{B: {"linkage": {"max_reuse": 2}, "budgets": {"linkages": 1}}})
    results = some.job(**SHARES)
    assert code(results[B]) == "E_REUSE"
    assert isinstance(results[A], PeerLost)
    assert code(some.job(candidates=1, **SHARES)[B]) == "E_BUDGET"


@pytest.mark.parametrize("owner", [A, B, C])
def test_no_memory(tmp_path, owner):
    """It is refused before it counts."""
    with mock.patch("vfl_node.session.session.free_bytes", return_value=0):
        some = world(tmp_path)
        assert {code(of) for of in some.job(**SHARES).values()} & {"E_MEMORY"}
    some = World(tmp_path / "limited", OWN, memory_mib={owner: 64})
    with mock.patch("vfl_node.alignment.linkage.plan._PAIR_BYTES", 1 << 21):
        assert code(some.job(**SHARES)[owner]) == "E_MEMORY"
    assert not [m for name in (A, B) for m in some.sent[C, name] if isinstance(m, shares_pb2.DealerSeed)]


def test_too_little_noise(tmp_path):
    results = world(tmp_path, **{B: {"linkage": {"min_sigma": 0.5}}}).job(**SHARES)
    assert "linkage.min_sigma" in results[B].message


@pytest.mark.parametrize(("own", "what"), [([5.0, 95.0], "equally far"), ([50.0, 50.0], "no record")])
def test_distances_that_are_all_alike(tmp_path, own, what):
    theirs = own if what == "equally far" else [1.0, 99.0]
    results = World(tmp_path, {A: own, B: theirs}).job(candidates=1, **SHARES)
    assert [code(results[name]) for name in (A, B)] == ["E_CONSTANT"] * 2
    assert what in results[A].message


@pytest.mark.parametrize(("sender", "to"), [(A, B), (B, A), (C, A)])
def test_messages_of_another_size(tmp_path, sender, to):
    some = world(tmp_path)
    some.begin(**SHARES)

    def shorter(message):
        if isinstance(message, shares_pb2.MaskedShares | shares_pb2.Corrections | shares_pb2.DealerSeed):
            field = "seed" if isinstance(message, shares_pb2.DealerSeed) else "values"
            setattr(message, field, getattr(message, field)[:-1])
        return message

    assert code(some.attempt(change={(sender, to): shorter})[to]) == "E_COUNT"


def outcome(some: World, results: dict[str, Any]) -> Any:
    facts = {name: (results[name].linkage, results[name].learnt) for name in (A, B)}
    return pairs(some, results), facts, results[C], results[A].similarities.tobytes(), results[B].rows.tobytes()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Any:
    some = World(tmp_path_factory.mktemp("clean"), OWN)
    some.begin(**SHARES)
    return outcome(some, some.attempt()), _sent(some)


def _sent(some: World) -> dict[tuple[str, str], list[bytes]]:
    """All that is opened or dealt, in its order."""
    kinds = shares_pb2.MaskedShares | shares_pb2.Corrections
    return {ends: [m.values for m in sent if isinstance(m, kinds)] for ends, sent in some.sent.items()}


@pytest.mark.parametrize("victim", [A, B, C])
def test_killed_before_a_message(tmp_path, clean, victim):
    whole, sent = clean
    died = 0
    for left in every(3, list(_moments(victim))):
        some = World(tmp_path / str(left), OWN)
        some.begin(**SHARES)
        results = some.attempt(before={victim: Deaths(left)})
        if not isinstance(results[victim], Exception):
            break
        died += 1
        assert isinstance(results[victim], Killed)
        before = _sent(some)
        assert outcome(some, some.attempt()) == whole, left
        assert _sent(some) == sent
        assert all(again[: len(first)] == first for first, again in zip(before.values(), _sent(some).values(), strict=True))
    assert died > examples(5, fewer=3)


def _moments(victim: str) -> Iterator[int]:
    """Around all messages of the beginning and of the end, and some of those between."""
    yield from range(13)
    if victim != C:
        yield from range(20, 1000, 67)


def test_what_a_report_says_of_it():
    of = ReportedAlignment("clinic", "lab", "clinic", "lab", "active", 9, None, None, padded=False)
    assert "how far" in words_of(ALIGNMENTS["linkage"]).leaks(of)
    said = words_of(ALIGNMENTS["linkage"]).leaks(dataclasses.replace(of, in_shares=True))
    assert "to the coordinator how many records both have" in said


def test_another_opening_in_a_later_attempt(tmp_path):
    """Together with the first one it would tell this party's own."""
    some = world(tmp_path)
    some.begin(**SHARES)
    some.attempt(before={B: Deaths(60)})
    seen: list[int] = []

    def other(message):
        if isinstance(message, shares_pb2.MaskedShares) and not seen:
            seen.append(1)
            message.values = hashlib.sha256(message.values).digest()[:1] + message.values[1:]
        return message

    results = some.attempt(change={(B, A): other})
    assert isinstance(results[A], StateError)
    assert results[A].code == "E_REPLAY"


def test_two_jobs_that_differ_in_it():
    """A field that is not written where it is the default is named all the same."""
    jobs = [
        parse(f"name: job\n{PARTIES}\nalign: {json.dumps({'protocol': 'linkage', **TERMS, **how})}", Job, source="job")
        for how in ({}, SHARES)
    ]
    assert differing_fields(*(job.field_digests() for job in jobs)) == ["align.comparison"]
    assert [parse_job(job.canonical(), source="job") for job in jobs] == jobs
