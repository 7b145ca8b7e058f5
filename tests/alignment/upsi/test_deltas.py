"""Lists that grow: what is sent, what is not, and what a party that cheats gets."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alignment.conftest import NAMES, ROLES, Spy
from tests.alignment.upsi.test_rice import tags_of
from tests.alignment.upsi.test_upsi import allowing, codes, of_kind
from tests.alignment.upsi.test_upsi import clock as clock
from tests.alignment.upsi.test_upsi import partners as partners
from vfl_node.alignment.upsi import served
from vfl_node.alignment.upsi.cached import CachedLists
from vfl_node.alignment.upsi.rice import RiceCode, TagList, sort_tags
from vfl_node.node.partner_upgrade import CLAIMED
from vfl_node.node.partners import Claim, accept_loss
from vfl_node.process import failpoints
from vfl_node.process.files import add_head
from vfl_node.session.pins import MemoryPins
from vfl_node.settings.limits import Limits, QueryLimits, tightest
from vfl_node.settings.policy import PRESETS
from vfl_node.transport.generated.vfl.v1 import alignment_pb2
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead

MANY = [b"%d" % i for i in range(260, 500)]
NEW = [b"new %d" % i for i in range(6)]
GROWN = sorted([*MANY, *NEW])  # in another order of the table
FEW = [*MANY[:20], *NEW[:3], b"nobody has this"]
DELTAS = allowing(deltas=True, per_day=None)


def coded(tags: np.ndarray, code: RiceCode) -> TagList:
    return code.decode(code.encode(tags[sort_tags(tags)]))


@given(st.integers(2, 90), st.integers(1, 30), st.integers(5, 9), st.integers(0, 2**32 - 1))
@settings(max_examples=80, deadline=None)
def test_a_list_into_which_tags_were_inserted_is_that_of_all(count: int, more: int, rest_bytes: int, seed: int) -> None:
    """The added tags travel in a code of their own, which tells them as exactly as the list does."""
    tags, others = tags_of(count, seed), tags_of(more, seed + 1)
    code = RiceCode(count, rest_bytes)
    whole = RiceCode(count + more, rest_bytes, code.upper_bits)
    held, added = coded(tags, code), coded(others, code.code_added(more))
    assert added.code.tag_bits == code.tag_bits
    both = np.concatenate([tags, others])
    assert held.insert(added.tags, held.place(added.tags)) == whole.encode(both[sort_tags(both)])
    assert code.count_in(code.size) == count
    assert [code.count_in(code.size + other) for other in (-1, 1)] != [count, count]


def test_a_delta_is_small() -> None:
    """1,000 tags that come to a million: docs/reference/benchmarks/upsi.md."""
    code = RiceCode(1_001_000, 7).code_added(1000)
    assert (code.rest_bytes, code.upper_bits, code.size) == (8, 12, 8_637)
    assert max(RiceCode(n, r).code_added(d).size / d for n in (900, 10**6, 10**7) for r in (7, 8, 9) for d in (1, 9, 800)) < 45


@pytest.fixture
def ask(run_alignment, partners, tmp_path):
    """One more job of both, whose server has these records."""
    number = iter(range(1, 100))

    def play(many, few=FEW, limits=DELTAS, **more):
        job = next(number)
        given = {"memories": partners(), "cached": tmp_path / "c", "job_id": f"job-{job}", "seed": job, "limits": limits}
        return run_alignment("upsi", few, many, **(given | more))

    return play


def sent(run):
    return next((name for name in ("tags", "added") if name in run.lists), "")


def offered(run):
    (offer,) = of_kind(run, alignment_pb2.TagsOffered)
    return offer


def shared(run, many, few=FEW):
    """The shared records; those of both are the same."""
    assert codes(run) == {"active": "", "passive": ""}
    found = [few[row] for row in run.active.rows]
    assert found == [many[row] for row in run.passive.rows]
    return set(found)


def learnt(run):
    return {entry.what: entry.count for entry in run.active.learnt}


def test_only_the_added_tags_are_sent(ask, toy_group):
    first, second, third = ask(MANY), ask(GROWN), ask(GROWN[::-1])
    assert [sent(run) for run in (first, second, third)] == ["tags", "added", ""]
    assert shared(first, MANY) == {*FEW} & {*MANY}
    assert shared(second, GROWN) == shared(third, GROWN[::-1]) == {*FEW} & {*GROWN}
    assert offered(first).name == offered(second).name == offered(third).name
    assert second.lists["added"].size < first.lists["tags"].size / 10
    assert [learnt(run).get("added tags") for run in (first, second, third)] == [None, len(NEW), None]
    assert learnt(second)["added tags"] == {entry.what: entry.count for entry in second.passive.peer.learnt}["added tags"]
    assert [progress.done for progress in second.progress] == [progress.total for progress in second.progress]


def test_it_tells_which_ids_asked_before_have_come_since(ask, tmp_path):
    """What the owner must want: the answer of an earlier job finds an id in a later list. Without deltas it does not."""
    for limits, found in ((DELTAS, 1), (allowing(per_day=None), 0)):
        first, later = ask(MANY, few=[NEW[0]], limits=limits), ask(GROWN, few=[MANY[0]], limits=limits)
        assert [len(run.active) for run in (first, later)] == [0, 1]
        r = first.group.draw(first.secrets["active"][0].derive("r"))
        point = first.power(first.lists["answer"], first.group.inverse(r))
        code = RiceCode(len(GROWN), offered(later).rest_bytes)
        tags = code.decode(kept_list(tmp_path, later).read_bytes()[-code.size :])
        assert len(tags.find(served.hash_points(point, b"vfl-node-v1-upsi-tag-toy"))[0]) == found


def kept_list(folder, run):
    """What the party that asks keeps."""
    return folder / "c" / "active" / f"{NAMES[1]}-{offered(run).epoch}-{offered(run).name.hex()}"


def test_no_list_keeps_its_key_from_which_an_id_has_gone(ask):
    """Nor does an earlier one come again: each is under another key, and has no point in common with any other."""
    tables = (MANY, GROWN, MANY, GROWN, [*MANY[1:], *NEW], MANY[:200], [*MANY[:200], *NEW])
    runs = [ask(many) for many in tables]
    assert [sent(run) for run in runs] == ["tags", "added", "tags", "added", "tags", "tags", "added"]
    for run, many in zip(runs, tables, strict=True):
        assert shared(run, many) == {*FEW} & {*many}
    names = [offered(run).name for run in runs]
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert names[5] == names[6]
    assert len(set(names)) == 4
    points = {name: {bytes(row) for run in runs if offered(run).name == name for row in run.lists["claim"]} for name in names}
    assert len(set.union(*points.values())) == sum(map(len, points.values()))


@pytest.mark.parametrize(
    ("many", "more"),
    [
        ([*MANY, *(b"n%d" % i for i in range(17))], {}),  # 257 need tags that are a bit longer
        ([*MANY[:100], *(b"n%d" % i for i in range(21))], {}),  # more than a fifth
        (GROWN, {"padding": 1}),  # whose ids are drawn for each set
        (GROWN, {"limits": allowing(per_day=None)}),  # as by default
    ],
)
def test_what_is_no_small_growth_is_another_list(ask, many, more):
    first = ask(MANY[:100] if len(many) == 121 else MANY, **more)
    later = ask(many, **more)
    assert sent(first) == sent(later) == "tags"
    assert offered(first).name != offered(later).name
    assert not {bytes(row) for row in first.lists["claim"]} & {bytes(row) for row in later.lists["claim"]}
    assert "added tags" not in learnt(later)


def test_a_key_period_ends_for_lists_that_grow_too(ask, clock):
    first = ask(MANY)
    clock(31)
    later = ask(GROWN)
    assert [offered(run).epoch for run in (first, later)] == [1, 2]
    assert sent(later) == "tags"
    assert not {bytes(row) for row in first.lists["claim"]} & {bytes(row) for row in later.lists["claim"]}


def test_a_party_that_lacks_a_state_gets_all_since_its_own_or_the_whole(ask, tmp_path):
    """And the server keeps which tag came when."""
    first = ask(MANY)
    kept, before = kept_list(tmp_path, first), kept_list(tmp_path, first).read_bytes()
    assert sent(ask([*MANY, *NEW[:2]])) == "added"
    newest = ask(GROWN)
    assert newest.lists["added"].size < 2 * newest.group.width * 10
    after = kept.read_bytes()
    kept.write_bytes(before)
    assert learnt(again := ask(GROWN))["added tags"] == len(NEW)
    assert kept.read_bytes() == after
    kept.unlink()
    assert sent(ask(GROWN)) == "tags"
    assert kept.read_bytes() == after
    assert shared(again, GROWN) == {*FEW} & {*GROWN}


def test_it_is_off_unless_the_owner_says_so():
    assert not any(limits.queries_per_peer.deltas for limits in (Limits(), *PRESETS.values()))
    both = [Limits(queries_per_peer=QueryLimits(deltas=deltas)) for deltas in (True, False)]
    assert not tightest(both).queries_per_peer.deltas
    assert not tightest(both[::-1]).queries_per_peer.deltas


# A job that is killed, and jobs at once.


class Killed(ConnectionError):
    """In place of SIGKILL; tests/node has that."""


def dies(*given, **more):
    raise Killed


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("place", ["write", "rename", "after"])
def test_a_kept_list_is_the_old_one_or_the_new_one_wherever_its_party_is_killed(
    ask, folders, tmp_path, monkeypatch, role, place
):
    """And the next attempt sends what the first one did, or would have."""
    ask(MANY)
    lists = {path: path.read_bytes() for path in (tmp_path / "c" / role).rglob("*") if path.is_file()}
    held = {"job_id": "killed", "seed": 50, "folders": folders, "pins": [MemoryPins(), MemoryPins()]}
    original = CachedLists.write

    def write(self, data, *given):
        if f"/{role}" not in str(self._place("")) or (role == "active") != ("served" not in str(self._place(""))):
            return original(self, data, *given)
        if place == "after":
            original(self, data, *given)
            raise Killed
        with monkeypatch.context() as inner:
            inner.setattr(failpoints, "reach", lambda name: dies() if name == place else None)
            return original(self, data, *given)

    with monkeypatch.context() as patch:
        patch.setattr(CachedLists, "write", write)
        first = ask(GROWN, **held)
    assert isinstance(getattr(first, role), Killed)
    for path, data in lists.items():
        assert (path.read_bytes() == data) == (place != "after"), path
    second = ask(GROWN, **held)
    assert shared(second, GROWN) == {*FEW} & {*GROWN}
    assert learnt(second)["added tags"] == len(NEW)
    assert offered(second) == offered(ask(GROWN))
    if "added" in first.lists and "added" in second.lists:
        np.testing.assert_array_equal(first.lists["added"], second.lists["added"])
    assert not [*tmp_path.rglob("*.tmp")]


@pytest.mark.parametrize("meanwhile", [[*MANY, *NEW[:2]], MANY[:200], [*MANY, b"another"]])
def test_a_job_goes_on_with_no_list_but_its_own(ask, folders, meanwhile):
    """What it has computed is of the ids that came to the list as it was, and under that key."""
    ask(MANY)
    held = {"job_id": "killed", "seed": 50, "folders": folders, "pins": [MemoryPins(), MemoryPins()]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CachedLists, "write", dies)
        assert isinstance(ask(GROWN, **held).passive, Killed)
    assert codes(ask(meanwhile)) == {"active": "", "passive": ""}
    late = ask(GROWN, **held)
    assert late.passive.code == "E_EPOCH"
    assert not late.lists
    fresh = ask(GROWN)
    assert shared(fresh, GROWN) == {*FEW} & {*GROWN}


def test_of_two_jobs_that_grow_a_list_at_once_one_is_refused(ask, tmp_path, monkeypatch):
    """Else each would offer a list which lacks an id of the other's, under one key."""
    first = ask(MANY)
    (file,) = (tmp_path / "c" / "passive" / "served").glob("*.grown")
    before = file.read_bytes()
    assert codes(ask([*MANY, b"another"])) == {"active": "", "passive": ""}
    other = file.read_bytes()
    file.write_bytes(before)
    original = served._grow

    def grow(*given):
        file.write_bytes(other)
        return original(*given)

    with monkeypatch.context() as patch:
        patch.setattr(served, "_grow", grow)
        refused = ask(GROWN)
    assert refused.passive.code == "E_EPOCH"
    assert not of_kind(refused, alignment_pb2.TagsOffered)
    later = ask(GROWN)
    assert offered(later).name != offered(first).name
    assert sent(later) == "tags"


def test_after_an_accepted_loss_no_list_grows(ask, partners, clock):
    """Nobody knows to what it had grown. It counts as all ids, so nothing is offered until the key period has ended."""
    ask(MANY)
    server = partners()[1]
    Claim(server.folder / CLAIMED, server.lane.lock).write(LedgerHead(entries=99, link=bytes(32)))
    accept_loss(server)
    clock(29.9)
    refused = ask(GROWN)
    assert refused.passive.code == "E_BUDGET"
    assert not of_kind(refused, alignment_pb2.TagsOffered)
    clock(30.1)
    later = ask(GROWN)
    assert (sent(later), offered(later).epoch) == ("tags", 2)


# A party that cheats, and files that were changed.


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: np.concatenate([rows[:-2], rows[-2:] ^ 1]),
        lambda rows: rows[::-1],
        lambda rows: np.zeros_like(rows),
        lambda rows: np.full_like(rows, 255),
    ],
)
def test_a_server_that_sends_other_tags_than_it_offers_changes_nothing(ask, tmp_path, change):
    kept = kept_list(tmp_path, ask(MANY))
    before = kept.read_bytes()
    refused = ask(GROWN, change={"added": change})
    assert refused.active.code in ("E_CACHE", "E_ELEMENT")
    assert kept.read_bytes() == before
    assert "query" not in refused.lists
    assert shared(ask(GROWN), GROWN) == {*FEW} & {*GROWN}


def test_a_server_that_sends_more_added_tags_than_it_announces_is_refused(ask):
    ask(MANY)
    for change in (lambda rows: np.concatenate([rows, rows[:1]]), lambda rows: rows[:-1]):
        assert ask(GROWN, change={"added": change}).active.code == "E_COUNT"


def test_a_server_that_offers_a_kept_list_as_a_shorter_or_another_one_is_refused(ask, monkeypatch):
    ask(MANY)
    ask(GROWN)
    longest = offered(ask(GROWN))
    plain = Spy.send

    async def send(self, message):
        if isinstance(message, alignment_pb2.TagsOffered):
            message.name = longest.name
        await plain(self, message)

    monkeypatch.setattr(Spy, "send", send)
    for many in (MANY, [*MANY, *NEW[:-1], b"another"]):
        assert ask(many).active.code == "E_CACHE"


@pytest.mark.parametrize(
    ("held", "digest"),
    [(240, bytes(32)), (239, None), (246, None), (1, None), (2**32 - 1, None), (240, b""), (246, hashlib.sha256(b"").digest())],
)
def test_a_party_that_claims_to_hold_what_was_never_sent_gets_nothing(ask, monkeypatch, held, digest):
    """It learns only what it has been told already: it must know the digest of an earlier state."""
    first = ask(MANY)
    plain = Spy.send

    async def send(self, message):
        if isinstance(message, alignment_pb2.TagsWanted):
            message.held, message.sha256 = held, offered(first).sha256 if digest is None else digest
        await plain(self, message)

    monkeypatch.setattr(Spy, "send", send)
    refused = ask(GROWN)
    assert refused.passive.code == "E_CACHE"
    assert "added" not in refused.lists


@pytest.mark.parametrize("change", ["bit", "another list", "cut"])
def test_a_kept_list_that_changed_does_not_grow(ask, tmp_path, change):
    kept = kept_list(tmp_path, ask(MANY))
    whole = kept.read_bytes()
    other = RiceCode(len(MANY), 7).encode(tags_of(len(MANY))[sort_tags(tags_of(len(MANY)))])
    kept.write_bytes(
        {"bit": whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:], "another list": add_head(other), "cut": whole[:-1]}[change]
    )
    assert len(add_head(other)) == len(whole)
    run = ask(GROWN)
    assert "E_CACHE" in codes(run).values()
    kept.unlink()
    assert sent(ask(GROWN)) == "tags"


def test_a_served_list_that_changed_is_refused_and_its_key_is_never_used_again(ask, tmp_path):
    first = ask(MANY)
    (file,) = (tmp_path / "c" / "passive" / "served").glob("*.grown")
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
    assert ask(GROWN).passive.code == "E_CACHE"
    file.unlink()
    later = ask(GROWN)
    assert (sent(later), offered(later).name == offered(first).name) == ("tags", False)
    assert file.stat().st_mode & 0o777 == 0o600
