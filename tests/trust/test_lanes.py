"""Lanes and their heads: what was changed, cut, put in or rewritten is seen, by the node, its partner, or whoever verifies."""

from __future__ import annotations

import json
import random
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.trust.ledgers import Claimed, Signer, exchange, heads_of, kinds, signers
from vfl_node.errors import PolicyError, ProtocolError, StateError
from vfl_node.transport.generated.vfl.v1.session_pb2 import HeadProof, LedgerHead
from vfl_node.trust.heads import LOST, PEER_LOST
from vfl_node.trust.lane_check import LaneVerdict, verify_lane
from vfl_node.trust.lanes import NO_LINK, Lane, Unsigned

FLIPS = 500


def filled(path: Path, signer: Any, peer: str = "lab", entries: int = 20) -> Lane:
    path.parent.mkdir(parents=True, exist_ok=True)
    lane = Lane(path, peer, signer)
    for number in range(entries):
        lane.append("count", {"lines": {"trainings": [f"set job-{number}"]}})
    return lane


def verified(lane: Lane, signer: Signer) -> LaneVerdict:
    peer = signer.keys.get(lane.peer)
    return verify_lane(lane.path, signer.name, lane.peer, signer.key.public_key(), peer.public_key() if peer else None)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Lane, Lane]:
    """Lanes of a clinic and a lab about each other, which have exchanged heads ten times."""
    clinic, lab = signers("clinic", "lab")
    lanes = filled(tmp_path / "clinic.log", clinic, "lab", 1), filled(tmp_path / "lab.log", lab, "clinic", 1)
    for number in range(10):
        lanes[0].append("count", {"lines": {"inputs": [f"{number}"]}})
        exchange(heads_of(lanes[0]), heads_of(lanes[1]))
    return lanes


def test_entries_are_read_again_and_go_on_in_another_process(tmp_path: Path) -> None:
    signer = Signer("clinic")
    lane = filled(tmp_path / "lane", signer, entries=3)
    assert kinds(lane.entries) == ["key", "count", "count", "count"]
    other = Lane(lane.path, "lab", signer)
    assert other.append("spend", {}).number == 5
    assert lane.entries[-1].kind == "spend"
    assert lane.append("count", {}).number == 6
    assert [entry.link for entry in other.entries] == [entry.link for entry in lane.entries]
    assert stat.S_IMODE(lane.path.stat().st_mode) == 0o600


def test_threads_and_other_objects_append_one_after_the_other(tmp_path: Path) -> None:
    lanes = [Lane(tmp_path / "lane", "lab", Signer("clinic").name and Unsigned("clinic")) for _ in range(3)]
    threads = [threading.Thread(target=lambda lane=lane: [lane.append("count", {}) for _ in range(20)]) for lane in lanes * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.number for entry in Lane(tmp_path / "lane", "lab").entries] == list(range(1, 121))


@pytest.mark.parametrize("torn", [1, 60, 100_000])
def test_an_entry_that_a_crash_has_cut_never_counted(tmp_path: Path, torn: int) -> None:
    lane = filled(tmp_path / "lane", Signer("clinic"), entries=2)
    with lane.path.open("ab") as file:
        file.write(b'{"e":' + b"x" * torn)
    again = Lane(lane.path, "lab", lane.signing)
    assert len(again.entries) == 3
    assert again.append("count", {}).number == 4
    assert not verified(again, lane.signing).faults  # type: ignore[arg-type]


def test_every_flipped_bit_is_seen_by_the_node_and_named_by_who_verifies(tmp_path: Path) -> None:
    signer = Signer("clinic")
    lane = filled(tmp_path / "lane", signer, entries=8)
    whole = lane.path.read_bytes()
    draws = random.Random(1)
    assert not verified(lane, signer).faults
    for _ in range(FLIPS):
        place = draws.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draws.randrange(8)
        lane.path.write_bytes(damaged)
        line = whole[:place].count(b"\n") + 1
        faults = verified(lane, signer).faults
        assert faults, place
        assert faults[0].startswith(f"entry {line}:"), (place, faults)
    with pytest.raises(StateError) as caught:
        _ = Lane(lane.path, "lab", signer).entries
    assert caught.value.code == "E_STATE_CORRUPT"
    assert "put the newest copy" in caught.value.hint


@pytest.mark.parametrize("how", ["cut", "swapped", "taken out", "doubled", "put in"])
def test_lines_that_are_moved_are_seen(tmp_path: Path, how: str) -> None:
    signer = Signer("clinic")
    lane = filled(tmp_path / "lane", signer, entries=8)
    filled(tmp_path / "other", signer, entries=8)
    lines = lane.path.read_bytes().splitlines(keepends=True)
    if how == "cut":
        lane.path.write_bytes(b"".join(lines[:-2]))
        with pytest.raises(StateError, match="has lost entry 9"):  # while the node runs; else its partner sees it
            _ = lane.entries
        assert not verified(lane, signer).faults
        return
    if how == "swapped":
        lines[3], lines[4] = lines[4], lines[3]
    elif how == "taken out":
        del lines[3]
    elif how == "doubled":
        lines.insert(3, lines[3])
    else:
        lines[3] = (tmp_path / "other").read_bytes().splitlines(keepends=True)[3]
    lane.path.write_bytes(b"".join(lines))
    assert verified(lane, signer).faults
    with pytest.raises(StateError):
        _ = Lane(lane.path, "lab", signer).entries


def test_a_new_key_goes_on_and_another_one_is_seen(tmp_path: Path) -> None:
    signer = Signer("clinic")
    lane = filled(tmp_path / "lane", signer, entries=2)
    signer.key = Ed25519PrivateKey.generate()
    lane.append("count", {})
    assert kinds(lane.entries) == ["key", "count", "count", "key", "count"]
    assert not verified(lane, signer).faults
    thief = Signer("clinic")  # who can write the file, and has no key of the clinic
    Lane(lane.path, "lab", thief).append("count", {})
    assert "not signed by the key on the card" in verified(lane, signer).faults[-1]
    Lane(lane.path, "lab", Unsigned("clinic")).append("count", {})
    assert "it is not signed by the key of clinic" in verified(lane, signer).faults[0]


def test_without_keys_a_lane_is_still_a_chain(tmp_path: Path) -> None:
    lane = filled(tmp_path / "lane", Unsigned("clinic"), entries=4)
    verdict = verify_lane(lane.path, "clinic", "lab", None, None)
    assert (verdict.entries, verdict.signed, verdict.seen, verdict.faults) == (4, 0, 0, ())
    lane.path.write_bytes(lane.path.read_bytes().replace(b"job-1", b"job-9"))
    assert verify_lane(lane.path, "clinic", "lab", None, None).faults


def test_honest_growth_is_accepted_and_signed_by_both(pair: tuple[Lane, Lane]) -> None:
    clinic, lab = pair
    for lane, signer in ((clinic, clinic.signing), (lab, lab.signing)):
        verdict = verified(lane, signer)  # type: ignore[arg-type]
        assert verdict.faults == ()
        assert verdict.seen == len(lane.entries) - 1
    seen = heads_of(lab).seen
    assert seen.link == clinic.find_link(seen.entries)


def rewritten(lane: Lane, change: Any) -> Lane:
    """The lane as its owner, who has the key, could write it anew from entries that ``change`` makes of those there."""
    entries = change([(entry.kind, dict(entry.body)) for entry in lane.entries if entry.kind != "key"])
    lane.path.unlink()
    fresh = Lane(lane.path, lane.peer, lane.signing)
    for kind, body in entries:
        fresh.append(kind, body)
    return fresh


PADDED = [("count", {})] * 40


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda entries: entries, "E_LEDGER_FORK"),  # other salts: no entry may be written twice
        (lambda entries: entries[:-5], "E_LEDGER_FORK"),
        (lambda entries: [*entries[:3], ("count", {}), *entries[4:], *PADDED], "E_LEDGER_FORK"),
        (lambda entries: entries[::2] + PADDED * 3, "E_LEDGER_FORK"),
        (lambda entries: [], "E_LEDGER_FORK"),
    ],
)
def test_an_owner_who_rewrites_the_past_is_refused_by_its_partner(pair: tuple[Lane, Lane], change: Any, code: str) -> None:
    clinic, lab = pair
    seen = heads_of(lab).seen
    forged = rewritten(clinic, change)
    with pytest.raises(StateError) as own:  # software that was not changed notices it itself
        heads_of(forged).prove(seen)
    assert own.value.code == "E_STATE_OLDER"
    for start in (0, min(seen.entries, len(forged.entries))):
        shown = forged.entries[start:]
        newest = forged.entries[-1] if forged.entries else None
        head = LedgerHead(link=NO_LINK)
        if newest:
            head = LedgerHead(entries=newest.number, link=newest.link, signature=newest.signature)
        with pytest.raises(ProtocolError) as caught:
            heads_of(lab).sign(HeadProof(head=head, commits=[entry.commit for entry in shown]))
        assert caught.value.code == code


def test_a_lane_that_was_cut_begins_anew_once_both_owners_accept_that(pair: tuple[Lane, Lane]) -> None:
    clinic, lab = pair
    lines = clinic.path.read_bytes().splitlines(keepends=True)
    clinic.path.write_bytes(b"".join(lines[:-6]))
    cut, claims = Lane(clinic.path, "lab", clinic.signing), Claimed()
    seen = heads_of(lab).seen

    def refusal(claimed: LedgerHead) -> StateError:
        with pytest.raises(StateError) as caught:
            heads_of(cut, claims=claims).prove(claimed)
        assert caught.value.code == "E_STATE_OLDER"
        return caught.value

    assert "accept-loss lab" in refusal(seen).hint
    assert claims.missing == seen
    cut.append("count", {})
    refusal(seen)  # however much it grows
    refusal(LedgerHead(link=NO_LINK))  # also where the partner has accepted it first
    cut.append(LOST, {"entries": seen.entries, "link": seen.link.hex()})  # its owner accepts it
    claims.missing = None
    assert "accept-loss clinic --of-peer" in refusal(seen).hint
    assert claims.missing is None
    with pytest.raises(ProtocolError) as caught:  # what software that was changed would show
        heads_of(lab).sign(heads_of(cut).prove(LedgerHead(link=NO_LINK)))
    assert caught.value.code == "E_LEDGER_FORK"
    lab.append(PEER_LOST, {"entries": seen.entries, "link": seen.link.hex()})  # the other one accepts it, too
    for _ in range(2):
        exchange(heads_of(cut, claims=claims), heads_of(lab))
    for lane in (cut, lab):
        assert not verified(lane, lane.signing).faults  # type: ignore[arg-type]


def test_nothing_is_missing_once_the_newest_copy_is_back(pair: tuple[Lane, Lane]) -> None:
    clinic, lab = pair
    whole, claims = clinic.path.read_bytes(), Claimed()
    clinic.path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-6]))
    with pytest.raises(StateError):
        heads_of(Lane(clinic.path, "lab", clinic.signing), claims=claims).prove(heads_of(lab).seen)
    clinic.path.write_bytes(whole)
    exchange(heads_of(Lane(clinic.path, "lab", clinic.signing), claims=claims), heads_of(lab))
    assert claims.missing is None


def test_heads_alone_make_no_ledger_longer(pair: tuple[Lane, Lane]) -> None:
    """A peer that comes and goes adds nothing."""
    exchange(*map(heads_of, pair))
    before = [len(lane.entries) for lane in pair]
    for _ in range(5):
        exchange(*map(heads_of, pair))
    assert [len(lane.entries) for lane in pair] == before
    pair[0].append("count", {})
    exchange(*map(heads_of, pair))
    assert [len(lane.entries) for lane in pair] == [before[0] + 2, before[1] + 1]


def test_a_ledger_is_whole_after_either_key_was_replaced(pair: tuple[Lane, Lane]) -> None:
    clinic, lab = pair
    lab.signing.key = clinic.signing.keys["lab"] = Ed25519PrivateKey.generate()  # type: ignore[misc,attr-defined]
    verdict = verified(clinic, clinic.signing)  # type: ignore[arg-type]
    assert (verdict.faults, verdict.seen, "not with the key on its card" in verdict.notes[0]) == ((), 0, True)
    exchange(heads_of(clinic), heads_of(lab))  # no new entry of the lab: what it shows is signed with the key of today
    lab.note_key()
    lab.note_key()
    assert kinds(lab.entries).count("key") == 2
    exchange(heads_of(clinic), heads_of(lab))
    for lane in pair:
        verdict = verified(lane, lane.signing)  # type: ignore[arg-type]
        assert (verdict.faults, verdict.seen > 0) == ((), True)


def test_a_card_that_cannot_be_read_is_no_missing_card(pair: tuple[Lane, Lane], monkeypatch: pytest.MonkeyPatch) -> None:
    clinic, lab = pair
    proof = heads_of(lab).prove(heads_of(clinic).seen)

    def damaged(name: str) -> None:
        raise PolicyError("the card cannot be used", code="E_CARD")

    monkeypatch.setattr(clinic.signing, "card", damaged)
    with pytest.raises(PolicyError):
        heads_of(clinic).sign(proof)


def test_jobs_at_the_same_time_show_heads_in_any_order(pair: tuple[Lane, Lane]) -> None:
    """Each conversation goes on from what was seen when it began, and at its end from what it has shown itself."""
    clinic, lab = pair
    early = heads_of(clinic), heads_of(lab)
    proofs = early[0].prove(early[1].seen), early[1].prove(early[0].seen)
    for _ in range(3):
        exchange(heads_of(clinic), heads_of(lab))  # of other jobs
    signed = early[0].sign(proofs[1]), early[1].sign(proofs[0])
    early[0].keep(proofs[0], proofs[1], signed[1])
    early[1].keep(proofs[1], proofs[0], signed[0])
    exchange(heads_of(clinic), heads_of(lab))
    ends = early[0].prove(early[0].shown), early[1].prove(early[1].shown)
    signed = early[0].sign(ends[1]), early[1].sign(ends[0])
    early[0].keep(ends[0], ends[1], signed[1])
    early[1].keep(ends[1], ends[0], signed[0])
    for lane in pair:
        assert not verified(lane, lane.signing).faults  # type: ignore[arg-type]


def test_two_histories_shown_to_jobs_at_the_same_time_are_a_fork(pair: tuple[Lane, Lane], tmp_path: Path) -> None:
    clinic, lab = pair
    (tmp_path / "two.log").write_bytes(lab.path.read_bytes())
    other = Lane(tmp_path / "two.log", "clinic", lab.signing)
    for lane, entries in ((lab, 4), (other, 2)):
        for _ in range(entries):
            lane.append("count", {})
    heads = [heads_of(clinic), heads_of(clinic)]
    longer, shorter = (heads_of(lane).prove(heads[0].seen) for lane in (lab, other))
    own = heads[0].prove(heads_of(lab).seen)
    heads[0].keep(own, longer, heads_of(lab).sign(own))
    heads[1].sign(shorter)  # which of both is true nobody knows yet
    heads[1].keep(own, shorter, heads_of(lab).sign(own))
    for lane in (lab, other):
        lane.append("count", {})
        lane.append("count", {})
    last = heads_of(clinic)
    for lane in (lab, other):
        with pytest.raises(ProtocolError) as caught:
            last.sign(
                HeadProof(
                    head=heads_of(lane).prove(longer.head if lane is lab else shorter.head).head,
                    commits=[entry.commit for entry in lane.entries[last.seen.entries :]],
                )
            )
        assert caught.value.code == "E_LEDGER_FORK"


def test_only_the_keys_on_the_cards_sign(pair: tuple[Lane, Lane]) -> None:
    clinic, lab = pair
    mallory = Signer("lab", keys={"clinic": clinic.signing.key})  # type: ignore[dict-item]
    theirs = Lane(lab.path, "clinic", mallory)
    proof = heads_of(lab).prove(heads_of(clinic).seen)
    theirs.append("count", {})
    with pytest.raises(ProtocolError) as caught:
        heads_of(clinic).sign(heads_of(theirs).prove(heads_of(clinic).seen))
    assert caught.value.code == "E_LEDGER"
    own = heads_of(clinic).prove(heads_of(lab).seen)
    with pytest.raises(ProtocolError) as caught:
        heads_of(clinic).keep(own, proof, heads_of(theirs).sign(own))
    assert caught.value.code == "E_LEDGER"


def test_a_long_lane_is_shown_in_several_exchanges(tmp_path: Path) -> None:
    clinic, lab = signers("clinic", "lab")
    one, other = filled(tmp_path / "one", clinic, entries=25), filled(tmp_path / "other", lab, "clinic", 1)
    shown = []
    for _ in range(4):
        heads = heads_of(one, 10)
        exchange(heads, heads_of(other, 10))
        shown.append(heads.shown.entries)
    assert (shown[:2], shown == sorted(shown), shown[-1] >= 26) == ([10, 20], True, True)
    assert not verified(one, clinic).faults


def test_what_a_partner_gets_tells_nothing_of_an_entry(pair: tuple[Lane, Lane]) -> None:
    """Entries of the same words have other commits; nothing else of them is in a proof."""
    clinic, _ = pair
    clinic.append("count", {"lines": {"inputs": ["same"]}})
    clinic.append("count", {"lines": {"inputs": ["same"]}})
    assert clinic.entries[-1].commit != clinic.entries[-2].commit
    proof = heads_of(clinic).prove(LedgerHead(link=bytes(32)))
    assert len(proof.SerializeToString()) < len(clinic.entries) * 34 + 130
    assert b"same" not in proof.SerializeToString()


@pytest.mark.parametrize(
    "body", [{"ours": 1}, {"ours": {"entries": "x"}}, {"theirs": {}}, {"ours": {"entries": -1, "link": ""}}]
)
def test_a_strange_entry_is_a_fault_and_no_traceback(tmp_path: Path, body: dict[str, Any]) -> None:
    clinic, _ = signers("clinic", "lab")
    lane = filled(tmp_path / "lane", clinic, entries=2)
    lane.append("head", body)
    if body != {"theirs": {}}:
        assert verified(lane, clinic).faults
    line = json.loads(lane.path.read_bytes().splitlines()[-1])
    for strange in ([], 1, None, {"e": []}, {**line, "l": 3}, {**line, "e": {**line["e"], "salt": 4}}):
        lane.path.write_bytes(json.dumps(strange).encode() + b"\n")
        assert verified(lane, clinic).faults
