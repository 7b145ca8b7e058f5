"""PSI in pairs: Python's sets as oracle, one order for all, and what a party sees of those that it does not talk to."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alignment.test_costs import CountingGroup
from tests.alignment.worlds import NAMES, POSITION_BYTES, RAM, World
from vfl_node.alignment import stored
from vfl_node.alignment.alignment import PeerFacts
from vfl_node.alignment.lists import promises
from vfl_node.alignment.lists.columns import Column
from vfl_node.configuration.models import parse
from vfl_node.data.identifiers import Identifiers
from vfl_node.errors import PeerLost, PolicyError, ProtocolError, StateError
from vfl_node.execution.allowed import check_allowed
from vfl_node.execution.private import trial_settings
from vfl_node.job import Align, Job
from vfl_node.ledger import Disclosure
from vfl_node.settings.limits import Limits
from vfl_node.settings.node import Settings
from vfl_node.transport.generated.vfl.v1 import session_pb2

THREE = {
    "clinic": [b"%d" % i for i in range(12)],
    "lab": [b"%d" % i for i in range(4, 20)],
    "insurer": [b"%d" % i for i in range(0, 10, 2)] + [b"x", b"y"],
}


def aligned(sets: dict[str, list[bytes]], **how: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        return World(Path(folder), sets, **how).attempt()


IDS = st.lists(st.binary(min_size=1, max_size=1), unique=True, max_size=10)


@given(sets=st.lists(IDS, min_size=2, max_size=5), padding=st.sampled_from([0, 2]))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_equals_pythons_sets(sets: list[list[bytes]], padding: int) -> None:
    """For one to four passive parties."""
    of = dict(zip(NAMES, sets, strict=False))
    results = aligned(of, padding=padding)
    common = set.intersection(*map(set, sets))
    orders = {name: [of[name][row] for row in result.rows] for name, result in results.items()}
    assert all(order == orders["clinic"] for order in orders.values())
    assert sorted(orders["clinic"]) == sorted(common)
    for name, result in results.items():
        assert (result.protocol, result.ours) == ("psi-pairs", len(of[name]))
        assert tuple(result.peers) == tuple(other for other in of if other != name)
        assert not result.has_synthetic_rows
        for other, facts in result.peers.items():
            if "clinic" in (name, other):
                assert facts.intersection == len(set(of[name]) & set(of[other]))
                assert facts.records == len(of[other]) or (padding and facts.records > len(of[other]))
            else:
                assert (facts.records, facts.intersection) == (None, None)


def test_what_each_party_learns() -> None:
    results = aligned(THREE)
    in_all = Disclosure("intersection", 3, "which 3 of its own records all parties hold")
    assert results["clinic"].learnt == (
        Disclosure("set size", 16, "the number of lab's records: 16"),
        Disclosure("intersection", 8, "which 8 of its own 12 records are also held by lab"),
        Disclosure("set size", 7, "the number of insurer's records: 7"),
        Disclosure("intersection", 5, "which 5 of its own 12 records are also held by insurer"),
        in_all,
    )
    assert results["lab"].learnt == (
        Disclosure("set size", 12, "the number of clinic's records: 12"),
        Disclosure("intersection", 8, "which 8 of its own 16 records are also held by clinic"),
        in_all,
    )
    assert results["lab"].peers["insurer"] == PeerFacts(None, missing=0, learnt=(in_all,))
    assert results["clinic"].peers["lab"].learnt == results["lab"].learnt
    assert results["clinic"].union is None


def test_with_one_passive_party_it_tells_what_psi_tells() -> None:
    two = {name: THREE[name] for name in ("clinic", "lab")}
    result = aligned(two)["clinic"]
    assert result.union == 20
    assert [entry.what for entry in result.learnt] == ["set size", "intersection"]


def test_what_is_hidden_is_stored_and_read_as_hidden() -> None:
    lab = aligned(THREE)["lab"]
    read = stored.join_parts(*stored.parts(lab), ["clinic", "insurer"])
    assert read.peers == lab.peers


def view(sets: dict[str, list[bytes]], of: str = "lab") -> list[bytes]:
    """All that a passive party is sent, byte by byte."""
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        world = World(Path(folder), sets)
        assert not any(isinstance(result, Exception) for result in world.attempt().values())
        return [message.SerializeToString(deterministic=True) for message in world.sent["clinic", of]]


def test_a_passive_partys_view_depends_on_the_others_by_the_common_records_alone() -> None:
    """Another set of the insurer's, with the same records among those that the clinic and the lab share."""
    expected = view(THREE)
    other = THREE | {"insurer": [b"4", b"6", b"8", *(b"stranger %d" % i for i in range(20)), b"1", b"3"]}
    assert set(other["insurer"]) & set(THREE["clinic"]) != set(THREE["insurer"]) & set(THREE["clinic"])
    assert view(other) == expected


@pytest.mark.parametrize("insurer", [[b"4", b"6"], [b"4", b"6", b"9"]], ids=["fewer in common", "others in common"])
def test_a_passive_partys_view_shows_the_common_records(insurer: list[bytes]) -> None:
    """The control: whatever else the view hides, a change of these is in it."""
    assert view(THREE | {"insurer": insurer}) != view(THREE)


def test_the_order_is_not_that_of_the_active_partys_table() -> None:
    """The same job over a table in another order: every message is the same."""
    assert view(THREE | {"clinic": THREE["clinic"][::-1]}) == view(THREE)
    rows = aligned({name: [b"%d" % i for i in range(200)] for name in NAMES[:3]})["clinic"].rows
    assert abs(np.corrcoef(rows, np.arange(200))[0, 1]) < 0.3


def test_pairs_have_no_element_in_common(tmp_path: Path) -> None:
    """So a passive party could make nothing of another one's lists, even if it came by them."""
    world = World(tmp_path, dict.fromkeys(NAMES[:3], THREE["clinic"]))
    world.attempt()
    elements = {
        peer: {bytes(row) for path in (tmp_path / "clinic" / peer).glob("*.rows") for row in rows_of(path)}
        for peer in ("lab", "insurer")
    }
    assert all(len(of) >= 2 * len(THREE["clinic"]) for of in elements.values())
    assert not elements["lab"] & elements["insurer"]


def rows_of(path: Path) -> np.ndarray:
    column = Column(path.with_suffix(""), CountingGroup().width, 4)
    try:
        return np.array(column.rows)
    finally:
        column.close()


# ---- what a receiver checks


def changed(change: Any) -> Any:
    def positions(rows: Any) -> Any:
        return change(rows.view("<u4").reshape(-1).copy()).astype("<u4").view(np.uint8).reshape(-1, POSITION_BYTES)

    return positions


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda positions: np.where(np.arange(len(positions)) == 1, 8, positions), "E_ELEMENT"),  # of 8 shared with the lab
        (lambda positions: np.where(np.arange(len(positions)) == 1, 2**32 - 1, positions), "E_ELEMENT"),
        (lambda positions: np.where(np.arange(len(positions)) == 1, positions[0], positions), "E_DUPLICATE"),
        (lambda positions: np.arange(9), "E_COUNT"),
    ],
    ids=["beyond", "far beyond", "twice", "too many"],
)
def test_positions_that_are_none(tmp_path: Path, change: Any, code: str) -> None:
    error = World(tmp_path, THREE).attempt(positions=changed(change))["lab"]
    assert isinstance(error, ProtocolError)
    assert error.code == code
    assert "clinic" in error.message


def test_other_positions_in_a_later_attempt_are_refused(tmp_path: Path) -> None:
    """Each answer would tell the active party's choice of records apart from an earlier one."""
    world = World(tmp_path, THREE)
    world.attempt()
    error = world.attempt(positions=changed(lambda positions: positions[::-1]))["lab"]
    assert isinstance(error, StateError)
    assert error.code == "E_REPLAY"


# ---- restart


@functools.cache
def clean() -> tuple[dict[str, list[int]], dict[str, bytes], dict[str, int]]:
    """Rows, lists and how many messages each party sends, of a run that nothing disturbs."""
    with tempfile.TemporaryDirectory(dir=RAM) as folder:
        world = World(Path(folder), THREE)
        results = world.attempt()
        counts = {name: max(len(world.sent[name, peer]) for peer in world.parties.peers_of(name)) for name in THREE}
        return {name: result.rows.tolist() for name, result in results.items()}, world.stored(), counts


@pytest.mark.parametrize("name", THREE)
def test_cut_off_anywhere_it_ends_as_one_that_never_was(name: str) -> None:
    rows, lists, counts = clean()
    for left in range(counts[name]):
        with tempfile.TemporaryDirectory(dir=RAM) as folder:
            world = World(Path(folder), THREE)
            first = world.attempt(left={name: left})
            assert isinstance(first[name], ConnectionError)
            assert any(isinstance(result, PeerLost) for result in first.values())
            again = world.attempt()
            assert {one: result.rows.tolist() for one, result in again.items()} == rows
            assert world.stored() == lists


def test_a_finished_pair_is_not_sent_again(tmp_path: Path) -> None:
    """The insurer is killed in its pair, when that of the lab is whole: the lab's lists go over the wire once."""
    world = World(tmp_path, THREE)
    world.attempt(left={"insurer": 3})
    world.attempt()
    chunks = [message for message in world.sent["lab", "clinic"] if isinstance(message, session_pb2.Chunk)]
    assert not chunks
    assert any(isinstance(message, session_pb2.Chunk) for message in world.sent["insurer", "clinic"])


def test_another_set_in_a_later_attempt_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, THREE)
    world.attempt(left={"insurer": 3})
    world.sets = THREE | {"lab": [b"other %d" % i for i in range(len(THREE["lab"]))]}
    results = world.attempt()
    assert {getattr(results[name], "code", "") for name in ("clinic", "lab")} & {"E_REPLAY", "E_STATE_LOST"}


def test_what_an_earlier_job_hid_from_a_partner_stays_hidden(tmp_path: Path) -> None:
    """A union with dummies hid from two parties how many records they share: their pair is refused before any list leaves."""
    earlier = World(tmp_path / "earlier", {name: THREE[name] for name in ("clinic", "lab")}, "psu", dummies=2)
    earlier.attempt()
    world = World(tmp_path / "later", THREE)
    for name, other in (("clinic", "lab"), ("lab", "clinic")):
        world.memories[name][other] = earlier.memories[name][other]
    results = world.attempt()
    refused = [error for error in results.values() if isinstance(error, PolicyError)]
    assert {error.code for error in refused} == {"E_PROMISE"}
    assert not any(world.stored().values())


@pytest.mark.parametrize(("name", "other"), [("lab", "insurer"), ("clinic", "insurer")])
def test_nothing_leaves_if_any_pair_or_the_common_records_break_a_promise(tmp_path: Path, name: str, other: str) -> None:
    """The lab and the insurer have no conversation, but the common records tell one what the other holds."""
    world = World(tmp_path, THREE)
    identity, hiding = Identifiers.from_items(THREE[name]).digest(), Align(protocol="psu", dummies=2)
    promises.hold(world.memories[name][other], identity, hiding, "passive", binding=True)
    error = world.attempt()[name]
    assert isinstance(error, PolicyError)
    assert error.code == "E_PROMISE"
    assert not any(world.sent[name, peer] for peer in world.parties.peers_of(name))


# ---- off by default

JOB = "name: t\nparties: {active: clinic, passive: [lab, insurer]}\nalign: {protocol: psi-pairs}"


def node(policy: str = "{}") -> Settings:
    peers = "{clinic: {}, insurer: {relayed: true}}"
    text = f"{{name: lab, role: passive, insecure_loopback: true, listen: '127.0.0.1:0', peers: {peers}, policy: {policy}}}"
    return parse(text, Settings, source="settings")


def test_a_node_does_not_run_it_unless_its_owner_names_it() -> None:
    job = parse(JOB, Job, source="job")
    assert "psi-pairs" not in Limits().protocols
    with pytest.raises(PolicyError, match="aligns by psi-pairs, which this node's policy does not allow"):
        check_allowed(node(), job)
    check_allowed(node("{everyone: {protocols: [psi, psi-pairs]}}"), job)


def test_a_trial_of_one_owner_permits_it(tmp_path: Path) -> None:
    job = parse(JOB, Job, source="job")
    files = {name: tmp_path / f"{name}.csv" for name in job.parties.data}
    for settled in trial_settings(job, files).values():
        check_allowed(settled, job)


def test_dummies_are_not_for_it() -> None:
    with pytest.raises(ValueError, match=r"align\.dummies is for psu"):
        Align(protocol="psi-pairs", dummies=3)
