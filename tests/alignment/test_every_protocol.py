"""What holds for all protocols: the table's order never shows, and neither do other jobs, but for a mark."""

from __future__ import annotations

import numpy as np
import pytest

from vfl_node.alignment.alignment import NOT_MINE
from vfl_node.crypto.randomness import Randomness
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.transport.generated.vfl.v1 import alignment_pb2, session_pb2

OF_LISTS = ["psu", "psi", "apsi", "psi-pairs"]
EVERY = pytest.mark.parametrize("protocol", [*OF_LISTS, "upsi"])
IDS_A, IDS_P = [b"%d" % i for i in range(17)], [b"%d" % i for i in range(9, 33)]


def sent(run):
    """All that each party sends, byte by byte."""
    return [[message.SerializeToString(deterministic=True) for message in spy.messages] for spy in run.spies]


def permuted(ids, seed):
    order = np.random.default_rng(seed).permutation(len(ids))
    return [ids[i] for i in order], order


def in_other_order(run_alignment, protocol, **terms):
    """The same job twice, the second time with the rows of both tables permuted."""
    (ids_a, order_a), (ids_p, order_p) = permuted(IDS_A, 1), permuted(IDS_P, 2)
    return (
        run_alignment(protocol, IDS_A, IDS_P, **terms),
        run_alignment(protocol, ids_a, ids_p, **terms),
        {"active": order_a, "passive": order_p},
    )


@EVERY
@pytest.mark.parametrize("covered", [False, True])
def test_permuting_the_input_permutes_nothing_the_peer_sees(run_alignment, protocol, covered):
    terms = {"padding": 2} if covered else {}
    if covered and protocol == "psu":
        terms["dummies"] = 3
    first, second, orders = in_other_order(run_alignment, protocol, **terms)
    assert sent(first) == sent(second)
    for role, order in orders.items():
        rows, other = getattr(first, role).rows, getattr(second, role).rows
        np.testing.assert_array_equal(rows, np.where(other == NOT_MINE, NOT_MINE, order[other]))


@pytest.mark.parametrize("protocol", OF_LISTS)  # upsi sends tags and claims in ascending order
def test_a_list_made_in_the_tables_order_would_show_it(monkeypatch, run_alignment, protocol):
    """The same secret permutations, of the table's order this time: the negative control."""
    in_the_tables_order = property(lambda ids: np.arange(len(ids)))
    monkeypatch.setattr("vfl_node.data.identifiers.Identifiers.canonical_order", in_the_tables_order)
    first, second, _ = in_other_order(run_alignment, protocol)
    assert all(one != other for one, other in zip(sent(first), sent(second), strict=True))


def introductions(run):
    return [next(m for m in spy.messages if isinstance(m, alignment_pb2.Remembered)) for spy in run.spies]


@EVERY
def test_the_mark_stands_for_the_set_of_identifiers_and_the_peer(run_alignment, protocol):
    """It tells that the identifiers are those of an earlier job with this peer, and nothing to another one."""

    def marks(ids_a, memories, **more):
        return [message.mark for message in introductions(run_alignment(protocol, ids_a, IDS_P, memories=memories, **more))]

    def memories(seed):
        return [MemoryOfOneRun(Randomness(bytes([seed, i]) * 16)) for i in range(2)]

    first = marks(IDS_A, memories(1))
    assert [len(mark) for mark in first] == [32, 32]
    assert first[0] != first[1]
    assert marks(IDS_A[::-1], memories(1), seed=9, job_id="later") == first
    changed = marks(IDS_A[1:], memories(1))
    assert (changed[0] != first[0], changed[1] == first[1]) == (True, True)
    assert not set(marks(IDS_A, memories(2))) & set(first)


@EVERY
def test_every_message_is_of_a_known_kind_and_every_row_an_element(run_alignment, groups, protocol):
    run = run_alignment(protocol, IDS_A, IDS_P, group=groups["curve25519"])
    allowed = {alignment_pb2.Remembered, alignment_pb2.SetSize, session_pb2.Rows, session_pb2.Chunk, session_pb2.RowsEnd}
    allowed.add(session_pb2.PhaseEnd)
    if protocol == "apsi":
        allowed.add(alignment_pb2.Obfuscation)
    if protocol == "upsi":
        allowed |= {alignment_pb2.TagsOffered, alignment_pb2.TagsWanted}
    assert {type(message) for spy in run.spies for message in spy.messages} == allowed
    for name, rows in run.lists.items():
        if name not in ("positions", "tags"):
            groups["curve25519"].decode(rows)


@EVERY
@pytest.mark.parametrize(
    ("n_a", "n_p", "shared"), [(0, 0, 0), (0, 3, 0), (3, 0, 0), (4, 4, 4), (4, 5, 0), (5, 2, 2), (20, 30, 11)]
)
def test_progress_ends_at_its_total(run_alignment, protocol, n_a, n_p, shared):
    ids = [b"%d" % i for i in range(n_a + n_p - shared)]
    run = run_alignment(protocol, ids[:n_a], ids[n_a - shared :])
    assert [p.done for p in run.progress] == [p.total for p in run.progress]


def test_domains_separate_the_protocols(run_alignment, toy_group):
    """The same identifier gives unrelated elements in each protocol, so lists of one say nothing about another."""
    tags = [f"vfl-node-v1-{protocol}-toy".encode() for protocol in ("psu", "psi", "apsi")]
    elements = {bytes(row) for tag in tags for row in toy_group.hash_to_group([b"x", b"y"], tag)}
    assert len(elements) == 6
    used = {"psu": ("step 3", "scalar 1"), "psi": ("step 1", "scalar"), "apsi": ("step 4", "k_w")}
    for protocol, (step, scalar) in used.items():
        run = run_alignment(protocol, [b"x", b"y"], [b"x"])
        unblinded = run.power(run.lists[step], toy_group.inverse(run.scalar("active", scalar)))
        assert {bytes(row) for row in unblinded} == {
            bytes(row) for row in toy_group.hash_to_group([b"x", b"y"], f"vfl-node-v1-{protocol}-toy".encode())
        }
