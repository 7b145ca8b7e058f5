"""A-APSI: the vectors, Python's set as oracle, what the strong party sees, and the published protocol as negative control."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vfl_node.alignment.alignment import NOT_MINE, Alignment
from vfl_node.alignment.apsi.sizes import obfuscated_size
from vfl_node.crypto.randomness import Randomness
from vfl_node.job import Align
from vfl_node.ledger import Disclosure
from vfl_node.settings.node import Obfuscation

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
    assert (strong.peer.intersection, strong.union, strong.peer.missing) == (None, None, None)
    assert (weak.peer.intersection, weak.missing, weak.peer.missing) == (len(shared), m - len(shared), 0)
    assert (weak.ours, weak.peer.records, strong.ours, strong.peer.records) == (len(ids_w), len(ids_s), len(ids_s), len(ids_w))
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


def test_a_size_that_was_raised_is_in_the_ledger(run_alignment):
    run = run_alignment("apsi", *sets(20, 60, 19), obfuscation={"size": 5})
    assert len(run.passive) == 32
    raised = Disclosure(
        "intersection size",
        None,
        "not fewer than 17 and not more than 32 records are shared: the size asked for was raised",
    )
    assert (run.passive.learnt[-1], run.active.peer.learnt[-1]) == (raised, raised)
    clipped = run_alignment("apsi", *sets(20, 25, 19), obfuscation={"size": 18})
    assert clipped.passive.learnt[-1].text.startswith("not fewer than 19 and not more than 25 records")
    assert "intersection size" not in {entry.what for entry in run_alignment("apsi", *sets(20, 60, 19)).passive.learnt}


def test_says_what_it_learnt(run_alignment):
    run = run_alignment("apsi", *sets(5, 10, 2), obfuscation={"size": 6})
    assert run.active.learnt == (
        Disclosure("set size", 10, "the number of lab's records: 10"),
        Disclosure("intersection", 2, "which 2 of its own 5 records are also held by lab"),
        Disclosure(
            "foreign hashed ids", 4, "the hashes of 4 other identifiers of lab's, which a dictionary of identifiers opens"
        ),
    )
    assert run.passive.learnt == (
        Disclosure("set size", 5, "the number of clinic's records: 5"),
        Disclosure(
            "obfuscated set", 6, "which 6 of its own 10 records hold all that clinic has too, not which of them (draw 1)"
        ),
    )
    assert run.active.peer.learnt == run.passive.learnt
    assert [entry.count for entry in run.passive.peer.learnt] == [10, None, None]


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


def test_nothing_shared_goes_on(run_alignment):
    """And so does an intersection below the weak owner's minimum; both look as any other."""
    wish = Obfuscation(security_number=0.5, min_intersection=4)
    runs = [
        run_alignment("apsi", *sets(6, 30, shared), obfuscation="private", wish=wish, seed=1 + shared) for shared in range(5)
    ]
    views = [relations(strong_view(run)) for run in runs]
    assert all(view == views[0] for view in views)
    assert runs[0].active.peer.intersection == 0
    assert (runs[0].active.rows == NOT_MINE).all()
    assert len(runs[0].passive) == 16


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


def test_others_picked_in_the_order_of_step_3_would_tell_i(run_alignment):
    """The strong party knows that order: what stands behind the first element that was left out would all be genuine."""
    ids_w, ids_s = sets(60, 160, 60)

    def attack(run):
        order = [ids_s[i] for i in run.order("passive", "step 3")]
        obfuscated = [ids_s[i] for i in run.passive.rows]
        first_left_out = next(i for i, item in enumerate(order) if item not in obfuscated)
        return advantage(set(order[first_left_out:]) & set(obfuscated), set(ids_w), obfuscated)

    picked_in_order = run_alignment("apsi", ids_w, ids_s, obfuscation={"size": 100}, unshuffled={"step 7"})
    assert attack(picked_in_order) > 0.3  # and no other one is among them
    assert abs(attack(run_alignment("apsi", ids_w, ids_s, obfuscation={"size": 100}))) < 0.15


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
    """Many jobs over different ids: m = 6, |I| = 2, n_s = 10, and the strong party's first two rows are the shared ones."""
    ids = [sets(4, 10, 2, prefix=b"%d-" % seed) for seed in range(examples(120, fewer=80))]
    return [run_alignment("apsi", *of, obfuscation={"size": 6}, seed=1 + i) for i, of in enumerate(ids)]


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
    assert (abs(genuine / len(many_draws) - 2 / 6) < 4 * (2 / 9 / len(many_draws)) ** 0.5).all()
