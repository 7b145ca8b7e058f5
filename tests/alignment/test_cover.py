"""What padding and dummies hide, and what they do not."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.alignment.lists.cover import add_cover, shared_dummies
from vfl_node.alignment.sizes import pads, public_bucket
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.identifiers import Identifiers, canonical, composite
from vfl_node.errors import PolicyError
from vfl_node.job import Align
from vfl_node.ledger import Disclosure
from vfl_node.session.memory import MemoryOfOneRun

SETS = bytes(32)
ROLES = ("active", "passive")
COUNTS = st.integers(0, 10**8)
LADDERS = st.integers(1, 16)
IDS = st.lists(st.binary(min_size=1, max_size=1), unique=True, max_size=12)


def overlapping(n_a, n_p, shared):
    ids = [b"id%d" % i for i in range(n_a + n_p - shared)]
    return ids[:n_a], ids[n_a - shared :]


def announced(run):
    return [next(message.count for message in spy.messages if hasattr(message, "held")) for spy in run.spies]


def some_memories(seed):
    return [MemoryOfOneRun(Randomness(hashlib.sha256(b"%d %d" % (seed, i)).digest())) for i in range(2)]


def secret_numbers(ids, memories, dummies):
    """Each party's k: it depends on its own ids, and on the mark that the other one's memory gives."""
    ours = [Identifiers.from_items(items).digest() + len(items).to_bytes(8, "big") for items in ids]
    marks = [m.secret.derive(f"input {own.hex()}").bytes(32) for m, own in zip(memories, ours, strict=True)]
    sets = [hashlib.sha256(ours[i] + marks[1 - i]).digest() for i in range(2)]
    return tuple(shared_dummies(sets[i], Align(dummies=dummies), memories[i]) for i in range(2))


def memories_with(ids, k, dummies):
    """Memories under which parties with these ids take ``k`` of their own pools."""
    return next(m for m in map(some_memories, itertools.count()) if secret_numbers(ids, m, dummies) == k)


def observed(run):
    """What both parties count as the intersection of the sets announced."""
    return sum(announced(run)) - len(run.active)


# ---- the public ladder


@pytest.mark.parametrize(
    ("per_doubling", "ladder"),
    [
        (1, [1, 2, 4, 8, 16, 32, 64, 128]),
        (2, [1, 2, 3, 4, 6, 8, 12, 16, 23, 32, 46, 64, 91, 128]),
        (4, [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 23, 27, 32]),
    ],
)
def test_the_ladder(per_doubling, ladder):
    assert sorted({public_bucket(count, per_doubling) for count in range(1, ladder[-1] + 1)}) == ladder


@given(COUNTS, LADDERS)
@settings(derandomize=True)
def test_a_bucket_is_public_and_the_next_one(count, per_doubling):
    bucket = public_bucket(count, per_doubling)
    assert bucket >= count
    assert public_bucket(bucket, per_doubling) == bucket
    assert bucket <= np.ceil(count * 2 ** (1 / per_doubling))
    assert public_bucket(count + 1, per_doubling) >= bucket
    if count > 1:  # ⌈2^(j/k)⌉ for some j, and the one before it is too small
        j = next(j for j in itertools.count() if 2**j >= (bucket - 1) ** per_doubling + 1)
        assert (bucket - 1) ** per_doubling < 2**j <= bucket**per_doubling
        assert bucket == public_bucket(count, 1) or bucket < public_bucket(count, 1)


def test_nothing_is_announced_as_nothing():
    assert [public_bucket(0, k) for k in (1, 4, 16)] == [0, 0, 0]


# ---- padding hides n, and nothing else


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
@given(ids_a=IDS, ids_p=IDS, padding=st.integers(1, 4))
@settings(max_examples=examples(20, fewer=10), deadline=None, derandomize=True)
def test_padded_sets_give_the_right_rows(run_alignment, protocol, ids_a, ids_p, padding):
    run = run_alignment(protocol, ids_a, ids_p, padding=padding)
    a, p = run.active, run.passive
    assert isinstance(a, Alignment), a
    assert isinstance(p, Alignment), p
    assert announced(run) == [
        public_bucket(len(ids_a), padding),
        len(ids_p) if protocol == "apsi" else public_bucket(len(ids_p), padding),
    ]
    assert (a.ours, p.ours) == (len(ids_a), len(ids_p))
    assert [a.peer.records, p.peer.records] == announced(run)[::-1]
    assert p.peer.padded
    assert a.peer.padded == (protocol != "apsi")  # the strong party's size is exact
    of_a = [ids_a[i] if i != NOT_MINE else None for i in a.rows]
    of_p = [ids_p[i] if i != NOT_MINE else None for i in p.rows]
    pairs = list(zip(of_a, of_p, strict=True))
    shared = set(ids_a) & set(ids_p)
    assert {x for x, y in pairs if x and x == y} == shared
    assert all(x == y for x, y in pairs if x and y)
    if protocol == "psu":
        assert sorted(x for x in of_a if x) == sorted(ids_a)
        assert sorted(y for y in of_p if y) == sorted(ids_p)
        assert len(pairs) == sum(announced(run)) - len(shared)
        assert pairs.count((None, None)) == sum(announced(run)) - len(ids_a) - len(ids_p)
        assert (a.peer.intersection, a.union, a.peer.missing) == (len(shared), None, None)
    elif protocol == "psi":
        assert len(pairs) == len(shared) == a.peer.intersection == p.peer.intersection
    else:
        assert None not in of_p
        assert (a.peer.intersection, p.peer.intersection) == (len(shared), None)


def lengths(run):
    return {step: len(rows) for step, rows in run.lists.items()}, announced(run)


@pytest.mark.parametrize("protocol", ["psu", "psi", "apsi"])
def test_padding_hides_how_many_a_party_has(run_alignment, protocol):
    """Sets of 9 to 16 records, 5 of them shared, look the same; without padding they do not."""
    sizes = [(9, 9), (12, 9), (16, 9)] if protocol == "apsi" else [(9, 9), (12, 15), (16, 10)]
    padded = [lengths(run_alignment(protocol, *overlapping(n_a, n_p, 5), padding=1)) for n_a, n_p in sizes]
    assert all(seen == padded[0] for seen in padded)
    plain = [lengths(run_alignment(protocol, *overlapping(n_a, n_p, 5))) for n_a, n_p in sizes]
    assert plain[0] != plain[1] != plain[2]


@pytest.mark.parametrize("shared", [0, 3, 8])
def test_random_ids_of_one_party_alone_do_not_hide_the_intersections_size(run_alignment, shared):
    """They have no partner: m' = n'_a + n'_p − |I|, whatever they are. So padding does not hide |I|."""
    ids_a, ids_p = overlapping(10, 8, shared)
    drawn = [Randomness(bytes(32)).derive(f"{i}").bytes(16) for i in range(7)]
    with_drawn = run_alignment("psu", ids_a + drawn, ids_p)
    assert len(with_drawn.active) == 17 + 8 - shared
    padded = run_alignment("psu", ids_a, ids_p, padding=1)
    assert announced(padded) == [16, 8]
    for role in ("active", "passive"):
        assert sum(announced(padded)) - len(getattr(padded, role)) == shared
        assert getattr(padded, role).peer.intersection == shared


def test_a_padded_party_knows_its_own_size(run_alignment):
    """Its ledger names it, and says so where all of its records are shared; what the peer knows of its own is left open."""
    run = run_alignment("psu", *overlapping(5, 11, 5), padding=1)
    assert run.active.learnt == (
        Disclosure("set size", 16, "the number of lab's records: at most 16"),
        Disclosure("union size", 19, "the size of the union: at most 19"),
        Disclosure("intersection size", 5, "lab holds every one of its own 5 records"),
    )
    assert run.active.peer.learnt[0] == Disclosure("set size", 8, "the number of clinic's records: at most 8")
    none = run_alignment("psu", *overlapping(5, 11, 0), padding=1)
    assert none.active.learnt[2].text == "no record is shared: lab holds none of its own 5"
    assert none.active.peer.learnt[2].text == "no record is shared: clinic holds none of its own"


# ---- dummies hide |I|


@pytest.mark.parametrize("padding", [0, 2])
@given(ids_a=IDS, ids_p=IDS, dummies=st.integers(1, 5), seed=st.integers(0, 50))
@settings(max_examples=examples(20, fewer=10), deadline=None, derandomize=True)
def test_dummies_give_the_right_rows_and_rows_that_nobody_owns(run_alignment, padding, ids_a, ids_p, dummies, seed):
    memories = some_memories(seed)
    run = run_alignment("psu", ids_a, ids_p, dummies=dummies, padding=padding, memories=memories)
    a, p = run.active, run.passive
    assert isinstance(a, Alignment), a
    of_a = [ids_a[i] if i != NOT_MINE else None for i in a.rows]
    of_p = [ids_p[i] if i != NOT_MINE else None for i in p.rows]
    pairs = list(zip(of_a, of_p, strict=True))
    assert {x for x, y in pairs if x and x == y} == set(ids_a) & set(ids_p)
    assert sorted(x for x in of_a if x) == sorted(ids_a)
    assert sorted(y for y in of_p if y) == sorted(ids_p)
    k = secret_numbers((ids_a, ids_p), memories, dummies)
    unowned = sum(announced(run)) - len(ids_a) - len(ids_p) - sum(k)
    assert pairs.count((None, None)) == unowned > 0
    for view in (a, p):
        assert (view.peer.intersection, view.union, view.peer.missing) == (None, None, None)
        assert view.peer.padded == bool(padding)
    assert [a.peer.records, p.peer.records] == [count - 2 * dummies for count in announced(run)[::-1]]
    if not padding:
        assert announced(run) == [len(ids_a) + 2 * dummies, len(ids_p) + 2 * dummies]
        assert (a.peer.records, p.peer.records) == (len(ids_p), len(ids_a))
        assert observed(run) == len(set(ids_a) & set(ids_p)) + sum(k)


def views(run):
    """Per party: lengths of all lists, and how many elements each pair of them shares."""
    s1, t1, t3 = run.scalar("active", "scalar 1"), run.scalar("passive", "scalar 1"), run.scalar("passive", "scalar 3")
    s1s3, t1t3 = run.group.product(s1, run.scalar("active", "scalar 3")), run.group.product(t1, t3)
    computed = {
        "active": {
            "step 5 ^ s1": run.power(run.lists["step 5"], s1),
            "own": run.power(run.lists["step 11 reply"], s1s3),
        },
        "passive": {
            "step 3 ^ t1": run.power(run.lists["step 3"], t1),
            "own": run.power(run.lists["step 12 reply"], t1t3),
        },
    }
    seen = {}
    for role, more in computed.items():
        distinct = {name: {bytes(row) for row in rows} for name, rows in (run.lists | more).items()}
        seen[role] = {
            pair: len(distinct[pair[0]] & distinct[pair[1]])
            for pair in itertools.combinations_with_replacement(sorted(distinct), 2)
        }
    return seen


@pytest.mark.parametrize("seer", ["active", "passive"])
def test_the_pools_leave_each_party_with_a_window_of_d_plus_one_sizes(run_alignment, seer):
    """For fixed sets of its own, its own k and the sizes announced, one view fits D + 1 intersections, all equally likely.

    The other party's k is uniform in 0 … D, so each of |I| = observed − k_own − k_other has the same probability.
    """
    dummies, seen, own_k = 4, 12, 2
    fits = {}
    for shared in range(10):
        for other_k in range(dummies + 1):
            ids = overlapping(10, 9, shared)
            k = (own_k, other_k) if seer == "active" else (other_k, own_k)
            if shared + sum(k) != seen:
                continue
            memories = memories_with(ids, k, dummies)
            run = run_alignment("psu", *ids, dummies=dummies, memories=memories)
            fits[shared] = (views(run)[seer], getattr(run, seer).learnt)
    assert sorted(fits) == list(range(seen - own_k - dummies, 10))  # 6 … 10, and 10 is more than the smaller set has
    assert all(fit == fits[6] for fit in fits.values())
    assert fits[6][1][-1] == Disclosure(
        "intersection size",
        None,
        "roughly how many records are shared, by draw 1 of dummies: not fewer than 6 and not more than 9",
    )


@pytest.mark.parametrize("dummies", [1, 3, 10])
def test_what_is_seen_is_the_intersection_and_both_secret_numbers(run_alignment, dummies):
    """Over many memories the sum ranges over |I| … |I| + 2D, and each party, knowing its own k, is left with D + 1 sizes."""
    ids_a, ids_p = overlapping(9, 8, 4)
    left = {"active": set(), "passive": set()}
    for k_a, k_p in [(0, 0), (dummies, dummies), (0, dummies), (dummies, 0), (1, 0)]:
        memories = memories_with((ids_a, ids_p), (k_a, k_p), dummies)
        run = run_alignment("psu", ids_a, ids_p, dummies=dummies, memories=memories)
        assert observed(run) == 4 + k_a + k_p
        left["active"].add(observed(run) - k_a)
        left["passive"].add(observed(run) - k_p)
        assert "union size" not in {entry.what for entry in run.active.learnt}
        for view in (run.active, run.passive):
            assert view.learnt[-1].count is None
    assert {min(left["active"]), max(left["active"])} == {4, 4 + dummies}
    assert {min(left["passive"]), max(left["passive"])} == {4, 4 + dummies}


def test_k_is_uniform():
    """Chi-squared over 0 … 4 in 2000 memories; 4 degrees of freedom, p = 0.001 at 18.5."""
    drawn = [shared_dummies(SETS, Align(dummies=4), MemoryOfOneRun(Randomness(i.to_bytes(32, "big")))) for i in range(2000)]
    counts = np.bincount(drawn)
    assert len(counts) == 5
    assert 0.1 < ((counts - 400) ** 2 / 400).sum() < 18.5


def test_k_is_the_same_in_every_job_with_this_peer(run_alignment):
    """The mean of many draws would tell it: so no seed, job, order of rows or role changes it, but the ids and the peer do."""
    ids_a, ids_p = overlapping(9, 8, 4)
    memories = some_memories(1)

    def seen(ids_a, ids_p, memories, **job):
        return observed(run_alignment("psu", ids_a, ids_p, dummies=20, memories=memories, **job))

    first = seen(ids_a, ids_p, memories)
    assert seen(ids_a[::-1], ids_p, memories, seed=2, job_id="later") == first
    assert seen(ids_p, ids_a, memories[::-1], seed=3) == first  # with the roles exchanged
    assert len({seen(ids_a, ids_p, some_memories(seed)) for seed in range(2, 6)}) > 1
    assert len({seen([*ids_a, b"%d" % i], ids_p, memories) for i in range(4)}) > 1


@pytest.mark.parametrize("changing", [0, 1], ids=["active", "passive"])
def test_a_set_that_differs_in_one_id_draws_the_other_partys_number_anew(run_alignment, changing):
    """Else a party that adds one id after another would see by what is observed, less its own k, which ones are shared."""
    ids, memories, dummies = overlapping(9, 8, 4), some_memories(1), 20
    others, seen, shared = set(ids[1 - changing]), [], []
    for more in (*sorted(others), b"stranger"):
        changed = list(ids)
        changed[changing] = [*dict.fromkeys([*ids[changing], more])]
        run = run_alignment("psu", *changed, dummies=dummies, memories=memories)
        shared.append(len(others & set(changed[changing])))
        seen.append(observed(run) - secret_numbers(changed, memories, dummies)[changing])
    assert set(shared) == {4, 5}
    hidden = np.subtract(seen, shared)  # the other party's k
    sets_aligned = len({s for s, n in zip(seen, shared, strict=True) if n == 5}) + 1
    assert len(set(hidden)) > sets_aligned // 2 > 1
    assert any(abs(a - b) > 1 for a, b in itertools.pairwise(seen))


@pytest.mark.parametrize("more", [{}, {"padding": 2}])
def test_another_number_of_dummies_over_the_same_set_is_refused(run_alignment, more):
    """Two windows have fewer sizes in common than each, and 0 tells the size; whatever the other party's set is by then."""
    ids, memories = overlapping(9, 8, 4), some_memories(1)

    def job(ids, memories, dummies):
        return run_alignment("psu", *ids, dummies=dummies, memories=memories, **more)

    first = job(ids, memories, 3)
    for dummies in (0, 2, 4):
        for run in (
            job(ids, memories, dummies),
            job(ids[::-1], memories[::-1], dummies),
            job((ids[0], ids[1][1:]), memories, dummies),
        ):
            assert (type(run.active), run.active.code) == (PolicyError, "E_PROMISE")
            assert "align.dummies: 3" in run.active.hint
            assert "3" not in run.active.for_peer
            assert not run.lists
            assert not run.spies[0].messages  # no size, no mark
    assert observed(job(ids, memories, 3)) == observed(first)
    assert isinstance(job((ids[0][1:], ids[1][1:]), memories, 4).active, Alignment)
    assert isinstance(job(ids, some_memories(2), 4).active, Alignment)


def test_zero_dummies_are_a_promise_too(run_alignment):
    """What is told cannot be hidden later: who sets dummies then would be told less than is true."""
    ids, memories = overlapping(9, 8, 4), some_memories(1)
    assert run_alignment("psu", *ids, memories=memories).active.peer.intersection == 4
    assert run_alignment("psu", *ids, dummies=3, memories=memories).active.code == "E_PROMISE"


@pytest.mark.parametrize(
    ("first", "then", "refusing"),
    [
        (("psu", {"dummies": 3}), ("psi", {}), {"active", "passive"}),  # tells which are shared
        (("psu", {"dummies": 3}), ("apsi", {}), {"passive"}),  # tells the active party
        (("apsi", {}), ("psi", {}), {"active"}),
        (("apsi", {}), ("psu", {}), {"active"}),
        (("psu", {"dummies": 3}), ("upsi", {}), {"active", "passive"}),
        (("apsi", {}), ("upsi", {}), {"active"}),
        (("apsi", {}), ("upsi", {"server": "active"}), {"active"}),
        (("psi", {}), ("apsi", {}), set()),
        (("psu", {}), ("psi", {}), set()),  # a policy's protocols are for who minds
        (("psu", {"padding": 1}), ("apsi", {"padding": 1}), {"passive"}),  # whose size apsi tells exactly
        (("apsi", {"padding": 1}), ("psi", {"padding": 1}), {"active"}),  # as without padding
        (("psi", {"padding": 1}), ("psi", {}), {"active", "passive"}),
        (("psi", {"padding": 1}), ("psu", {"padding": 2}), {"active", "passive"}),
        (("psi", {}), ("psi", {"padding": 1}), {"active", "passive"}),
        (("psi", {"padding": 1}), ("psu", {"padding": 1}), set()),
        (("psu", {"dummies": 3}), ("psu", {"dummies": 3, "id_form": "nocase"}), {"active", "passive"}),
        (("apsi", {}), ("apsi", {"id_form": "integer"}), {"active"}),
        (("psi", {}), ("psi", {"id_form": "integer"}), set()),  # which counts as a change
    ],
)
def test_no_later_job_tells_what_an_earlier_one_hid(run_alignment, first, then, refusing):
    ids, memories = overlapping(9, 8, 4), some_memories(1)
    (protocol, terms), (later, others) = first, then
    assert isinstance(run_alignment(protocol, *ids, memories=memories, **terms).active, Alignment)
    for role in ("active", "passive"):
        alone = [memory if name == role else some_memories(2)[0] for name, memory in zip(ROLES, memories, strict=True)]
        run = run_alignment(later, *ids, memories=alone, job_id="later", **others)
        assert (getattr(getattr(run, role), "code", "") == "E_PROMISE") == (role in refusing), getattr(run, role)
        if role in refusing:
            assert not run.spies[ROLES.index(role)].messages


def test_the_mean_of_fresh_draws_would_tell_the_intersections_size(run_alignment):
    """The negative control of the memory."""
    runs = [run_alignment("psu", *overlapping(9, 8, 4), dummies=3, memories=some_memories(seed)) for seed in range(40)]
    assert round(np.mean([observed(run) for run in runs]) - 3) == 4  # each k is 1.5 on average; the mean is off by 0.25


# ---- the identifiers themselves


@given(IDS, st.integers(0, 6), st.integers(0, 3), st.sampled_from(["active", "passive"]))
@settings(derandomize=True, deadline=None)
def test_made_up_identifiers_stand_behind_the_real_ones_and_are_distinct(items, dummies, padding, role):
    ids, terms = Identifiers.from_items(items), Align(dummies=dummies, padding=padding)
    memory = MemoryOfOneRun(Randomness(bytes(32)))
    own = add_cover(ids, SETS, terms, role, Randomness(b"s" * 32), memory)
    assert own[: len(ids)] == items
    assert len(own.repeats()) == 0
    more = own[len(ids) :]
    assert all(item.startswith(b"\0") for item in more)
    other = "passive" if role == "active" else "active"
    assert sum(item.startswith(f"\0{other}:".encode()) for item in more) == dummies
    assert sum(item.startswith(f"\0{role}:".encode()) for item in more) == (shared_dummies(SETS, terms, memory))
    count = len(ids) + 2 * dummies
    assert len(own) == (public_bucket(count, padding) if padding else count)


def test_random_identifiers_are_new_for_each_two_sets_and_of_one_party_alone():
    terms, memory = Align(padding=1), MemoryOfOneRun(Randomness(bytes(32)))
    ids = Identifiers.from_items([b"%d" % i for i in range(5)])
    first, second = (add_cover(ids, SETS, terms, "active", Randomness(bytes([seed]) * 32), memory)[5:] for seed in (1, 2))
    assert len(set(first) | set(second)) == 6


@pytest.mark.parametrize("value", ["7", "\0active:0", " \0drawn:x"])
def test_no_record_begins_as_they_do(value):
    real = [canonical(value, "text"), canonical(value, "nocase"), canonical("7", "integer"), composite([value.encode(), b""])]
    assert not any(item.startswith(b"\0") for item in real)


def test_who_pads():
    assert [pads(Align(padding=1), role) for role in ("active", "passive")] == [True, True]
    weak_only = Align(protocol="apsi", obfuscation={"size": 1}, padding=1)
    assert [pads(weak_only, role) for role in ("active", "passive")] == [True, False]
    assert not pads(Align(), "active")
