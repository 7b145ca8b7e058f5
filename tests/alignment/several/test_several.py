"""Alignment with several passive parties: the vectors, Python's sets as oracle, and what each party says it has learnt."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alignment.several.parties import NAMES, fresh_memories, run_several
from tests.thorough import examples
from vfl_node.alignment.alignment import Alignment
from vfl_node.alignment.words import ReportedAlignment, words_of
from vfl_node.configuration.models import parse
from vfl_node.crypto.groups import Curve25519
from vfl_node.errors import PeerLost, PolicyError, UsageError
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.ledger import Disclosure
from vfl_node.settings.limits import Limits

BOTH = pytest.mark.parametrize("protocol", ["psu", "psi"])
THREE = [[b"2", b"3", b"4"], [b"3", b"4", b"5", b"6"], [b"4", b"6", b"7"]]


def numbers(rows):
    return {int.from_bytes(row, "big") for row in rows.tolist()}


# ---- the vectors


@BOTH
def test_vectors(vector_group, protocol):
    ids = [[bytes([x]) for x in own] for own in ((2, 3, 4), (3, 4, 5, 6), (4, 6, 7))]
    groups = [vector_group(17, 23, 31), vector_group(101, 203, 311), vector_group(37, 59, 83)]
    run = run_several(protocol, ids, groups=groups)
    lists = {name: numbers(rows) for name, rows in run.lists.items()}
    assert [lists[f"round 1 list 0 hop {hop}"] for hop in range(3)] == [{97, 428, 1031}, {215, 818, 1088}, {19, 572, 678}]
    assert [lists[f"round 1 list 1 hop {hop}"] for hop in range(2)] == [{40, 345, 471, 965}, {190, 263, 637, 1138}]
    assert [lists[f"round 1 list 2 hop {hop}"] for hop in range(2)] == [{170, 581, 709}, {190, 637, 1032}]
    in_round_2, uids = {
        "psu": (
            [{90, 275, 502, 536, 1024, 1065}, {444, 488, 789, 1084, 1128, 1198}],
            {2: 1053, 3: 378, 4: 297, 5: 103, 6: 304, 7: 1128},
        ),
        "psi": ([{536}, {789}], {4: 297}),
    }[protocol]
    assert [lists[f"round 2 hop {hop}"] for hop in range(2)] == in_round_2
    assert [int.from_bytes(row, "big") for row in run.lists["round 2 hop 2"].tolist()] == sorted(uids.values())
    requests = {
        0: [(865, 257, 236), (153, 483, 315), (952, 778, 506)],
        1: [(221, 121, 348, 1148), (590, 271, 1073, 156), (704, 1053, 256, 1005)],
        2: [(583, 951, 507), (156, 844, 632), (1005, 324, 761)],
    }
    for of, hops in requests.items():
        assert [lists[f"round 3 list {of} hop {hop}"] for hop in range(3)] == list(map(set, hops))
    for name, own in zip(run.names, ids, strict=True):
        found = {own[row][0]: uid for row, uid in zip(run[name].rows, sorted(uids.values()), strict=True) if row >= 0}
        assert found == {item[0]: uids[item[0]] for item in own if item[0] in uids}
    assert sum(progress.done for progress in run.progress) == sum(progress.total for progress in run.progress)


# ---- Python's sets


SETS = st.integers(2, 5).flatmap(
    lambda parties: st.lists(
        st.lists(st.integers(0, 15).map(lambda i: b"%d" % i), unique=True, max_size=9), min_size=parties, max_size=parties
    )
)


def assert_as_sets(protocol, ids, run):
    """Each result is what Python's sets give."""
    for result in run.results.values():
        assert isinstance(result, Alignment), result
    sets = [set(own) for own in ids]
    union, common = set().union(*sets), sets[0].intersection(*sets[1:])
    shared = union if protocol == "psu" else common
    of = [
        [own[row] if row >= 0 else None for row in run[name].rows] for name, own in zip(run.names, ids, strict=True)
    ]  # of each party: its record at each shared position
    at = [{item for item in seen if item is not None} for seen in zip(*of, strict=True)]
    assert all(len(items) == 1 for items in at)  # the same record at all that have it
    assert sorted(item for items in at for item in items) == sorted(shared)
    for seen, own in zip(of, sets, strict=True):
        assert [item for item in seen if item] == [next(iter(items)) for items in at if items <= own]
    active = run[run.names[0]]
    assert active.common == len(common)
    assert active.union == len(union)
    for number, name in enumerate(run.names):
        result = run[name]
        assert result.ours == len(sets[number])
        assert {peer: facts.records for peer, facts in result.peers.items()} == {
            other: len(sets[i]) for i, other in enumerate(run.names) if i != number
        }
        for i, other in enumerate(run.names):
            if i != number:
                assert result.peers[other].missing == len(shared) - len(sets[i] & shared)
                if number == 0:
                    assert result.peers[other].intersection == len(sets[0] & sets[i])
        assert result.union == (len(union) if protocol == "psu" or number == 0 or len(ids) == 2 else None)
        assert result.common == (len(common) if protocol == "psi" or number == 0 or len(ids) == 2 else None)


@BOTH
@given(ids=SETS)
@settings(max_examples=examples(25, fewer=10), deadline=None, derandomize=True)
def test_equals_pythons_sets(protocol, ids):
    assert_as_sets(protocol, ids, run_several(protocol, ids))


@BOTH
@pytest.mark.parametrize(
    "ids",
    [
        [[], [], []],
        [[b"a"], [], [b"a"]],
        [[b"a", b"b"], [b"c"], [b"d"]],
        [[b"a", b"b"], [b"a", b"b"], [b"b", b"a"]],
        [[b"a"], [b"a"], [b"a"], [b"b"]],
        [[b"%d" % i for i in range(20)], [b"%d" % i for i in range(5, 30)], [b"%d" % i for i in range(15, 23)]],
    ],
    ids=["empty", "one empty", "nothing shared", "the same", "one apart", "in parts"],
)
def test_edge_cases(protocol, ids):
    run = run_several(protocol, ids)
    assert_as_sets(protocol, ids, run)
    for progress in run.progress:
        assert progress.done == progress.total


@BOTH
def test_nine_parties_over_the_default_group(protocol):
    ids = [[b"%d" % i for i in range(party, party + 10)] for party in range(9)]
    assert_as_sets(protocol, ids, run_several(protocol, ids, group=Curve25519()))


@BOTH
def test_padding_hides_sizes_and_changes_no_shared_record(protocol):
    ids = [[b"%d" % i for i in range(7)], [b"%d" % i for i in range(3, 12)], [b"%d" % i for i in range(5, 8)]]
    run = run_several(protocol, ids, padding=1)
    active, lab = run["clinic"], run["lab"]
    assert [facts.records for facts in active.peers.values()] == [16, 4]
    assert [facts.records for facts in lab.peers.values()] == [8, 4]
    assert all(facts.padded for facts in (*active.peers.values(), *lab.peers.values()))
    assert (active.common, active.peers["lab"].intersection, active.peers["insurer"].intersection) == (2, 4, 2)
    assert active.union is lab.union is None
    for name, own in zip(run.names, ids, strict=True):
        owned = run[name].rows[run[name].rows >= 0]
        assert len(owned) == (len(own) if protocol == "psu" else 2)
        missing = {facts.missing for facts in run[name].peers.values()}
        assert missing == ({None} if protocol == "psu" else {0})
    assert "at most 4 only clinic, at most 11 only lab, 2 only clinic + lab" in active.learnt[-1].text


# ---- what it leaves and says


def test_says_what_each_party_learnt_of_a_union():
    run = run_several("psu", THREE)
    sizes = {
        name: Disclosure("set size", len(own), f"the number of {name}'s records: {len(own)}")
        for name, own in zip(NAMES, THREE, strict=False)
    }
    union = Disclosure("union size", 6, "the size of the union: 6")
    parts = "how many records exactly some of the parties hold, for each choice of parties, not which records"
    counted = (
        "1 only clinic, 1 only lab, 1 only clinic + lab, 1 only insurer, 0 only clinic + insurer, 1 only lab + insurer, "
        "1 only clinic + lab + insurer"
    )
    assert run["clinic"].learnt == (
        sizes["lab"],
        sizes["insurer"],
        union,
        Disclosure("overlap sizes", 7, f"{parts}: {counted}"),
    )
    assert run["lab"].learnt == (sizes["clinic"], sizes["insurer"], union)
    assert run["insurer"].learnt == (sizes["clinic"], sizes["lab"], union)
    for name in ("clinic", "lab"):
        assert run[name].peers["insurer"].learnt == run["insurer"].learnt
    for name in ("lab", "insurer"):  # which do not know the sizes of the parts
        assert run[name].peers["clinic"].learnt == (*run["clinic"].learnt[:-1], Disclosure("overlap sizes", 7, parts))


def test_says_what_each_party_learnt_of_an_intersection():
    run = run_several("psi", THREE)
    for name, own in zip(run.names, THREE, strict=True):
        which = Disclosure("intersection", 1, f"which 1 of its own {len(own)} records all parties hold")
        assert which in run[name].learnt
        assert [item.what for item in run[name].learnt] == ["set size", "set size", "intersection"] + ["overlap sizes"] * (
            name == "clinic"
        )
        assert all(facts.learnt[2].what == "intersection" for facts in run[name].peers.values())


@pytest.mark.parametrize(
    ("ids", "active", "lab"),
    [
        ([[b"a"], [b"b"], [b"c"]], ["clinic and lab share no record", "lab and insurer share no record"],
         ["No two parties share"]),
        ([[b"a"], [b"a", b"b"], [b"a", b"b"]], ["lab holds every record of clinic", "insurer holds every record of lab"],
         ["insurer holds every record of all others", "It holds every record of all others"]),
        ([[b"a", b"b"], [b"b", b"c"], [b"c", b"a"]],
         ["0 only clinic + lab + insurer", *(f"Every record of {name} is held by another party" for name in NAMES[:3])], []),
    ],
)  # fmt: skip
def test_says_so_where_a_part_names_members(ids, active, lab):
    run = run_several("psu", ids)
    assert all(part in run["clinic"].learnt[-1].text for part in active)
    assert all(part in run["lab"].learnt[2].text for part in lab)
    assert lab or run["lab"].learnt[2].text == "the size of the union: 3"


def test_an_intersection_says_so_where_sizes_name_members():
    ids = [[b"a", b"b", b"c"], [b"b", b"d"], [b"b"]]
    run = run_several("psi", ids)
    which = "which 1 of its own {} records all parties hold"
    assert run["clinic"].learnt[2].text == f"{which.format(3)}. These are all records of insurer"
    assert run["insurer"].learnt[2].text == which.format(1)
    assert "clinic and lab share only records that all parties hold" in run["clinic"].learnt[-1].text
    assert "lab and insurer share only" not in run["clinic"].learnt[-1].text  # more is said: lab holds all of insurer's
    assert "share only" not in run_several("psu", ids)["clinic"].learnt[-1].text  # where nobody knows which these are
    assert "Every record" not in run["clinic"].learnt[-1].text


def test_many_parts_are_listed_from_the_smallest_on():
    ids = [[b"%d" % i for i in range(party * 2, party * 2 + 12)] for party in range(6)]
    text = run_several("psu", ids)["clinic"].learnt[-1].text
    assert text.count(" only ") <= 15
    assert "are empty" in text


@BOTH
def test_the_sizes_that_the_active_party_states_are_those_of_all_parts(protocol):
    ids = [[b"%d" % i for i in range(12)], [b"%d" % i for i in range(4, 17)], [b"%d" % i for i in range(0, 20, 3)]]
    text = run_several(protocol, ids)["clinic"].learnt[-1].text
    sets = dict(zip(NAMES, map(set, ids), strict=False))
    for count in (1, 2, 3):
        for who in combinations(sets, count):
            exactly = set.intersection(*(sets[name] for name in who)) - set().union(
                *(sets[name] for name in sets if name not in who)
            )
            assert f"{len(exactly)} only {' + '.join(who)}" in text


# ---- the smallest part that owners accept


def owners(**minimum):
    return {name: Limits.model_construct(min_own_rows=0, min_peer_rows=0, min_overlap=least) for name, least in minimum.items()}


@BOTH
def test_a_part_below_the_largest_minimum_stops_the_job_before_there_is_an_order(protocol):
    run = run_several(protocol, THREE, limits_of=owners(insurer=2, lab=1))
    error = run["clinic"]
    assert (type(error), error.code, error.peer_code) == (PolicyError, "E_OVERLAP", "E_OVERLAP")
    assert error.message == error.for_peer
    assert not any(name in error.message + error.hint for name in NAMES)
    assert all(isinstance(run[name], PeerLost) for name in run.names[1:])  # here nobody sends the text on
    assert not any(name.startswith(("round 2", "round 3")) for name in run.lists)
    other_part = run_several(protocol, [*THREE[:2], [b"4", b"6", b"2"]], limits_of=owners(insurer=2))["clinic"]
    assert (other_part.message, other_part.hint) == (error.message, error.hint)


@BOTH
def test_parts_of_the_minimum_pass_and_the_ledger_says_so(protocol):
    parts = [who for count in (1, 2, 3) for who in combinations(range(3), count)]
    ids = [[b"%d %d" % (i, copy) for i, who in enumerate(parts) for copy in range(2) if party in who] for party in range(3)]
    for least, passes in ((2, True), (3, False)):
        run = run_several(protocol, ids, limits_of=owners(lab=least))
        assert isinstance(run["clinic"], Alignment) == passes
        if passes:
            said = Disclosure("smallest overlap", 2, "that each part of the overlap has at least 2 records")
            assert all(run[name].learnt[-1] == said for name in run.names)


# ---- a later job


@BOTH
def test_the_same_sets_again_are_the_same_lists_until_the_second_round(protocol):
    memories = fresh_memories(NAMES[:3])
    first = run_several(protocol, THREE, memories=memories)
    again = run_several(protocol, [own[::-1] for own in THREE], memories=memories, seed=2, job_id="again")
    changed = run_several(protocol, [*THREE[:2], [b"4", b"6", b"8"]], memories=memories, seed=3, job_id="changed")
    for name, rows in first.lists.items():
        same = name.startswith("round 1") or (name.startswith("round 3") and name.endswith("hop 0"))
        assert np.array_equal(rows, again.lists[name]) == same, name
        assert not np.array_equal(rows, changed.lists[name])


# ---- jobs that do not fit


def job(align):
    return parse(f"name: j\nparties: {{active: clinic, passive: [lab, insurer]}}\nalign: {align}\n", Job, source="job")


def test_dummies_are_for_two_parties():
    with pytest.raises(UsageError, match=r"align\.dummies hides how many records two parties share"):
        job("{protocol: psu, dummies: 3}")
    assert job("{protocol: psu, padding: 3}").align.padding == 3


def test_an_obfuscated_set_is_for_one_passive_party():
    with pytest.raises(UsageError, match=r"aligns with 1 of parties\.passive at most"):
        job("{protocol: apsi, obfuscation: {size: 3}}")


# ---- what a report says


@pytest.mark.parametrize(
    ("padding", "rows_text"),
    [(0, ""), (1, "The shared order has 9 rows. Some may stand for no record: they hide how many records each party has.")],
)
def test_words_of_a_report(padding, rows_text):
    words = {"party": "lab", "peer": "clinic and insurer", "active": "clinic", "passive": "lab and insurer"}
    of = ReportedAlignment(
        **words,
        label_holder="active",
        rows=9,
        intersection=None,
        union=None if padding else 9,
        padded=padding > 0,
        several=True,
    )
    assert words_of(ALIGNMENTS["psu"]).rows(of) == rows_text
    parts = "clinic also learns how many records exactly some of the parties have, for each choice of parties."
    for protocol in ("psu", "psi"):
        assert words_of(ALIGNMENTS[protocol]).leaks(of).endswith(parts)
    assert "which of its own records all parties have" in words_of(ALIGNMENTS["psi"]).leaks(of)
