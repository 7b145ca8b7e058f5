"""F-PSU: the vectors, Python's set as oracle, visible relations, and each shuffle with its negative control."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.alignment.alignment import Alignment
from vfl_node.ledger import Disclosure

IDS = st.lists(st.binary(min_size=1, max_size=3), unique=True, max_size=12)


def overlapping(n_a, n_p, shared, prefix=b"id"):
    """Two lists of ids that share the given number, in no telling order."""
    ids = [prefix + b"%d" % i for i in range(n_a + n_p - shared)]
    return ids[:n_a][::-1], sorted(ids[n_a - shared :])


def as_set(rows):
    return {bytes(row) for row in rows}


def numbers(rows):
    return {int.from_bytes(row, "big") for row in rows.tolist()}


# ---- what comes out


def test_vectors(run_alignment, vector_group):
    ids = [bytes([x]) for x in range(8)]
    run = run_alignment("psu", ids[2:5], ids[3:7], groups=[vector_group(17, 23, 31), vector_group(101, 203, 311)])
    assert numbers(run.lists["step 3"]) == {97, 428, 1031}
    assert numbers(run.lists["step 5"]) == {40, 345, 471, 965}
    assert numbers(run.lists["step 4"]) == {215, 818, 1088}
    i_p_s1t1 = {pow(y, 17, 1283) for y in numbers(run.lists["step 5"])}
    assert i_p_s1t1 == {215, 290, 414, 818}
    assert numbers(run.lists["step 8"]) == {pow(y, 23 * 31, 1283) for y in {215, 818, 1088} | i_p_s1t1}
    assert [int.from_bytes(row, "big") for row in run.lists["step 9"].tolist()] == [33, 90, 236, 1089, 1095]
    # UIDs of 2, 3, 4, 5, 6 are 33, 236, 1089, 1095, 90
    assert run.active.rows.tolist() == [0, -1, 1, 2, -1]
    assert run.passive.rows.tolist() == [-1, 3, 0, 1, 2]


def assert_is_union(run, ids_a, ids_p):
    a, p = run.active, run.passive
    assert isinstance(a, Alignment), a
    assert isinstance(p, Alignment), p
    union, shared = set(ids_a) | set(ids_p), set(ids_a) & set(ids_p)
    of_a = [ids_a[i] if i >= 0 else None for i in a.rows]
    of_p = [ids_p[i] if i >= 0 else None for i in p.rows]
    seen = [x or y for x, y in zip(of_a, of_p, strict=True)]
    assert sorted(seen) == sorted(union)
    assert {x for x, y in zip(of_a, of_p, strict=True) if x and y} == shared
    assert all(x == y for x, y in zip(of_a, of_p, strict=True) if x and y)
    assert {x for x in of_a if x} == set(ids_a)
    assert {y for y in of_p if y} == set(ids_p)
    assert (a.ours, a.peer.records, p.ours, p.peer.records) == (len(ids_a), len(ids_p), len(ids_p), len(ids_a))
    assert a.peer.intersection == p.peer.intersection == len(shared)
    assert a.union == p.union == len(union)


@pytest.mark.parametrize("name", ["toy", "curve25519"])
@given(ids_a=IDS, ids_p=IDS)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_equals_pythons_set(run_alignment, groups, name, ids_a, ids_p):
    assert_is_union(run_alignment("psu", ids_a, ids_p, group=groups[name]), ids_a, ids_p)


@pytest.mark.parametrize("name", ["toy", "curve25519"])
@pytest.mark.parametrize(
    ("n_a", "n_p", "shared"), [(0, 0, 0), (0, 3, 0), (3, 0, 0), (4, 4, 4), (4, 5, 0), (5, 2, 2), (1, 1, 1), (40, 30, 11)]
)
def test_edge_cases(run_alignment, groups, name, n_a, n_p, shared):
    ids_a, ids_p = overlapping(n_a, n_p, shared)
    run = run_alignment("psu", ids_a, ids_p, group=groups[name])
    assert_is_union(run, ids_a, ids_p)
    for progress, ours, theirs in zip(run.progress, (n_a, n_p), (n_p, n_a), strict=True):
        assert progress.done == progress.total == 4 * ours + 3 * theirs


def test_says_what_it_learnt(run_alignment):
    run = run_alignment("psu", *overlapping(7, 5, 2))
    assert run.active.learnt == (
        Disclosure("set size", 5, "the number of lab's records: 5"),
        Disclosure("union size", 10, "the size of the union: 10"),
        Disclosure("intersection size", 2, "2 records are shared, not which"),
    )
    assert run.passive.learnt[0] == Disclosure("set size", 7, "the number of clinic's records: 7")
    assert run.passive.learnt[1:] == run.active.learnt[1:]
    assert (run.active.peer.learnt, run.passive.peer.learnt) == (run.passive.learnt, run.active.learnt)


@pytest.mark.parametrize(
    ("n_a", "n_p", "shared", "active", "passive"),
    [
        (4, 3, 0, "no record is shared: lab holds none of its own 4", "no record is shared: clinic holds none of its own 3"),
        (5, 3, 3, "all of lab's 3 records are among its own 5, not which", "clinic holds every one of its own 3 records"),
        (3, 5, 3, "lab holds every one of its own 3 records", "all of clinic's 3 records are among its own 5, not which"),
        (3, 3, 3, "lab holds every one of its own 3 records, and no others",
         "clinic holds every one of its own 3 records, and no others"),
    ],
)  # fmt: skip
def test_says_so_where_the_sizes_tell_which_records_are_shared(run_alignment, n_a, n_p, shared, active, passive):
    run = run_alignment("psu", *overlapping(n_a, n_p, shared))
    assert run.active.learnt[2] == Disclosure("intersection size", shared, active)
    assert run.passive.learnt[2] == Disclosure("intersection size", shared, passive)


# ---- what each party sees


def views(run):
    """Per party: all lists it received or sent, and what it computes from them, by name."""
    sent, product = run.lists, run.group.product
    s1, s3, t1, t3 = (run.scalar(role, f"scalar {i}") for role in ("active", "passive") for i in (1, 3))
    return {
        "active": sent
        | {
            "step 5 ^ s1": run.power(sent["step 5"], s1),
            "own UIDs": run.power(sent["step 11 reply"], product(s1, s3)),
        },
        "passive": sent
        | {
            "step 3 ^ t1": run.power(sent["step 3"], t1),
            "own UIDs": run.power(sent["step 12 reply"], product(t1, t3)),
        },
    }


def relations(view):
    """How many elements any two lists of a view have in common, and whether each is distinct."""
    sets = {name: as_set(rows) for name, rows in view.items()}
    common = {pair: len(sets[pair[0]] & sets[pair[1]]) for pair in itertools.combinations(sorted(sets), 2)}
    return common, {name: (len(rows), len(sets[name])) for name, rows in view.items()}


def test_lists_are_as_long_as_the_sizes_say(run_alignment):
    run = run_alignment("psu", *overlapping(12, 9, 4))
    assert {step: len(rows) for step, rows in run.lists.items()} == {
        "step 3": 12, "step 4": 12, "step 5": 9, "step 8": 17, "step 9": 17,
        "step 11 request": 12, "step 11 reply": 12, "step 12 request": 9, "step 12 reply": 9,
    }  # fmt: skip


def test_other_identifiers_of_the_same_sizes_look_the_same(run_alignment):
    one = views(run_alignment("psu", *overlapping(12, 9, 4)))
    other = views(run_alignment("psu", *overlapping(12, 9, 4, prefix=b"quite another "), seed=2))
    less = views(run_alignment("psu", *overlapping(12, 9, 3)))
    for role in one:
        assert relations(one[role]) == relations(other[role])
        assert relations(one[role]) != relations(less[role])


def test_only_the_intersections_size_shows_between_lists(run_alignment):
    run = run_alignment("psu", *overlapping(12, 9, 4))
    lists = run.lists | {"step 6": views(run)["active"]["step 5 ^ s1"]}
    common, _ = relations(lists)
    assert common.pop(("step 4", "step 6")) == 4
    assert set(common.values()) == {0}


@pytest.mark.parametrize("role", ["active", "passive"])
def test_own_uids_are_in_the_union_and_foreign_ones_out_of_reach(run_alignment, role):
    """Every list a party received, under every product of its scalars and their inverses, hits own UIDs only."""
    run = run_alignment("psu", *overlapping(6, 5, 2))
    scalars = [run.scalar(role, f"scalar {i}") for i in (1, 2, 3)]
    own, union = as_set(views(run)[role]["own UIDs"]), as_set(run.lists["step 9"])
    assert own < union
    received = {
        "active": ["step 5", "step 4", "step 12 request", "step 11 reply"],
        "passive": ["step 3", "step 11 request", "step 12 reply"],
    }[role]
    hits = set()
    for signs in itertools.product((-1, 0, 1), repeat=3):
        chosen = [s if sign > 0 else run.group.inverse(s) for s, sign in zip(scalars, signs, strict=True) if sign]
        for step in received:
            hits |= as_set(run.power(run.lists[step], run.group.product(*chosen))) & union
    assert hits == own


# ---- each shuffle, with and without: the known attack finds everything, or nothing


def advantage(guessed, shared, own):
    """Hit rate among the shared minus that among the others: 1 is a full break, 0 is guessing."""
    others = set(own) - set(shared)
    return len(guessed & set(shared)) / len(shared) - len(guessed & others) / len(others)


def attack_step_4(run, ids_a, _):
    """The active party reads its step 4 by the positions of its step 3."""
    shared = as_set(views(run)["active"]["step 5 ^ s1"])
    return {ids_a[i] for i, row in zip(run.order("active", "step 3"), run.lists["step 4"], strict=True) if bytes(row) in shared}


def attack_step_8(run, ids_a, ids_p):
    """The passive party finds its own records in step 8, whose first n_a would be the active party's."""
    t1, t2 = (run.scalar("passive", f"scalar {i}") for i in (1, 2))
    own_in_l = run.power(run.lists["step 12 reply"], run.group.product(t1, run.group.inverse(t2)))
    place = {bytes(row): i for i, row in enumerate(run.lists["step 8"])}
    order = run.order("passive", "step 12 request")
    return {ids_p[i] for i, row in zip(order, own_in_l, strict=True) if place[bytes(row)] < len(ids_a)}


ATTACKS = {"step 4": (attack_step_4, "active"), "step 8": (attack_step_8, "passive")}


@pytest.mark.parametrize("step", ATTACKS)
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_shuffle_hides_the_intersection(run_alignment, step, seed):
    ids_a, ids_p = overlapping(200, 200, 100)
    shared = set(ids_a) & set(ids_p)
    attack, whose = ATTACKS[step]
    own = {"active": ids_a, "passive": ids_p}[whose]
    without = run_alignment("psu", ids_a, ids_p, seed=seed, unshuffled={step})
    assert attack(without, ids_a, ids_p) == shared
    with_it = run_alignment("psu", ids_a, ids_p, seed=seed)
    assert abs(advantage(attack(with_it, ids_a, ids_p), shared, own)) < 0.28  # four standard deviations


def in_blocks():
    """Two sets, each dense everywhere in the canonical order; what they share lies in two of its four quarters."""
    ids = sorted((b"%d" % i for i in range(800)), key=lambda item: hashlib.sha256(item).digest())
    quarters = [ids[i : i + 200] for i in range(0, 800, 200)]
    ids_a = [item for i, quarter in enumerate(quarters) for item in quarter[i % 2 :: 2]]
    return ids_a, [item for quarter in quarters for item in quarter[::2]]


# Step 3's order tells the passive party something only together with the paper's step 6, which is not sent here.
# Those of the requests of 11 and 12 tell nothing: nobody can link an element of a request to any other list.
@pytest.mark.parametrize("step", ["step 3", "step 5"])
def test_an_own_list_in_canonical_order_would_hint_at_the_intersection(run_alignment, step):
    """Anybody can compute about where an id would stand in the peer's list, and see whether the element there is shared."""
    ids_a, ids_p = in_blocks()
    shared, own = set(ids_a) & set(ids_p), ids_p if step == "step 3" else ids_a

    def attack(run):
        s1, t1 = run.scalar("active", "scalar 1"), run.scalar("passive", "scalar 1")
        twice = {"step 3": run.power(run.lists["step 3"], t1), "step 5": run.power(run.lists["step 5"], s1)}
        in_both = as_set(twice["step 3"]) & as_set(twice["step 5"])
        is_shared = [bytes(row) in in_both for row in twice[step]]
        return {item for item in own if is_shared[hashlib.sha256(item).digest()[0] * len(is_shared) // 256]}

    assert advantage(attack(run_alignment("psu", ids_a, ids_p, unshuffled={step})), shared, own) > 0.7
    assert abs(advantage(attack(run_alignment("psu", ids_a, ids_p)), shared, own)) < 0.2  # four standard deviations


def test_sorting_step_9_hides_the_intersection(run_alignment):
    """The active party follows its UID to a position in step 9, and from there to an element of L."""
    ids_a, ids_p = overlapping(200, 200, 100)
    shared = set(ids_a) & set(ids_p)
    run = run_alignment("psu", ids_a, ids_p)
    view = views(run)["active"]
    s2s3 = run.group.product(run.scalar("active", "scalar 2"), run.scalar("active", "scalar 3"))
    union = run.power(run.lists["step 8"], run.group.inverse(s2s3))
    in_p = as_set(view["step 5 ^ s1"])
    t2t3 = run.group.product(run.scalar("passive", "scalar 2"), run.scalar("passive", "scalar 3"))
    in_order_of_step_8 = run.power(run.lists["step 8"], t2t3)
    assert as_set(in_order_of_step_8) == as_set(run.lists["step 9"])

    def attack(step_9):
        place = {bytes(uid): i for i, uid in enumerate(step_9)}
        order = run.order("active", "step 11 request")
        return {ids_a[i] for i, uid in zip(order, view["own UIDs"], strict=True) if bytes(union[place[bytes(uid)]]) in in_p}

    assert attack(in_order_of_step_8) == shared
    assert abs(advantage(attack(run.lists["step 9"]), shared, ids_a)) < 0.28


def test_step_9_must_be_sorted(run_alignment):
    run = run_alignment("psu", *overlapping(9, 8, 3), change={"step 9": lambda rows: rows[::-1]})
    assert run.active.code == "E_UNION"
    assert "not sorted" in run.active.message


@pytest.mark.parametrize(
    ("step", "role", "scalar"),
    [
        ("step 3", "active", "scalar 1"),
        ("step 5", "passive", "scalar 1"),
        ("step 11 request", "active", "scalar 2"),
        ("step 12 request", "passive", "scalar 2"),
    ],
)
def test_own_lists_leave_in_a_secret_order(run_alignment, toy_group, step, role, scalar):
    """The canonical order, which everybody can compute, permuted by a secret of the job."""
    run = run_alignment("psu", *overlapping(30, 30, 10))
    in_canonical_order = run.power(
        toy_group.hash_to_group(run.canonical(role), b"vfl-node-v1-psu-toy"), run.scalar(role, scalar)
    )
    assert as_set(run.lists[step]) == as_set(in_canonical_order)
    assert (run.lists[step] != in_canonical_order).any(axis=1).sum() > 20
    other = run_alignment("psu", *overlapping(30, 30, 10), seed=2)
    assert list(run.order(role, step)) != list(other.order(role, step))
