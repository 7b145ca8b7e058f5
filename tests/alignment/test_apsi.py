"""A-APSI: the vectors, Python's set as oracle, what the strong party sees, and the published protocol as negative control."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vfl_node.alignment.alignment import NOT_MINE, Alignment, MemoryOfOneRun
from vfl_node.alignment.apsi import _between, least_size, obfuscated_size
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import UsageError
from vfl_node.job import Align
from vfl_node.ledger import Learnt
from vfl_node.settings import Obfuscation
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

IDS = st.lists(st.binary(min_size=1, max_size=1), unique=True, max_size=12)
SIZES = st.one_of(
    st.builds(lambda size: {"size": size}, st.integers(1, 20)), st.builds(lambda f: {"fraction": f}, st.floats(0.01, 1))
)


def as_set(rows):
    return {bytes(row) for row in rows}


def sets(n_w, n_s, shared, prefix=b"id"):
    ids = [prefix + b"%d" % i for i in range(n_w + n_s - shared)]
    return ids[:n_w], ids[n_w - shared :]


def terms(obfuscation):
    return Align(protocol="apsi", obfuscation=obfuscation)


# ---- what comes out


def test_vectors(run_alignment, vector_group):
    """x = 3 alone, then with others: k_s = 11, k_w = 13, k_w2 = 19."""

    def numbers(run):
        return {step: [int.from_bytes(row, "big") for row in rows.tolist()] for step, rows in run.lists.items()}

    alone = numbers(run_alignment("apsi", [b"\3"], [b"\3"], groups=[vector_group(13, 19), vector_group(11)]))
    assert alone.pop("step 8") == [pow(951, 19, 1283)]
    assert alone == {"step 3": [951], "step 4": [51], "step 6": [300], "step 10": [116], "step 12": [9]}  # h(3) = 9

    groups = [vector_group(13, 19), vector_group(11)]
    many = run_alignment("apsi", [bytes([x]) for x in (2, 3, 4)], [bytes([x]) for x in range(3, 9)], groups=groups)
    lists = numbers(many)
    assert (951 in lists["step 3"], 51 in lists["step 4"], 300 in lists["step 6"], 116 in lists["step 10"]) == 4 * (True,)
    assert 51 not in lists["step 10"]  # what the strong party would see under one weak key
    assert lists["step 12"] == sorted(lists["step 12"])
    assert {9, 16} < set(lists["step 12"]) < {x * x for x in range(3, 9)}


def assert_is_obfuscated_set(run, ids_w, ids_s, m):
    weak, strong = run.active, run.passive
    assert isinstance(weak, Alignment), weak
    assert isinstance(strong, Alignment), strong
    shared = set(ids_w) & set(ids_s)
    of_w = [ids_w[i] if i != NOT_MINE else None for i in weak.rows]
    of_s = [ids_s[i] for i in strong.rows]
    assert len(of_s) == len(set(of_s)) == len(of_w) == m
    assert shared <= set(of_s) <= set(ids_s)
    assert of_w == [item if item in shared else None for item in of_s]
    assert strong.owned.all()
    # The strong party has nothing but that; the weak one has I too.
    assert (strong.intersection, strong.union, strong.missing_at_peer) == (None, None, None)
    assert (weak.intersection, weak.missing, weak.missing_at_peer) == (len(shared), m - len(shared), 0)
    assert (weak.ours, weak.theirs, strong.ours, strong.theirs) == (len(ids_w), len(ids_s), len(ids_s), len(ids_w))
    assert weak.union == len(set(ids_w) | set(ids_s))


@pytest.mark.parametrize("name", ["toy", "curve25519"])
@given(ids_w=IDS, ids_s=IDS, wanted=SIZES)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_holds_the_intersection_and_others_of_the_strong_party(run_alignment, groups, name, ids_w, ids_s, wanted):
    run = run_alignment("apsi", ids_w, ids_s, group=groups[name], obfuscation=wanted)
    m = obfuscated_size(len(set(ids_w) & set(ids_s)), len(ids_s), terms(wanted), Obfuscation())
    assert_is_obfuscated_set(run, ids_w, ids_s, m)


@pytest.mark.parametrize(
    ("n_w", "n_s", "shared"), [(0, 0, 0), (0, 3, 0), (3, 0, 0), (4, 4, 4), (4, 5, 0), (2, 9, 2), (9, 2, 2)]
)
@pytest.mark.parametrize("xi", [0, 0.5, 1])
def test_edge_cases(run_alignment, n_w, n_s, shared, xi):
    ids_w, ids_s = sets(n_w, n_s, shared)
    wish = Obfuscation(security_number=xi)
    run = run_alignment("apsi", ids_w, ids_s, obfuscation="private", wish=wish)
    assert_is_obfuscated_set(run, ids_w, ids_s, obfuscated_size(shared, n_s, terms("private"), wish))


# ---- the size


@pytest.mark.parametrize(
    ("shared", "n_s", "sizes"),
    [(100, 10_000, (100, 317, 1000, 3163, 10_000)), (10_000, 60_000, (10_000, 15_651, 24_495, 38_337, 60_000))],
)
def test_the_security_numbers_formula(shared, n_s, sizes):
    assert tuple(_between(shared, n_s, xi) for xi in (0, 0.25, 0.5, 0.75, 1)) == sizes


@given(st.integers(1, 10**8), st.integers(1, 10**8), st.floats(0, 1))
@settings(derandomize=True)
def test_the_formula_lies_between_the_sets(a, b, xi):
    shared, n_s = min(a, b), max(a, b)
    assert shared <= _between(shared, n_s, xi) <= n_s
    # |Ĩ|/|I| = (n_s/|I|)^ξ, so Pr[genuine] falls exponentially in ξ
    assert _between(shared, n_s, xi) == pytest.approx(shared * (n_s / shared) ** xi, abs=1, rel=1e-9)


@pytest.mark.parametrize(
    ("xi", "shared", "least", "m"),
    [
        (0.5, 100, 1, 1024),  # 1000, and the next power of two
        (0.25, 100, 1, 512),  # 317
        (0, 100, 1, 128),
        (0.75, 100, 1, 4096),  # 3163
        (1, 100, 1, 10_000),  # never more than n_s
        (0.9, 100, 1, 8192),  # 6310
        (0.99, 100, 1, 10_000),  # 9551, whose bucket is above n_s
        (0.5, 0, 1, 128),  # as if one were shared
        (0.5, 3, 100, 1024),  # as if 100 were
        (0.5, 10_000, 1, 10_000),
        (0.5, 0, 20_000, 10_000),
    ],
)
def test_what_a_private_security_number_gives(xi, shared, least, m):
    wish = Obfuscation(security_number=xi, min_intersection=least)
    assert obfuscated_size(shared, 10_000, terms("private"), wish) == m


@pytest.mark.parametrize(
    ("wanted", "shared", "n_s", "m"),
    [
        ({"size": 50}, 20, 1000, 50),
        ({"size": 50}, 50, 1000, 50),
        ({"size": 50}, 51, 1000, 64),  # raised to the next public size, which does not give |I|
        ({"size": 50}, 64, 1000, 64),
        ({"size": 50}, 65, 1000, 128),
        ({"size": 50}, 65, 100, 100),  # and never above n_s
        ({"size": 5000}, 20, 1000, 1000),
        ({"size": 50}, 0, 1000, 50),
        ({"size": 50}, 0, 0, 0),
        ({"fraction": 0.7}, 3, 10, 7),  # 0.7·10 is 7, not 8
        ({"fraction": 0.07}, 3, 100, 7),
        ({"fraction": 0.701}, 3, 10, 8),
        ({"fraction": 1}, 3, 10, 10),
        ({"fraction": 0.1}, 9, 10, 10),
    ],
)
def test_what_a_size_or_fraction_gives(wanted, shared, n_s, m):
    assert obfuscated_size(shared, n_s, terms(wanted), Obfuscation()) == m
    assert least_size(terms(wanted), n_s) <= m


@given(st.integers(0, 3000), st.integers(0, 3000), SIZES)
@settings(derandomize=True)
def test_a_size_does_not_depend_on_the_intersection_unless_raised(shared, n_s, wanted):
    shared = min(shared, n_s)
    m = obfuscated_size(shared, n_s, terms(wanted), Obfuscation())
    assert shared <= m <= n_s
    asked = least_size(terms(wanted), n_s)
    assert m == asked if shared <= asked else m in (n_s, 2 ** (shared - 1).bit_length())


@pytest.mark.parametrize(
    ("shared", "n_s", "xi"), [(100, 10_000, 0.5), (300, 20_000, 0.25), (10_000, 60_000, 0.5), (99, 10_000, 0.3)]
)
def test_a_public_security_number_would_tell_the_intersections_size(shared, n_s, xi):
    """|I| = (m / n_s^ξ)^(1/(1−ξ)), exact after rounding. From the bucket of m it is wrong, and the same for many |I|."""

    def inverted(m):
        return (m / n_s**xi) ** (1 / (1 - xi))

    def bucket(shared):
        return obfuscated_size(shared, n_s, terms("private"), Obfuscation(security_number=xi))

    assert round(inverted(_between(shared, n_s, xi))) == shared
    assert abs(inverted(bucket(shared)) - shared) > 0.03 * shared
    assert bucket(shared) in (bucket(shared * 4 // 5), bucket(shared * 5 // 4))


def test_a_size_that_was_raised_is_in_the_ledger(run_alignment):
    run = run_alignment("apsi", *sets(20, 60, 19), obfuscation={"size": 5})
    assert len(run.passive) == 32
    raised = Learnt(
        "intersection size",
        None,
        "not fewer than 17 and not more than 32 records are shared: the size asked for was raised",
    )
    assert (run.passive.learnt[-1], run.active.peer_learnt[-1]) == (raised, raised)
    clipped = run_alignment("apsi", *sets(20, 25, 19), obfuscation={"size": 18})
    assert clipped.passive.learnt[-1].text.startswith("not fewer than 19 and not more than 25 records")
    assert "intersection size" not in {entry.what for entry in run_alignment("apsi", *sets(20, 60, 19)).passive.learnt}


def test_says_what_it_learnt(run_alignment):
    run = run_alignment("apsi", *sets(5, 10, 2), obfuscation={"size": 6})
    assert run.active.learnt == (
        Learnt("set size", 10, "the number of lab's records: 10"),
        Learnt("intersection", 2, "which 2 of its own 5 records lab holds too"),
        Learnt("foreign hashed ids", 4, "the hashes of 4 other identifiers of lab's, which a dictionary of identifiers opens"),
    )
    assert run.passive.learnt == (
        Learnt("set size", 5, "the number of clinic's records: 5"),
        Learnt("obfuscated set", 6, "which 6 of its own 10 records hold all that clinic has too, not which of them"),
    )
    assert run.active.peer_learnt == run.passive.learnt
    assert [entry.count for entry in run.passive.peer_learnt] == [10, None, None]


# ---- what the strong party sees


def strong_view(run):
    """All lists that the strong party sent or received, and what it computes from them."""
    k_s = run.scalar("passive", "k_s")
    own = run.power(run.group.hash_to_group(run.ids["passive"], f"vfl-node-v1-apsi-{run.group.name}".encode()), k_s)
    return run.lists | {"own": own, "step 12 ^ k_s": run.power(run.lists["step 12"], k_s)}


def relations(view):
    """Which lists are how long, hold how many different elements, and share how many."""
    distinct = {name: as_set(rows) for name, rows in view.items()}
    common = {pair: len(distinct[pair[0]] & distinct[pair[1]]) for pair in itertools.combinations(sorted(view), 2)}
    return {name: (len(rows), len(distinct[name])) for name, rows in view.items()}, common


@pytest.mark.parametrize("name", ["toy", "curve25519"])
def test_the_strong_partys_view_is_the_same_whatever_is_shared(run_alignment, groups, name):
    """For given n_w, n_s and m: how many are shared, and which, changes neither lengths nor what lists have in common."""
    size = {"size": 7}
    ids_w, ids_s = sets(6, 12, 3)
    other_ids = [item if item in ids_s else b"other" + item for item in ids_w]
    cases = [sets(6, 12, shared) for shared in (0, 1, 3, 6)] + [
        (ids_w, ids_s[::-1]),
        (other_ids, ids_s),
        sets(6, 12, 3, b"quite another"),
        (ids_s[6:12], ids_s),
    ]
    runs = [
        run_alignment("apsi", *ids, group=groups[name], obfuscation=size, seed=seed) for seed, ids in enumerate(cases, start=1)
    ]
    views = [relations(strong_view(run)) for run in runs]
    assert all(view == views[0] for view in views)
    _, common = views[0]
    expected = {("own", "step 3"): 12, ("own", "step 12 ^ k_s"): 7, ("step 12 ^ k_s", "step 3"): 7}
    assert {pair: count for pair, count in common.items() if count} == {tuple(sorted(p)): c for p, c in expected.items()}
    messages = [[(type(m), m.ByteSize()) for m in run.spies[0].messages] for run in runs]
    assert all(sizes == messages[0] for sizes in messages)


def test_no_power_of_its_own_links_what_the_strong_party_sees(run_alignment):
    """Step 4 under every power of k_s meets neither step 8 nor step 10, nor step 12."""
    run = run_alignment("apsi", *sets(9, 20, 6))
    k_s = run.scalar("passive", "k_s")
    powers = {"1": None, "k_s": k_s, "1/k_s": run.group.inverse(k_s)}

    def under(step):
        rows = run.lists[step]
        return set().union(*(as_set(rows if scalar is None else run.power(rows, scalar)) for scalar in powers.values()))

    for one, other in itertools.combinations(["step 4", "step 8", "step 12"], 2):
        assert not under(one) & under(other)


def matched(step_4, step_10, ids_in_order_of_step_12):
    """The strong party's attack: what E_w(I_w) and the stripped list have in common, read by its position in step 12."""
    hits = [i for i, row in enumerate(step_10) if bytes(row) in as_set(step_4)]
    return len(hits), {ids_in_order_of_step_12[i] for i in hits}


class Published:
    """Algorithm 1 as published: one weak key, and step 12 in the order of step 10."""

    def __init__(self, group, workers, ids_w, ids_s, m, seed):
        randomness = Randomness(bytes([seed]) * 32)
        k_s, k_w = group.draw(randomness.derive("s")), group.draw(randomness.derive("w"))

        def encrypted(rows, scalar):
            return group.power(rows, scalar, workers)

        i_s = encrypted(group.hash_to_group(ids_s, b"published"), k_s)
        self.step_4 = encrypted(group.hash_to_group(ids_w, b"published"), k_w)
        twice = encrypted(i_s, k_w)
        in_both = as_set(encrypted(self.step_4, k_s))
        genuine = [i for i, row in enumerate(twice) if bytes(row) in in_both]
        others = [i for i in range(len(ids_s)) if i not in genuine]
        chosen = np.array(genuine + others[: m - len(genuine)])[randomness.derive("order").permutation(m)]
        self.step_10 = encrypted(twice[chosen], group.inverse(k_s))
        step_12 = encrypted(self.step_10, group.inverse(k_w))
        own = {bytes(row): item for row, item in zip(group.hash_to_group(ids_s, b"published"), ids_s, strict=True)}
        self.ids_of_step_12 = [own[bytes(row)] for row in step_12]


@pytest.mark.parametrize("shared", [0, 1, 7, 12])
def test_the_attack_on_the_published_protocol_finds_everything_and_on_this_one_nothing(
    run_alignment, toy_group, workers, shared
):
    ids_w, ids_s = sets(12, 40, shared)
    published = Published(toy_group, workers, ids_w, ids_s, 20, seed=5)
    found = matched(published.step_4, published.step_10, published.ids_of_step_12)
    assert found == (shared, set(ids_w) & set(ids_s))

    run = run_alignment("apsi", ids_w, ids_s, obfuscation={"size": 20})
    in_order_of_step_12 = [ids_s[i] for i in run.passive.rows]
    assert matched(run.lists["step 4"], run.lists["step 10"], in_order_of_step_12) == (0, set())


# ---- each shuffle


def advantage(guessed, shared, own):
    """Hit rate among the shared minus that among the others: 1 is a full break, 0 is guessing."""
    others = set(own) - set(shared)
    return len(guessed & set(shared)) / len(shared) - len(guessed & others) / len(others)


def test_step_3_in_canonical_order_would_prove_ids_absent(run_alignment, toy_group, proven_absent):
    """The weak party knows where in step 3 its shared ids are; what the order has no room for is not in I_s."""
    ids = [b"%d" % i for i in range(500)]
    ids_w, ids_s, strangers = ids[:200], ids[100:300], ids[300:]

    def claims(run):
        k_w, k_w2 = run.scalar("active", "k_w"), run.scalar("active", "k_w2")
        own = toy_group.hash_to_group(ids_w, b"vfl-node-v1-apsi-toy")
        mine = {bytes(row): item for row, item in zip(own, ids_w, strict=True)}
        opened = run.power(run.lists["step 10"], toy_group.inverse(k_w2))  # in the order of step 8, which is known
        place = {bytes(row): i for i, row in enumerate(run.power(run.lists["step 3"], k_w2))}
        at = {mine[bytes(x)]: place[bytes(y)] for x, y in zip(opened, run.lists["step 8"], strict=True) if bytes(x) in mine}
        assert at.keys() == set(ids_w) & set(ids_s)
        assert {bytes(row) for row in run.power(run.lists["step 4"], toy_group.inverse(k_w))} == mine.keys()
        return proven_absent(at, len(ids_s), ids[200:])

    proven = claims(run_alignment("apsi", ids_w, ids_s, unshuffled={"step 3"}))
    assert proven <= set(strangers)
    assert len(proven) > 60
    assert abs(advantage(claims(run_alignment("apsi", ids_w, ids_s)), strangers, ids[200:])) < 0.1


# Step 4's shuffle only follows the reference: no element of it can be linked to anything else that the strong party
# holds (test_no_power_of_its_own_links_what_the_strong_party_sees), so neither can its place.


def test_step_6_in_the_order_of_step_4_would_tell_the_weak_party_i_before_it_chooses(run_alignment):
    """It learns I in the end anyhow. But what it picks, and whether it goes on, cannot depend on *which* are shared."""
    ids_w, ids_s = sets(200, 200, 100)
    shared = set(ids_w) & set(ids_s)

    def at_step_7(run):
        twice = as_set(run.power(run.lists["step 3"], run.scalar("active", "k_w")))
        order = run.order("active", "step 4")
        return {ids_w[i] for i, row in zip(order, run.lists["step 6"], strict=True) if bytes(row) in twice}

    assert at_step_7(run_alignment("apsi", ids_w, ids_s, unshuffled={"step 6"})) == shared
    assert abs(advantage(at_step_7(run_alignment("apsi", ids_w, ids_s)), shared, ids_w)) < 0.28  # four standard deviations


def test_step_8_and_step_12_in_the_order_of_choosing_would_tell_i(run_alignment, toy_group):
    """The genuine ones are chosen first. The shuffle of step 8 and the sorting of step 12 each hide that; the strong
    party reads I off the beginning of step 12 if that list has the order of step 8, and step 8 none of its own."""
    ids_w, ids_s = sets(60, 100, 30)
    shared = set(ids_w) & set(ids_s)
    elements = toy_group.hash_to_group(ids_s, b"vfl-node-v1-apsi-toy")
    own = {bytes(row): item for row, item in zip(elements, ids_s, strict=True)}

    def attack(run, step_12):
        return advantage({own[bytes(row)] for row in step_12[: len(shared)]}, shared, [own[bytes(row)] for row in step_12])

    def in_order_of_step_8(run):
        return run.power(run.lists["step 10"], toy_group.inverse(run.scalar("active", "k_w2")))

    neither, shuffled = run_alignment("apsi", ids_w, ids_s, unshuffled={"step 8"}), run_alignment("apsi", ids_w, ids_s)
    assert attack(neither, in_order_of_step_8(neither)) == 1
    assert abs(attack(neither, neither.lists["step 12"])) < 0.5  # four standard deviations
    assert abs(attack(shuffled, in_order_of_step_8(shuffled))) < 0.5
    assert abs(attack(shuffled, shuffled.lists["step 12"])) < 0.5


# ---- which others


@pytest.fixture(scope="module")
def many_draws(run_alignment):
    """120 jobs over different ids: m = 6, |I| = 2, n_s = 10, and the strong party's first two rows are the shared ones."""
    ids = [sets(4, 10, 2, prefix=b"%d-" % seed) for seed in range(120)]
    return [run_alignment("apsi", *ids[i], obfuscation={"size": 6}, seed=1 + i) for i in range(120)]


def test_the_others_are_uniform(many_draws):
    """Chi-squared over the 8 candidates, each of which has one chance in two; 7 degrees of freedom, p = 0.001 at 24.3."""
    drawn = np.bincount(np.concatenate([run.passive.rows for run in many_draws]), minlength=10)
    assert list(drawn[:2]) == 2 * [len(many_draws)]
    assert drawn.sum() == 6 * len(many_draws)
    variance = len(many_draws) / 4 * 8 / 7  # of 4 out of 8 without replacement, in each direction that keeps the sum
    assert 1 < ((drawn[2:] - len(many_draws) / 2) ** 2).sum() / variance < 24.3


@pytest.mark.parametrize("step", ["step 8", "step 12"])
def test_an_element_is_genuine_with_probability_i_over_m_wherever_it_stands(many_draws, toy_group, step):
    genuine = np.zeros(6)
    for run in many_draws:
        rows = run.lists["step 12"]
        if step == "step 8":  # and so step 10
            rows = run.power(run.lists["step 10"], toy_group.inverse(run.scalar("active", "k_w2")))
        place = {bytes(row): i for i, row in enumerate(run.lists["step 12"])}
        genuine += [run.passive.rows[place[bytes(row)]] < 2 for row in rows]
    assert genuine.sum() == 2 * len(many_draws)
    assert (abs(genuine / len(many_draws) - 2 / 6) < 0.17).all()  # four standard deviations


# ---- one draw for all jobs


def memories():
    return [MemoryOfOneRun(Randomness(bytes([i]) * 32)) for i in range(2)]


def again(run):
    return [m.again for m in run.spies[0].messages if isinstance(m, alignment_pb2.Obfuscation)]


@pytest.mark.parametrize("wanted", [{"size": 9}, {"size": 3}, {"fraction": 1}, "private"])
def test_a_later_job_uses_the_same_set(run_alignment, wanted):
    """Byte for byte, with other rows, another seed and whatever size it asks for; and so often as one likes."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    wish = Obfuscation(security_number=0.9)
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered, obfuscation={"size": 9})
    later = run_alignment(
        "apsi", ids_w[::-1], ids_s[3:] + ids_s[:3], memories=remembered, seed=7, job_id="later", obfuscation=wanted, wish=wish
    )
    assert (again(first), again(later)) == ([False], [True])
    assert later.lists.keys() == {"step 12"}
    np.testing.assert_array_equal(later.lists["step 12"], first.lists["step 12"])
    assert_is_obfuscated_set(later, ids_w[::-1], ids_s[3:] + ids_s[:3], 9)
    assert [entry.count for entry in later.passive.learnt] == [8, 9]
    assert [p.done for p in later.progress] == [p.total for p in later.progress]


def test_two_draws_would_tell_more_than_one(run_alignment):
    """The negative control of the memory: what draws without it have in common is closer and closer to I."""
    ids_w, ids_s = sets(8, 60, 5)
    drawn = []
    for seed in range(1, 9):
        run = run_alignment("apsi", ids_w, ids_s, obfuscation={"size": 20}, seed=seed, job_id=f"{seed}")
        drawn.append({ids_s[i] for i in run.passive.rows})
    assert set.intersection(*drawn) == set(ids_w) & set(ids_s)
    assert len(set.intersection(*drawn[:2])) < 15


class Racing(MemoryOfOneRun):
    """A memory in which another job writes after this one has read."""

    def __init__(self, other):
        super().__init__(other.secret)
        self._kept = other._kept

    def recall(self, name):
        return None


@pytest.mark.parametrize("size", [9, 3, 20])
def test_two_jobs_that_draw_at_the_same_time_end_with_the_same_set(run_alignment, size):
    """The first to remember counts for both, whatever size the other one asked for; and its ledger is about its own draw."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered, obfuscation={"size": 9})
    racing = [Racing(remembered[0]), remembered[1]]
    second = run_alignment("apsi", ids_w, ids_s, memories=racing, seed=7, job_id="second", obfuscation={"size": size})
    assert again(second) == [False]
    assert len(second.lists["step 8"]) == {9: 9, 3: 8, 20: 20}[size]
    np.testing.assert_array_equal(second.lists["step 12"], first.lists["step 12"])
    assert_is_obfuscated_set(second, ids_w, ids_s, 9)
    assert second.active.peer_learnt == second.passive.learnt
    assert ("intersection size" in {entry.what for entry in second.passive.learnt}) == (size < 5)
    # Resumed, the second job does without a draw of its own.
    resumed = run_alignment("apsi", ids_w, ids_s, memories=remembered, seed=7, job_id="second", obfuscation={"size": size})
    assert again(resumed) == [True]
    np.testing.assert_array_equal(resumed.lists["step 12"], first.lists["step 12"])


def test_the_same_job_resumed_goes_on_with_its_own_draw(run_alignment):
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first, second = (run_alignment("apsi", ids_w, ids_s, memories=remembered) for _ in range(2))
    assert (again(first), again(second)) == ([False], [False])
    for step, rows in first.lists.items():
        np.testing.assert_array_equal(second.lists[step], rows)


@pytest.mark.parametrize("changed", ["active", "passive", "peer"])
def test_a_changed_input_or_another_peer_gets_a_new_set(run_alignment, changed):
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    first = run_alignment("apsi", ids_w, ids_s, memories=remembered)
    if changed == "active":
        ids_w = [*ids_w, b"one more"]
    elif changed == "passive":
        ids_s = [*ids_s, b"one more"]
    else:
        remembered = memories()
    second = run_alignment("apsi", ids_w, ids_s, memories=remembered, seed=2, job_id="second")
    assert again(second) == [False]
    assert as_set(second.lists["step 12"]) != as_set(first.lists["step 12"])


def test_another_group_does_not_get_another_set(run_alignment, groups):
    """Its elements would be others, so the set would have to be drawn anew; the strong party could compare the two."""
    ids_w, ids_s = sets(8, 20, 5)
    remembered = memories()
    run_alignment("apsi", ids_w, ids_s, memories=remembered)
    later, racing = (
        run_alignment("apsi", ids_w, ids_s, memories=these, group=groups["curve25519"], job_id="later")
        for these in (remembered, [Racing(remembered[0]), remembered[1]])
    )
    for run in (later, racing):
        assert (type(run.active), run.active.code) == (UsageError, "E_CONFIG")
        assert "toy" in run.active.hint
        assert "step 12" not in run.lists
    assert not later.lists


def test_nothing_shared_goes_on(run_alignment):
    """And so does an intersection below the weak owner's minimum; both look as any other."""
    wish = Obfuscation(security_number=0.5, min_intersection=4)
    runs = [
        run_alignment("apsi", *sets(6, 30, shared), obfuscation="private", wish=wish, seed=1 + shared) for shared in range(5)
    ]
    views = [relations(strong_view(run)) for run in runs]
    assert all(view == views[0] for view in views)
    assert runs[0].active.intersection == 0
    assert (runs[0].active.rows == NOT_MINE).all()
    assert len(runs[0].passive) == 16
