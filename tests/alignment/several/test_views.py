"""What each party sees with several passive parties, and each shuffle with its negative control.

An attack is run by all parties but one where that helps them: a shuffle holds even then.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.alignment.several.parties import NAMES, fresh_memories, run_several
from vfl_node.alignment.several.route import Route, list_name, order_name

N = 3
EVERY_PASSIVE = pytest.mark.parametrize("name", NAMES[1:N])
BOTH = pytest.mark.parametrize("protocol", ["psu", "psi"])
HOPS = [(of, by) for of in range(N) for by in range(1, N) if of != by]


def as_set(rows):
    return {bytes(row) for row in rows}


def parts(size, prefix=b"id"):
    """Sets of three parties; each of the seven parts of their overlap has so many records."""
    who = [which for count in (1, 2, 3) for which in itertools.combinations(range(N), count)]
    return [
        [prefix + b"%d %d" % (i, copy) for copy in range(size) for i, which in enumerate(who) if party in which]
        for party in range(N)
    ]


def products(run, name):
    """Every product of a party's scalars and their inverses."""
    scalars = [run.scalar(name, number) for number in (1, 2, 3)]
    for signs in itertools.product((-1, 0, 1), repeat=3):
        chosen = [s if sign > 0 else run.group.inverse(s) for s, sign in zip(scalars, signs, strict=True) if sign]
        yield run.group.product(*chosen)


def links(run, name):
    """Pairs of lists of a party's view of which an element of one, under some product of its scalars, is in the other."""
    view = {
        **run.received(name),
        **{item: rows for (me, _), lists in run.sent.items() if me == name for item, rows in lists.items()},
    }
    sets = {item: as_set(rows) for item, rows in view.items()}
    linked = {}
    for scalar in products(run, name):
        for item, rows in view.items():
            raised = as_set(run.power(rows, scalar))
            for other, elements in sets.items():
                if other != item and raised & elements:
                    linked[frozenset((item, other))] = max(linked.get(frozenset((item, other)), 0), len(raised & elements))
    return linked


# ---- what each party sees


@pytest.mark.parametrize("passive", range(1, 9))
def test_no_passive_party_has_two_lists_under_the_same_scalars_of_others(passive):
    """By the route alone, for any number of parties."""
    route = Route(NAMES[1 : passive + 1])
    for here, _ in route.numbered:
        seen = {}
        for step in route.steps:
            for of in route.due(here, step):
                raised_by = [of, *((of - 1 + hop) % passive + 1 if of else hop for hop in range(1, step + 1))]
                assert raised_by[-1] == here  # the list is where the route says
                seen[of] = frozenset(raised_by) - {here}
        assert seen.keys() == set(range(passive + 1)) - {here}
        assert len(set(seen.values())) == len(seen)
        assert frozenset() not in seen.values()  # nor one that compares with its own


@BOTH
@EVERY_PASSIVE
def test_a_passive_party_can_link_only_what_belongs_to_one_list(protocol, name):
    """Even where all parties have the same records; its own pseudonyms are in the shared order, and no others."""
    run = run_several(protocol, [[b"%d" % i for i in range(6)]] * N)
    here, last = NAMES.index(name), N - 1
    route = Route(NAMES[1:N])
    allowed = {
        frozenset((list_name(rounds, of, step - 1), list_name(rounds, of, step)))
        for rounds in (1, 3)
        for step in route.steps
        for of in route.due(here, step)
    }
    allowed |= {frozenset((list_name(1, here, 0), list_name(3, here, 0)))}  # both its own
    allowed |= {frozenset((order_name(here - 1), order_name(here)))}
    reply = list_name(3, here, last)
    allowed |= {frozenset((reply, order_name(last)))}
    if here == last:  # which sorts the shared order, and could leave its own scalars out
        allowed |= {frozenset((reply, order_name(last - 1)))}
    assert links(run, name).keys() == allowed


@EVERY_PASSIVE
def test_foreign_pseudonyms_are_out_of_reach(name):
    run = run_several("psu", parts(2))
    here, last = NAMES.index(name), N - 1
    own, union = (
        as_set(run.power(run.lists[list_name(3, here, last)], run.scalar(name, 1), run.scalar(name, 3))),
        as_set(run.lists[order_name(last)]),
    )
    received = [rows for item, rows in run.received(name).items() if not item.startswith("round 2")]
    hits = {
        element for scalar in products(run, name) for rows in received for element in as_set(run.power(rows, scalar)) & union
    }
    assert hits == own < union


@BOTH
def test_lists_are_as_long_as_the_ledger_says(protocol):
    ids = parts(2)
    run = run_several(protocol, ids)
    m = {"psu": 14, "psi": 2}[protocol]
    for name in NAMES[1:N]:
        told = [item.count for item in run[name].learnt]
        others = [len(own) for other, own in zip(NAMES, ids, strict=False) if other != name]
        assert told == [*others, m]
        for item, rows in run.received(name).items():
            expected = m if item.startswith("round 2") else len(ids[int(item.split()[3])])
            assert len(rows) == expected


@BOTH
def test_other_identifiers_in_parts_of_the_same_sizes_look_the_same(protocol):
    """The sizes that the ledger lists are all that any view shows; with another size a view shows it."""
    one = run_several(protocol, parts(2))
    other = run_several(protocol, parts(2, prefix=b"quite another "), seed=2)
    ids = parts(2)
    ids[2][-1] = b"elsewhere"  # of those that all have
    less = run_several(protocol, ids)
    for name in NAMES[:N]:
        assert links(one, name) == links(other, name)
    assert links(one, NAMES[0]) != links(less, NAMES[0])


def joined_view(run, name):
    """All elements that a party sent or received, but those of its own lists as they leave it."""
    own = {list_name(rounds, run.names.index(name), 0) for rounds in (1, 3)}
    lists = [lists for way, lists in run.sent.items() if name in way]
    return np.concatenate([rows for of in lists for item, rows in of.items() if item not in own])


def jobs_are_linked(first, second, name):
    """Whether some product of a party's scalars of both jobs takes an element of one view to one of the other."""
    scalars = {s.reveal(): s for run in (first, second) for s in (run.scalar(name, number) for number in (1, 2, 3))}
    view, other = joined_view(first, name), as_set(joined_view(second, name))
    for signs in itertools.product((-1, 0, 1), repeat=len(scalars)):
        chosen = [s if sign > 0 else first.group.inverse(s) for s, sign in zip(scalars.values(), signs, strict=True) if sign]
        if as_set(first.power(view, *chosen)) & other:
            return True
    return False


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name != "lab" else name for name in NAMES[:N]])
def test_views_of_two_jobs_can_be_compared_only_if_nothing_has_changed(name, monkeypatch):
    """Not after one record more at one party, in another protocol, or with the parties in another order or other roles."""
    ids, memories = [[b"1", b"2"], [b"2", b"3"], [b"3", b"1"]], fresh_memories(NAMES[:N])
    first = run_several("psu", ids, memories=memories)
    again = {"memories": memories, "seed": 2, "job_id": "again"}
    assert jobs_are_linked(first, run_several("psu", ids, **again), name)
    assert not jobs_are_linked(first, run_several("psu", [*ids[:2], [*ids[2], b"4"]], **again), name)
    assert not jobs_are_linked(first, run_several("psi", ids, **again), name)
    for order in ((0, 2, 1), (1, 0, 2)):
        monkeypatch.setattr("tests.alignment.several.parties.NAMES", tuple(NAMES[i] for i in order))
        other = run_several("psu", [ids[i] for i in order], **again | {"memories": [memories[i] for i in order]})
        assert not jobs_are_linked(first, other, name)


def test_two_passive_parties_together_learn_an_overlap_with_a_third():
    """docs/explanations/alignment/index.md says so. The lab has the shop's list, and the insurer's one that the shop raised:
    both are under the shop's first scalar, and the insurer can take its own away."""
    ids = [*parts(2), [b"id0 0", b"id2 0", b"id2 1", b"id6 1", b"another"]]
    run = run_several("psu", ids)
    lab, insurer = NAMES[1:3]
    raised, left = run.received(lab)[list_name(1, 2, 1)], run.received(lab)[list_name(1, 3, 0)]
    assert not as_set(raised) & as_set(left)
    theirs = run.power(raised, run.group.inverse(run.scalar(insurer, 1)))
    assert len(as_set(theirs) & as_set(left)) == len(set(ids[2]) & set(ids[3])) > 0


# ---- each shuffle, with and without: the known attack finds everything, or nothing


def advantage(guessed, shared, own):
    """Hit rate among the shared minus that among the others: 1 is a full break, 0 is guessing."""
    others = set(own) - set(shared)
    return len(guessed & set(shared)) / len(shared) - len(guessed & others) / len(others)


def is_chance(guessed, shared, own):
    """Within four standard deviations."""
    others = len(own) - len(shared)
    return abs(advantage(guessed, shared, own)) < 4 * (0.25 / len(shared) + 0.25 / others) ** 0.5


SIZE = 16  # records in each part; 64 of a party


@pytest.mark.parametrize(("of", "by"), HOPS)
@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_hop_of_round_1_hides_which_records_its_party_has(of, by, seed):
    """All others together follow a list by its places from its owner to its end; they know their own orders."""
    ids = parts(SIZE)
    shared = set(ids[of]) & set(ids[by])

    def attack(run):
        order = run.order(NAMES[of], 1)
        here = of
        for hop in range(1, N if of == 0 else N - 1):
            here = here % (N - 1) + 1
            if here != by:
                order = order[run.mix(NAMES[here], list_name(1, of, hop), len(order))]
        theirs = as_set(run.under_all(by))
        return {ids[of][place] for place, row in zip(order, run.under_all(of), strict=True) if bytes(row) in theirs}

    goes = [list_name(1, of, hop) for hop in range(1, N)]
    assert attack(run_several("psu", ids, seed=seed, tampered={NAMES[by]: (goes, {})})) == shared
    assert is_chance(attack(run_several("psu", ids, seed=seed)), shared, ids[of])


def test_a_list_that_left_its_owner_in_an_order_that_all_can_compute_would_show_the_overlap():
    """The active party sees which places of a list, as it leaves its owner, are shared with its own list that was there."""
    ids = parts(SIZE)
    shared = set(ids[1]) & set(ids[0])

    def attack(run):
        """It reads the list by the canonical order of the owner's records, some of which it knows or guesses."""
        mine = as_set(run.power(run.lists[list_name(1, 0, 1)], run.group.inverse(run.scalar(NAMES[0], 1))))
        left = run.lists[list_name(1, 1, 0)]
        return {ids[1][place] for place, row in zip(run.ids[1].canonical_order, left, strict=True) if bytes(row) in mine}

    assert attack(run_several("psu", ids, tampered={NAMES[1]: (["round 1"], {})})) == shared
    assert is_chance(attack(run_several("psu", ids)), shared, ids[1])


def test_orders_of_rounds_1_and_3_that_were_the_same_would_link_them():
    """The active party knows which places of a list in round 1 it shares; in round 3 it sees the list's places again."""
    ids = parts(SIZE)
    shared = set(ids[1]) & set(ids[0])

    def attack(run):
        mine = as_set(run.power(run.lists[list_name(1, 0, 1)], run.group.inverse(run.scalar(NAMES[0], 1))))
        flags = [bytes(row) in mine for row in run.lists[list_name(1, 1, 0)]]
        return {ids[1][place] for place, flag in zip(run.order(NAMES[1], 3), flags, strict=True) if flag}

    same = run_several("psu", ids, tampered={NAMES[1]: ((), {"round 3": "round 1"})})
    assert attack(same) == shared
    assert is_chance(attack(run_several("psu", ids)), shared, ids[1])


@pytest.mark.parametrize("shuffled", [(), (0,), (1,), (0, 1)], ids=["nobody", "active", "first", "both"])
def test_a_shuffle_of_round_2_hides_the_active_partys_part_from_the_last(shuffled):
    """The last party finds its own records in the shared order as it comes, whose first places would be the active party's."""
    ids = parts(SIZE)
    last, name = N - 1, NAMES[N - 1]
    shared = set(ids[last]) & set(ids[0])
    run = run_several(
        "psu", ids, tampered={NAMES[party]: ([order_name(party)], {}) for party in (0, 1) if party not in shuffled}
    )
    own = run.power(run.lists[list_name(3, last, last)], run.scalar(name, 1), run.group.inverse(run.scalar(name, 2)))
    place = {bytes(row): i for i, row in enumerate(run.lists[order_name(last - 1)])}
    guessed = {ids[last][i] for i, row in zip(run.order(name, 3), own, strict=True) if place[bytes(row)] < len(ids[0])}
    if shuffled:
        assert is_chance(guessed, shared, ids[last])
    else:
        assert guessed == shared


@pytest.mark.parametrize(("mixed", "sorts"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_shuffle_or_the_sorting_of_round_2_hides_the_overlap_from_the_active_party(mixed, sorts):
    """It follows its pseudonyms from the shared order back to elements of L, whose owners it knows."""
    ids = parts(SIZE)
    last, first, name = N - 1, NAMES[1], NAMES[N - 1]
    shared = set(ids[0]) & set(ids[1])
    run = run_several("psu", ids, tampered={} if mixed else {first: ([order_name(1)], {})})
    unsorted = run.power(run.lists[order_name(last - 1)], run.scalar(name, 2), run.scalar(name, 3))
    assert as_set(unsorted) == as_set(run.lists[order_name(last)])
    back = run.group.inverse(run.group.product(run.scalar(NAMES[0], 2), run.scalar(NAMES[0], 3)))
    union, theirs = run.power(run.lists[order_name(0)], back), as_set(run.under_all(1))
    place = {bytes(row): i for i, row in enumerate(run.lists[order_name(last)] if sorts else unsorted)}
    own = run.power(run.lists[list_name(3, 0, last)], run.scalar(NAMES[0], 1), run.scalar(NAMES[0], 3))
    guessed = {
        ids[0][i] for i, row in zip(run.order(NAMES[0], 3), own, strict=True) if bytes(union[place[bytes(row)]]) in theirs
    }
    if mixed or sorts:
        assert is_chance(guessed, shared, ids[0])
    else:
        assert guessed == shared


@pytest.mark.parametrize("by", range(1, N))
def test_a_hop_of_round_2_hides_which_records_its_party_has(by):
    """All others together know whose each element of the shared order is before the hop, and whose pseudonym after it."""
    ids = parts(SIZE)
    shared, last, name = set(ids[0]) & set(ids[by]), N - 1, NAMES[by]

    def without(run, rows, parties):
        """The shared order without the second and third scalars of some parties."""
        for party in parties:
            rows = run.power(rows, *(run.group.inverse(run.scalar(NAMES[party], number)) for number in (2, 3)))
        return rows

    def attack(run, after):
        theirs = as_set(run.under_all(by))
        is_theirs = [bytes(row) in theirs for row in without(run, run.lists[order_name(by - 1)], range(by))]
        own = run.power(run.lists[list_name(3, 0, last)], run.scalar(NAMES[0], 1), run.scalar(NAMES[0], 3))
        place = {bytes(row): i for i, row in enumerate(after)}
        mine = zip(run.order(NAMES[0], 3), without(run, own, range(by + 1, N)), strict=True)
        return {ids[0][i] for i, row in mine if is_theirs[place[bytes(row)]]}

    run = run_several("psu", ids)
    in_order = run.power(run.lists[order_name(by - 1)], run.scalar(name, 2), run.scalar(name, 3))
    assert as_set(in_order) == as_set(run.lists[order_name(by)])
    assert attack(run, in_order) == shared
    assert is_chance(attack(run, run.lists[order_name(by)]), shared, ids[0])


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("of", range(N))
def test_own_lists_leave_in_a_secret_order(rounds, of):
    """The canonical order, which everybody can compute, permuted by a secret of these sets."""
    run, other = (run_several("psu", parts(5), seed=seed) for seed in (1, 2))
    name, scalar = NAMES[of], {1: 1, 3: 2}[rounds]
    ids = run.ids[of].take(run.ids[of].canonical_order)
    canonical = run.power(run.group.hash_to_group(ids, b"vfl-node-v1-psu-toy"), run.scalar(name, scalar))
    assert as_set(run.lists[list_name(rounds, of, 0)]) == as_set(canonical)
    assert (run.lists[list_name(rounds, of, 0)] != canonical).any(axis=1).sum() > 10
    assert not np.array_equal(run.order(name, rounds), other.order(name, rounds))
    assert not np.array_equal(run.order(name, 1), run.order(name, 3))
