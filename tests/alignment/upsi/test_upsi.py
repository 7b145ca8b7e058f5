"""A few ids are asked about at a party with many: who is shared, who can claim it, and what counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from tests.alignment.conftest import ANY_SIZE, NAMES, ROLES, Spy
from tests.alignment.test_costs import CountingGroup
from vfl_node.alignment.plan import plan_of
from vfl_node.alignment.upsi import protocol, served
from vfl_node.alignment.upsi.epochs import current_epoch
from vfl_node.alignment.upsi.rice import RiceCode, hash_points
from vfl_node.configuration.models import parse
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PeerError, PolicyError, ProtocolError, StateError, UsageError
from vfl_node.job import Align, Job
from vfl_node.node.ledgers import describe
from vfl_node.node.partners import Partner
from vfl_node.process.files import add_head
from vfl_node.session.memory import MemoryOfOneRun
from vfl_node.session.pins import MemoryPins
from vfl_node.session.questions import AskedIds, count_uses
from vfl_node.settings.limits import Limits, QueryLimits
from vfl_node.transport.generated.vfl.v1 import alignment_pb2

FEW, MANY = [b"%d" % i for i in range(30)], [b"%d" % i for i in range(20, 300)]
SHARED = sorted({*FEW} & {*MANY})
WAYS = (("answers", b"one list"), ("answers", b"another"), ("asks", b"one list"))
SERVES = pytest.mark.parametrize("server", ROLES)


def allowing(**limits):
    return ANY_SIZE.model_copy(update={"queries_per_peer": QueryLimits(**limits)})


def of_kind(run, kind):
    return [message for spy in run.spies for message in spy.messages if isinstance(message, kind)]


def codes(run):
    """Role → code of the error with which it ended; empty: none."""
    return {role: getattr(getattr(run, role), "code", "") for role in ROLES}


@pytest.fixture
def partners(tmp_path):
    """What both nodes remember of each other, on the disk; the same again at each call."""

    def opened():
        return [Partner(tmp_path / name, other) for name, other in zip(NAMES, reversed(NAMES), strict=True)]

    return opened


@pytest.fixture
def clock(monkeypatch):
    """Both nodes' calendar: ``clock(days)`` sets it so many days after a first day."""

    def put(days):
        moment = datetime(2027, 1, 1, tzinfo=timezone.utc) + timedelta(days=days)
        for module in ("vfl_node.alignment.upsi.epochs", "vfl_node.node.counts", "vfl_node.trust.lanes"):
            monkeypatch.setattr(f"{module}.utc_now", lambda: moment.isoformat(timespec="seconds"))

    put(0)
    return put


@SERVES
@pytest.mark.parametrize("seed", range(6))
def test_the_shared_records_are_those_of_psi(run_alignment, seed, server):
    draw = np.random.default_rng(seed)
    few, many = (
        [b"%d" % i for i in draw.choice(500, size, replace=False)] for size in (draw.integers(0, 90), draw.integers(200, 290))
    )
    ids = {server: many, "passive" if server == "active" else "active": few}
    run = run_alignment("upsi", ids["active"], ids["passive"], server=server, seed=seed + 1)
    psi = run_alignment("psi", ids["active"], ids["passive"])
    rows = {role: getattr(run, role).rows for role in ROLES}
    assert [ids["active"][row] for row in rows["active"]] == [ids["passive"][row] for row in rows["passive"]]
    for role in ROLES:
        other = getattr(psi, role)
        np.testing.assert_array_equal(np.sort(rows[role]), np.sort(other.rows))
        assert getattr(run, role).peer.records == other.peer.records
        assert getattr(run, role).union == other.union


@SERVES
def test_counts_are_those_of_a_run(run_alignment, tmp_path, server):
    ids = {server: MANY, "passive" if server == "active" else "active": FEW}
    groups, folders = [CountingGroup(), CountingGroup()], [tmp_path / role for role in ROLES]
    run = run_alignment("upsi", ids["active"], ids["passive"], groups=groups, folders=folders, server=server)
    plan, sizes = plan_of(Align(protocol="upsi", server=server).spec), (len(ids["active"]), len(ids["passive"]))
    counts, stages = plan.counts(*sizes, len(SHARED)), plan.stages(*sizes, len(SHARED))
    for role, group, spy, folder, progress in zip(ROLES, groups, run.spies, folders, run.progress, strict=True):
        assert (group.hashes, group.powered, group.decoded) == (counts.hashes[role], counts.powers[role], counts.received[role])
        assert sum(len(rows) for name, rows in spy.lists.items() if name != "tags") == counts.sent[role]
        stored = sum(file.stat().st_size for file in folder.glob("*.rows") if file.stem != "tags")
        assert stored == counts.spilled[role] * group.width
        assert progress.done == progress.total == plan.most(*sizes).powers[role]
        for kind in ("hashes", "powers", "sent", "received", "spilled"):
            assert sum(getattr(stage, kind)[role] for stage in stages) == getattr(counts, kind)[role]
    size = plan.bytes_beside(*sizes)[server]
    assert size <= run.lists["tags"].size < size + groups[0].width


def test_the_same_ids_are_asked_by_other_elements_in_each_job(run_alignment, tmp_path):
    """And the list is sent once: in the first job."""
    memories = [MemoryOfOneRun(Randomness(bytes([i]) * 32)) for i in range(2)]
    runs = [
        run_alignment("upsi", FEW, MANY, memories=memories, cached=tmp_path, job_id=f"job-{seed}", seed=seed) for seed in (1, 2)
    ]
    first, second = runs
    assert ("tags" in first.lists, "tags" in second.lists) == (True, False)
    assert not {bytes(row) for row in first.lists["query"]} & {bytes(row) for row in second.lists["query"]}
    np.testing.assert_array_equal(first.lists["claim"], second.lists["claim"])
    np.testing.assert_array_equal(first.active.rows, second.active.rows)
    assert [p.done for p in second.progress] == [p.total for p in second.progress]
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) == 3
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)


# Claims.


def _flip(rows):
    changed = rows.copy()
    changed[0, 0] ^= 1
    return _ascend(changed)


def _ascend(rows):
    return rows[np.lexsort(rows.T[::-1])]


@pytest.mark.parametrize("group", ["toy", "curve25519"])
def test_a_forged_claim_is_refused(run_alignment, groups, group):
    """An id never asked about, by its hash or by a power of it; one bit of a true point."""
    group = groups[group]
    unasked = group.hash_to_group([MANY[-1]], f"vfl-node-v1-upsi-{group.name}".encode())
    forged = {
        "its hash": lambda rows: _ascend(np.concatenate([rows[:-1], unasked])),
        "a power of it": lambda rows: _ascend(np.concatenate([rows[:-1], group.block_powers(unasked, 2**254 + 8)])),
        "a bit": _flip,
        "all tags": lambda rows: _ascend(group.hash_to_group([b"%d" % i for i in range(len(rows))], b"anything")),
    }
    for what, change in forged.items():
        run = run_alignment("upsi", FEW, MANY, group=group, change={"claim": change})
        assert isinstance(run.passive, ProtocolError), what
        assert run.passive.code == "E_CLAIM" or (what == "a bit" and run.passive.code == "E_ELEMENT")
        assert isinstance(run.active, PeerError)
    assert len(run_alignment("upsi", FEW, MANY, group=group, change={"claim": _ascend}).passive) == len(SHARED)


def test_a_claim_by_tags_could_be_forged(run_alignment, groups):
    """The control: whoever has the list has all tags, so a server that takes tags grants every record unasked."""
    group = groups["curve25519"]
    run = run_alignment("upsi", FEW, MANY, group=group)
    code = RiceCode(len(MANY), 7)
    tags = code.decode(run.lists["tags"].tobytes()[: code.size])
    upper = np.repeat(np.arange(len(tags.ends)), np.diff(tags.ends.astype(np.int64), prepend=0))
    texts = [int(high) << 56 | int.from_bytes(rest.tobytes(), "big") for high, rest in zip(upper, tags.rests, strict=True)]
    shift = 128 - code.tag_bits
    read = np.array([[text << shift >> 64, text << shift & (2**64 - 1)] for text in texts], dtype=np.uint64)
    assert set(tags.find(read)[1]) == set(range(len(MANY)))  # a server that looks up tags
    as_points = np.zeros((len(read), 32), dtype=np.uint8)
    as_points[:, :16] = read.astype(">u8").view(np.uint8).reshape(-1, 16)
    assert len(tags.find(hash_points(as_points, f"vfl-node-v1-upsi-tag-{group.name}".encode()))[0]) == 0  # this one


def test_a_claim_of_a_made_up_id_of_the_padding_is_refused(run_alignment, groups, monkeypatch):
    """Nobody can ask for one. Here the party that asks is told what it is."""
    group, covers = groups["toy"], []
    original = protocol.add_cover

    def told(*given):
        covers.append(original(*given))
        return covers[-1]

    monkeypatch.setattr(protocol, "add_cover", told)
    seed = {"group": group, "padding": 1, "seed": 3}
    run_alignment("upsi", FEW, MANY, **seed)
    made_up = [bytes(id_) for id_ in covers[-1]][len(MANY) :]
    assert made_up
    run = run_alignment("upsi", [*FEW, *made_up[:5]], MANY, **seed)
    assert run.passive.code == "E_CLAIM"


def test_tags_that_are_equal_by_accident_align_nothing(run_alignment, monkeypatch):
    """With tags of 18 bits in place of 66 some of 1,500 ids are found that the server lacks."""
    monkeypatch.setattr(protocol, "SAFE_BITS", -10)
    few, many = [b"f%d" % i for i in range(1500)], [b"m%d" % i for i in range(1000)]
    run = run_alignment("upsi", few + many[:3], many, limits=allowing(per_day=None, per_epoch=1 << 18))
    assert len(run.lists["tags"]) * 10 < 2100
    assert (run.passive.code, isinstance(run.active, PeerError)) == ("E_CLAIM", True)
    # Without such accidents the same short tags give the right rows.
    run = run_alignment("upsi", many[:3], many, limits=allowing(per_day=None, per_epoch=1 << 18))
    assert [many[row] for row in run.passive.rows] == [many[:3][row] for row in run.active.rows]


def test_equal_tags_of_the_list_are_told_apart_by_points(run_alignment, monkeypatch):
    """Two records of the server have the same tag; the claimed point says which of them is meant."""
    for module in (protocol, served):
        monkeypatch.setattr(module, "hash_points", lambda points, domain: np.zeros((len(points), 2), dtype=np.uint64))
    run = run_alignment("upsi", MANY[:40], MANY[:40])
    assert [MANY[row] for row in run.passive.rows] == [MANY[row] for row in run.active.rows]
    assert len(run.passive) == 40


# What counts.


def test_ids_count_over_jobs_until_none_is_answered(run_alignment, partners, tmp_path, clock):
    limits = allowing(per_day=70, per_epoch=100)

    def ask(number, ids, **more):
        return run_alignment(
            "upsi", ids, MANY, memories=partners(), cached=tmp_path / "c", job_id=f"job-{number}", limits=limits
        )

    assert [codes(ask(number, FEW)) for number in range(2)] == [{"active": "", "passive": ""}] * 2
    refused = ask(3, FEW)  # 60 of 70 are used today
    assert isinstance(refused.active, PolicyError)
    assert refused.active.code == "E_BUDGET"
    assert "60 of 70 ids are used in a day, and this job asks about 30" in refused.active.message
    assert not {"tags", "query", "answer"} & refused.lists.keys()
    assert codes(ask(4, FEW[:10])) == {"active": "", "passive": ""}  # 10 are left
    clock(1.5)
    assert codes(ask(5, FEW)) == {"active": "", "passive": ""}
    clock(3)
    late = ask(6, FEW[:1])  # 100 of 100 within 30 days
    assert "100 of 100 ids are used in 30 days" in late.active.message
    clock(30.5)
    assert codes(ask(7, FEW[:1])) == {"active": "", "passive": ""}


def test_the_server_counts_whatever_the_other_one_does(run_alignment, partners, tmp_path):
    """The party that asks may have forgotten what it asked about."""
    forgetful = [MemoryOfOneRun(Randomness(bytes(32))), partners()[1]]
    limits = allowing(per_day=50)

    def ask(number):
        return run_alignment(
            "upsi", FEW, MANY, memories=forgetful, cached=tmp_path / "c", job_id=f"job-{number}", limits=limits
        )

    assert codes(ask(1)) == {"active": "", "passive": ""}
    refused = ask(2)
    assert refused.passive.code == "E_BUDGET"
    assert "answer" not in refused.lists
    assert isinstance(refused.active, PeerError)


def test_an_attempt_that_was_killed_counts_once_and_sends_the_same_bytes(run_alignment, partners, tmp_path, folders, toy_group):
    async def break_off(channel, rows, start):
        raise ConnectionError("killed")

    pins = [MemoryPins(), MemoryPins()]
    held = {"memories": partners(), "cached": tmp_path / "c", "folders": folders, "pins": pins, "limits": allowing(per_day=40)}
    first = run_alignment("upsi", FEW, MANY, instead={"answer": break_off}, **held)
    assert isinstance(first.passive, ConnectionError)
    counted = partners()[1].lane.list("question")
    assert [entry.body["lines"]["queries"][0][:15] for entry in counted] == ["30 job answers "]
    assert describe(counted[0], NAMES[0]) == f"job job answers {NAMES[0]} about 30 ids"
    answered = (folders[1] / "answer.rows").read_bytes()
    assert len(answered) == len(FEW) * toy_group.width
    again = run_alignment("upsi", FEW, MANY, **held)
    assert codes(again) == {"active": "", "passive": ""}
    assert again.lists["answer"].tobytes() == answered
    assert len(partners()[1].lane.list("question")) == len(partners()[0].lane.list("question")) == 1


def test_it_is_counted_on_the_disk_before_anything_is_answered(run_alignment, partners, tmp_path):
    """At the moment of the answer another process finds the count."""
    seen = []

    async def look(channel, rows, start):
        seen.extend(entry.body["lines"]["queries"][0][:15] for entry in partners()[1].lane.list("question"))
        await super(type(channel), channel).send_rows(rows, count=len(rows), width=rows.shape[1], start=start)

    run = run_alignment("upsi", FEW, MANY, memories=partners(), instead={"answer": look})
    assert (codes(run), seen) == ({"active": "", "passive": ""}, ["30 job answers "])


def test_an_accepted_loss_counts_as_all_ids(partners, clock):
    questions, lost = AskedIds("job", 1, QueryLimits(), "answers"), {"loss 3-abcd": "2027-01-01T00:00:00+00:00"}
    with pytest.raises(PolicyError, match="2,000 of 2,000"):
        questions.check(lost, "lab", "2027-01-01T12:00:00+00:00")
    with pytest.raises(PolicyError, match="50,000 of 50,000"):
        questions.check(lost, "lab", "2027-01-12T12:00:00+00:00")
    questions.check(lost, "lab", "2027-02-12T12:00:00+00:00")


def test_another_list_under_the_same_id_counts_and_each_way_by_itself():
    """As after an old backup, by which the index knows a job no more: what was counted is of one list alone."""
    one, other, own = (AskedIds("job", 30, QueryLimits(per_day=40), way, about) for way, about in WAYS)
    lines = {one.line: "2027-01-01T00:00:00+00:00"}
    now = "2027-01-01T01:00:00+00:00"
    one.check(lines, "lab", now)
    replace(one, about=b"").check(lines, "lab", now)  # a later attempt, before its list has come
    with pytest.raises(PolicyError, match="30 of 40"):
        other.check(lines, "lab", now)
    own.check(lines, "lab", now)  # this node asks, too
    late = "2027-02-01T01:00:00+00:00"
    bound = replace(other, count=1, allowed=QueryLimits(per_day=None, per_epoch=30))
    bound.check(lines, "lab", late)
    with pytest.raises(PolicyError, match="30 of 30"):  # still the key with which the first ones were answered
        replace(bound, since="2027-01-01T00:00:00+00:00").check(lines, "lab", late)


def test_what_is_used_is_told_by_way_and_period_as_it_is_refused():
    """``free``: the day on which one more fits."""
    asked, answered = (
        AskedIds(f"job-{n}", n, QueryLimits(per_day=40, per_epoch=60), way) for n, way in ((25, "asks"), (10, "answers"))
    )
    lines = {
        asked.line: "2027-01-01T00:00:00+00:00",
        replace(asked, job_id="b").line: "2027-01-03T12:00:00+00:00",
        replace(asked, job_id="c", count=15).line: "2027-01-03T18:00:00+00:00",
        answered.line: "2027-01-03T00:00:00+00:00",
    }
    now = "2027-01-03T20:00:00+00:00"
    uses = count_uses(lines, "asks", asked.allowed, now)
    assert {per: (use.used, use.most) for per, use in uses.items()} == {"day": (40, 40), "epoch": (65, 60)}
    assert [str(use.free) for use in uses.values()] == ["2027-01-04", "2027-01-31"]
    assert {per: use.used for per, use in count_uses(lines, "answers", asked.allowed, now).items()} == {"day": 10, "epoch": 10}
    lines["loss 3-abcd"] = "2027-01-03T13:00:00+00:00"
    assert count_uses(lines, "answers", asked.allowed, now)["day"].left < 0
    with pytest.raises(PolicyError):
        replace(answered, job_id="d", count=1).check(lines, "lab", now)


# Keys and what is kept.


def test_a_key_lasts_for_an_epoch(run_alignment, partners, tmp_path, clock):
    def ask(number):
        run = run_alignment(
            "upsi", FEW, MANY, memories=partners(), cached=tmp_path, job_id=f"job-{number}", seed=number, limits=allowing()
        )
        assert codes(run) == {"active": "", "passive": ""}
        return run

    runs = []
    for number, days in enumerate((0, 29, 31, 60), start=1):
        clock(days)
        runs.append(ask(number))
    assert [offer.epoch for run in runs for offer in of_kind(run, alignment_pb2.TagsOffered)] == [1, 1, 2, 2]
    assert ["tags" in run.lists for run in runs] == [True, False, True, False]
    first, _, third, _ = runs
    assert not {bytes(row) for row in first.lists["claim"]} & {bytes(row) for row in third.lists["claim"]}
    assert {path.name.split("-")[1] for path in tmp_path.rglob("*") if path.is_file() and path.name.startswith(NAMES)} == {"2"}
    kept = partners()[1].recall("upsi-epoch")
    assert b'"number": 2' in kept
    assert (partners()[1].folder / "upsi-epoch.kept").stat().st_mode & 0o777 == 0o600


def test_the_key_of_an_attempt_is_that_of_the_first_one(run_alignment, partners, tmp_path, clock, folders):
    async def break_off(channel, rows, start):
        raise ConnectionError("killed")

    held = {"cached": tmp_path / "c", "folders": folders, "pins": [MemoryPins(), MemoryPins()], "limits": allowing()}
    run_alignment("upsi", FEW, MANY, memories=partners(), instead={"query": break_off}, **held)
    clock(31)
    late = run_alignment("upsi", FEW, MANY, memories=partners(), **held)
    assert isinstance(late.passive, StateError)
    assert late.passive.code == "E_EPOCH"
    assert "answer" not in late.lists
    fresh = run_alignment("upsi", FEW, MANY, memories=partners(), cached=tmp_path / "c", job_id="fresh", limits=allowing())
    assert len(fresh.active) == len(SHARED)  # no tag of the old key is in the list of the new one


def test_a_job_that_begins_two_epochs_draws_two_keys(partners, clock):
    seeds = []
    for days in (0, 31, 62):
        clock(days)
        seeds.append(current_epoch(partners()[1], Randomness(b"one job".ljust(32)), 30).seed)
    assert len(set(seeds)) == 3


def test_another_set_of_the_server_has_another_key_and_the_same_count(run_alignment, partners, tmp_path):
    """A key for each set: two lists of one epoch have nothing in common, although the sets almost do."""
    lists = []
    for number, many in enumerate((MANY, [*MANY, b"new"], MANY)):
        run = run_alignment(
            "upsi", FEW, many, memories=partners(), cached=tmp_path / "c", job_id=f"job-{number}", limits=allowing(per_day=80)
        )
        lists.append(run)
    first, second, third = lists
    assert not {bytes(row) for row in first.lists["claim"]} & {bytes(row) for row in second.lists["claim"]}
    assert third.active.code == "E_BUDGET"  # of 80 ids 60 are used
    assert [offer.epoch for run in lists for offer in of_kind(run, alignment_pb2.TagsOffered)] == [1, 1]


def test_a_lost_key_is_no_new_one(run_alignment, partners, tmp_path):
    ask = {"cached": tmp_path / "c", "limits": allowing()}
    run_alignment("upsi", FEW, MANY, memories=partners(), **ask)
    (partners()[1].folder / "upsi-epoch.kept").unlink()
    assert run_alignment("upsi", FEW, MANY, memories=partners(), job_id="later", **ask).passive.code == "E_STATE_LOST"


def test_no_key_is_shown(partners, clock):
    epoch = current_epoch(partners()[0], Randomness(bytes(32)), 30)
    assert epoch.seed.hex() not in repr(epoch)
    assert "secret" in repr(epoch.key(Curve25519(), bytes(16)))


@pytest.mark.parametrize("change", ["cut", "longer", "bit", "another list"])
def test_a_kept_list_that_changed_is_refused(run_alignment, partners, tmp_path, change):
    """At the party that asks, and at the one that answers; without it the job goes on."""

    def ask(number):
        return run_alignment(
            "upsi", FEW, MANY, memories=partners(), cached=tmp_path / "c", job_id=f"job-{number}", limits=allowing()
        )

    ask(1)
    files = [path for path in (tmp_path / "c").rglob("*") if path.is_file()]
    assert len(files) == 3
    for number, path in enumerate(files, start=2):
        whole = path.read_bytes()
        other = {
            "cut": whole[:-1],
            "longer": whole + b"\0",
            "bit": whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:],
            "another list": add_head(bytes(len(whole) - len(add_head(b"")))),
        }[change]
        path.write_bytes(other)
        run = ask(number)
        error = run.active if path.parent.name == "active" else run.passive
        assert isinstance(error, StateError)
        assert error.code == "E_CACHE"
        assert str(path) in error.hint or path.suffix == ".order"
        path.unlink()
        assert codes(ask(10 + number)) == {"active": "", "passive": ""}


def test_a_list_that_is_not_the_offered_one_is_refused(run_alignment, tmp_path):
    def other(rows):
        changed = rows.copy()
        changed[-1, 0] ^= 1
        return changed

    run = run_alignment("upsi", FEW, MANY, change={"tags": other}, cached=tmp_path)
    assert run.active.code == "E_CACHE"
    assert not [path for path in (tmp_path / "active").rglob("*") if path.is_file()]


def test_an_offer_that_would_let_tags_be_equal_is_refused(run_alignment, monkeypatch):
    """The party that asks does not rely on the other one's choice of their length."""
    for rest_bytes in (0, 5, 12, 1 << 31):

        async def send(self, message, rest_bytes=rest_bytes, plain=Spy.send):
            if isinstance(message, alignment_pb2.TagsOffered):
                message.rest_bytes = rest_bytes
            await plain(self, message)

        with monkeypatch.context() as patch:
            patch.setattr(Spy, "send", send)
            assert run_alignment("upsi", FEW, MANY).active.code == "E_ELEMENT"


# What a job and an owner may say.

JOB = "name: t\nparties: {{active: clinic, passive: {}}}\nalign: {{protocol: {}}}"


def test_it_is_for_two_parties():
    parse(JOB.format("lab", "upsi"), Job, source="job")
    with pytest.raises(
        UsageError, match=r"upsi aligns with 1 of parties\.passive at most: one party asks, and one answers"
    ) as caught:
        parse(JOB.format("[lab, shop]", "upsi"), Job, source="job")
    assert caught.value.code == "E_CONFIG"
    with pytest.raises(UsageError, match=r"align\.server is for upsi: psi has none"):
        parse(JOB.format("lab", "psi, server: active"), Job, source="job")


def test_it_must_be_named_by_the_owner():
    assert "upsi" not in Limits().protocols
    assert Limits().queries_per_peer == QueryLimits(per_day=2_000, per_epoch=50_000, rotate_days=30)
    with pytest.raises(ValueError, match="67108864"):
        QueryLimits(per_epoch=(1 << 26) + 1)


def test_a_job_without_the_key_is_the_one_of_before():
    assert "server" not in Align(protocol="psi").model_dump()
    assert Align(protocol="upsi", server="active").model_dump()["server"] == "active"


def test_a_thousand_ids_take_less_than_100_kb(run_alignment, groups, tmp_path):
    """Of 20,000; the list is sent before. docs/reference/benchmarks has a million."""
    few, many = [b"%d" % i for i in range(1000)], [b"%d" % i for i in range(500, 20_500)]
    memories = [MemoryOfOneRun(Randomness(bytes([i]) * 32)) for i in range(2)]
    given = {"memories": memories, "cached": tmp_path, "group": groups["curve25519"], "limits": allowing(per_day=None)}
    run_alignment("upsi", few, many, job_id="first", **given)
    run = run_alignment("upsi", few, many, job_id="second", seed=2, **given)
    traffic = run.spies[0].traffic["align"]
    assert len(run.active) == 500
    assert 80_000 < traffic.bytes_sent + traffic.bytes_received < 100_000
