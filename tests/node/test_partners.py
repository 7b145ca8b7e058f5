from __future__ import annotations

import hashlib
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trust.ledgers import meet
from vfl_node.alignment.lists import promises
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError, StateError, UsageError
from vfl_node.job import Align
from vfl_node.node.counts import PartnerCounts
from vfl_node.node.partner_upgrade import CLAIMED
from vfl_node.node.partners import Partner, accept_loss, accept_loss_of_peer
from vfl_node.process.files import write_checked
from vfl_node.session.counted import (
    aligned_sets,
    changed_sets,
    clear_training,
    linked_sets,
    served_model,
    telling_training,
    telling_training_of_set,
)
from vfl_node.transport.generated.vfl.v1.session_pb2 import LedgerHead


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_secret_is_drawn_once_for_each_partner(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    first = partner.secret.bytes(16)
    assert partner.secret.bytes(16) == first  # from the beginning, however much was taken from it
    assert Partner(tmp_path, "lab").secret.bytes(16) == first
    assert Partner(tmp_path, "shop").secret.bytes(16) != first
    assert Partner(tmp_path / "elsewhere", "lab").secret.bytes(16) != first


def test_nothing_is_readable_by_others_or_shown(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir(mode=0o755)
    partner = Partner(tmp_path, "lab")
    partner.keep("set", b"ids")
    partner.count(aligned_sets(b"a", 1))
    partner.count(telling_training("a", b"a", "job", 1))
    assert mode(tmp_path / "lab") == 0o700
    assert {path.name: mode(path) for path in (tmp_path / "lab").iterdir()} == dict.fromkeys(
        ("secret", "set.kept", "ledger.log"), 0o600
    )
    assert repr(partner) == "Partner(lab)"


def lose(lab: Partner, entries: int, link: bytes = b"l" * 32) -> LedgerHead:
    """A head that the peer says it has seen, and the node has not: its owner accepts that."""
    seen = LedgerHead(entries=entries, link=link)
    with pytest.raises(StateError) as caught:
        lab.heads("job", {}).prove(seen)
    assert caught.value.code == "E_STATE_OLDER"
    assert accept_loss(lab) == entries
    return seen


@pytest.mark.parametrize("lost", [1, 3, "all"])
def test_a_memory_that_is_older_than_the_peer_has_seen_is_noticed(tmp_path: Path, lost: int | str) -> None:
    """As after a restored backup. Its owner accepts it, and nothing is stuck; without that, the loss stays noticed."""
    clinic = Partner(tmp_path / "clinic", "lab")
    for job in range(4):
        meet(clinic, Partner(tmp_path / "lab", "clinic"), f"job-{job}")
        if job + 1 == 4 - (lost if isinstance(lost, int) else 4):
            shutil.copytree(tmp_path / "lab", tmp_path / "backup")
    kept = tmp_path / "backup"
    shutil.move(tmp_path / "lab", tmp_path / "newest")
    if lost != "all":
        shutil.copytree(kept, tmp_path / "lab")
    for _ in range(2):
        with pytest.raises(StateError) as caught:
            meet(clinic, Partner(tmp_path / "lab", "clinic"), "next")
        assert caught.value.code == "E_STATE_OLDER"
        assert "clinic has seen entry" in caught.value.message
        assert "state/partners/clinic" in caught.value.hint
        assert "vfl-node accept-loss clinic" in caught.value.hint
        assert not any(digit in caught.value.for_peer for digit in "0123456789")
    shutil.copytree(tmp_path / "newest", tmp_path / "put back")
    meet(clinic, Partner(tmp_path / "put back", "clinic"), "next")  # the clinic has seen one more by now
    lab = Partner(tmp_path / "lab", "clinic")
    with pytest.raises(StateError):
        meet(clinic, lab, "new")
    assert accept_loss(lab) == clinic.heads("new", {}).seen.entries == accept_loss_of_peer(clinic)
    for _ in range(3):
        meet(clinic, lab, "new")
    with pytest.raises(PolicyError):  # the loss counts as a changed set
        lab.count(changed_sets("table", b"first", 0))
    with pytest.raises(PolicyError):  # of every table
        lab.count(changed_sets("another", b"first", 0))
    lab.count(changed_sets("table", b"first", 1))
    with pytest.raises(PolicyError):  # and as a linkage over every set
        lab.count(linked_sets(b"set", b"first", 1))
    lab.count(linked_sets(b"set", b"first", 2))
    with pytest.raises(UsageError, match="has not seen more"):
        accept_loss(lab)


def test_both_owners_accept_a_loss_in_any_order(tmp_path: Path) -> None:
    """And where no job has met it: the partner's owner accepts first, and an older copy took the place of what was lost."""
    lab, clinic = Partner(tmp_path / "lab", "clinic"), Partner(tmp_path / "clinic", "lab")
    meet(clinic, lab, "first")
    shutil.copytree(tmp_path / "lab", tmp_path / "older")
    for job in ("second", "third"):
        meet(clinic, lab, job)
    seen = clinic.heads("next", {}).seen.entries
    assert accept_loss_of_peer(clinic) == seen
    with pytest.raises(StateError) as caught:
        meet(clinic, lab := Partner(tmp_path / "older", "clinic"), "next")
    assert caught.value.code == "E_STATE_OLDER"
    assert "accept-loss clinic" in caught.value.hint
    assert accept_loss(lab) == seen
    for _ in range(2):
        meet(clinic, lab, "next")
    assert clinic.heads("next", {}).given_up is None
    assert [entry.body["entries"] for entry in lab.lane.list("loss")] == [seen]


def test_a_claim_that_outlives_its_acceptance_keeps_nobody_away(tmp_path: Path) -> None:
    """As where the command that accepts it is killed, or a job writes it down once more just then."""
    lab, clinic = Partner(tmp_path / "lab", "clinic"), Partner(tmp_path / "clinic", "lab")
    meet(clinic, lab, "first")
    shutil.copytree(tmp_path / "lab", tmp_path / "older")
    meet(clinic, lab, "second")
    lab = Partner(tmp_path / "older", "clinic")
    with pytest.raises(StateError):
        meet(clinic, lab, "next")
    claim = (lab.folder / CLAIMED).read_bytes()
    accept_loss(lab)
    (lab.folder / CLAIMED).write_bytes(claim)
    accept_loss_of_peer(clinic)
    meet(clinic, lab, "next")
    assert not (lab.folder / CLAIMED).exists()


def test_of_heads_kept_in_another_order_the_highest_is_given_up(tmp_path: Path) -> None:
    """Two jobs at the same time."""
    lab, clinic = Partner(tmp_path / "lab", "clinic"), Partner(tmp_path / "clinic", "lab")
    for job in ("first", "second"):
        meet(clinic, lab, job)
    newest, older = (entry.body for entry in reversed(clinic.lane.list("head")))
    clinic.lane.append("head", older)
    assert accept_loss_of_peer(clinic) == newest["theirs"]["entries"] > older["theirs"]["entries"]


def test_a_loss_that_was_accepted_for_nothing_keeps_nobody_away(tmp_path: Path) -> None:
    lab, clinic = Partner(tmp_path / "lab", "clinic"), Partner(tmp_path / "clinic", "lab")
    meet(clinic, lab, "first")
    accept_loss_of_peer(clinic)
    meet(clinic, lab, "next")


def test_a_peer_that_claims_too_much_keeps_only_itself_away(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "clinic")
    for claim in (2, 2**62):
        seen = lose(lab, claim)
        with pytest.raises(StateError, match="accepted here"):
            lab.heads("job", {}).prove(seen)
    lab.heads("job", {}).prove(Partner(tmp_path, "shop").heads("job", {}).seen)
    shop = Partner(tmp_path, "shop").heads("job", {})
    shop.prove(shop.seen)


def test_one_accepted_loss_covers_no_later_one(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "clinic")
    lose(lab, 10**9)
    for entries, link in ((50, b"l" * 32), (10**9, b"m" * 32), (10**9 + 1, b"l" * 32)):
        with pytest.raises(StateError) as caught:
            Partner(tmp_path, "clinic").heads("job", {}).prove(LedgerHead(entries=entries, link=link))
        assert caught.value.code == "E_STATE_OLDER"


def test_two_losses_of_as_many_entries_are_two(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "clinic")
    for link in (b"l" * 32, b"m" * 32):
        lose(lab, 50, link)
    assert lab.account().losses == 2
    assert lab.usage()["alignments"] == 2


def test_a_loss_of_a_peer_that_was_never_met_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has seen no ledger"):
        accept_loss_of_peer(Partner(tmp_path, "clinic"))


def test_what_was_damaged_on_the_disk_is_not_read(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    partner.keep("set", b"ids")
    partner.count(aligned_sets(b"a", 1))
    partner.count(changed_sets("table", b"a", 1))
    partner.count(telling_training("a", b"a", "job", 1))
    for path in (tmp_path / "lab").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    again: list[Callable[[], object]] = [
        lambda: partner.recall("set"),
        lambda: partner.heads("job", {}),
        lambda: partner.count(aligned_sets(b"b", 2)),
        lambda: partner.count(changed_sets("table", b"b", 2)),
        lambda: partner.count(telling_training("a", b"a", "other", 2)),
        lambda: Partner(tmp_path, "lab"),
    ]
    for read in again:
        with pytest.raises(StateError) as caught:
            read()
        assert caught.value.code == "E_STATE_CORRUPT"


def test_changes_are_counted_from_the_first_pair_on(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    for digest in (b"one", b"two", b"one", b"three", b"two"):
        partner.count(changed_sets("patients", digest, 2))
    with pytest.raises(PolicyError) as caught:
        Partner(tmp_path, "lab").count(changed_sets("patients", b"four", 2))
    assert caught.value.code == "E_BUDGET"
    assert "changed 2 times between alignments of table 'patients' with lab" in caught.value.message
    assert "Where a table grows between jobs" in caught.value.hint
    assert "budgets.changes: 3 in the policy allows one more" in caught.value.hint
    assert not any(word in caught.value.for_peer for word in ("2", "patients"))


@pytest.mark.parametrize("other", ["patient", "patients-2", "loss"])
def test_changes_of_one_table_are_none_of_another(tmp_path: Path, other: str) -> None:
    partner = Partner(tmp_path, "lab")
    for table in (other, "patients"):
        assert partner.count(changed_sets(table, b"telling", 0, hides=False)) == 0
        assert partner.count(changed_sets(table, b"one", 0)) == 1
        for hides in (True, False):
            with pytest.raises(PolicyError, match=f"of table '{table}'"):
                partner.count(changed_sets(table, b"two", 0, hides=hides))
    assert partner.count(changed_sets(other, b"two", 1)) == 2
    assert partner.usage()["changes"] == 1


def test_changes_that_were_counted_over_all_tables_go_on_to_count_for_each(tmp_path: Path) -> None:
    """As development versions wrote them. A pair that they counted is free, whatever its table."""
    folder = Partner(tmp_path, "lab").folder
    write_checked(folder / "changes", b"\n".join(pair.hex().encode() for pair in (b"one", b"two")))
    partner = Partner(tmp_path, "lab")
    assert [partner.count(changed_sets("patients", pair, 0)) for pair in (b"one", b"two", b"one")] == [1, 2, 1]
    assert partner.usage()["changes"] == 1
    for table in ("patients", "another"):
        for hides in (True, False):
            with pytest.raises(PolicyError, match="changed 1 times"):
                partner.count(changed_sets(table, b"three", 1, hides=hides))
        assert partner.count(changed_sets(table, b"three", 2)) == 3
    assert partner.usage()["changes"] == 2


def test_a_damaged_secret_is_not_replaced(tmp_path: Path) -> None:
    Partner(tmp_path, "lab")
    (tmp_path / "lab" / "secret").write_bytes(b"short")
    with pytest.raises(StateError) as caught:
        Partner(tmp_path, "lab")
    assert caught.value.code == "E_STATE_CORRUPT"
    assert (tmp_path / "lab" / "secret").read_bytes() == b"short"


def test_what_is_kept_stays_as_it_was_first(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    assert partner.recall("obfuscated-set") is None
    assert partner.keep("obfuscated-set", b"\x00first") == b"\x00first"
    assert partner.keep("obfuscated-set", b"second") == b"\x00first"
    assert partner.keep("empty", b"") == b""
    again = Partner(tmp_path, "lab")
    assert again.recall("obfuscated-set") == b"\x00first"
    assert again.keep("empty", b"no longer") == b""
    assert Partner(tmp_path, "shop").recall("obfuscated-set") is None


def test_jobs_at_the_same_time_keep_the_same(tmp_path: Path) -> None:
    partner, kept, which = Partner(tmp_path, "lab"), [], []
    start = threading.Barrier(8)

    def job(number: int) -> None:
        start.wait()
        kept.append(partner.keep("set", b"%d" % number))
        partner.count(aligned_sets(b"%d" % number, 8))
        which.append(partner.count(telling_training("set", b"set", f"job-{number}", 8)))

    threads = [threading.Thread(target=job, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 8
    assert sorted(which) == list(range(1, 9))
    assert set(kept) == {partner.recall("set")}
    for number in range(8):
        partner.count(aligned_sets(b"%d" % number, 0))  # all were counted, so none is new


@pytest.mark.parametrize("name", ["../x", "a/b", "a.b", "A", "", "x" * 81, "a\n", "\x00"])
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    partner = Partner(tmp_path / "partners", "lab")
    with pytest.raises(ValueError, match="a-z"):
        partner.keep(name, b"")
    with pytest.raises(ValueError, match="a-z"):
        partner.recall(name)
    assert partner.keep("x" * 80, b"1") == b"1"


@pytest.mark.parametrize("peer", ["../x", "..", "a/b", "Lab", "", "a\n", "x" * 64])
def test_peers_that_are_no_parties_are_refused(tmp_path: Path, peer: str) -> None:
    with pytest.raises(ValueError, match="name"):
        Partner(tmp_path / "partners", peer)
    assert not (tmp_path / "partners").exists()


def test_one_input_too_many_is_refused_and_a_repeated_one_is_free(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    for digest in (b"one", b"two", b"one"):
        partner.count(aligned_sets(digest, 2))
    with pytest.raises(PolicyError) as caught:
        Partner(tmp_path, "lab").count(aligned_sets(b"three", 2))
    assert caught.value.code == "E_BUDGET"
    assert "2 different pairs of sets have been aligned with lab" in caught.value.message
    assert "allows 2 (budgets.alignments)" in caught.value.message
    assert "raise budgets.alignments" in caught.value.hint
    assert "lab" not in caught.value.for_peer
    assert "2" not in caught.value.for_peer
    partner.count(aligned_sets(b"two", 2))
    partner.count(aligned_sets(b"two", 1))  # a limit lowered later does not forbid what was counted
    Partner(tmp_path, "shop").count(aligned_sets(b"three", 1))
    partner.count(aligned_sets(b"three", 3))
    with pytest.raises(PolicyError):
        partner.count(aligned_sets(b"four", 3))


def test_trainings_over_a_table_are_counted_and_the_same_job_is_free(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    assert [partner.count(telling_training("set", b"set", job, 2)) for job in ("one", "two", "one", "two")] == [1, 2, 1, 2]
    assert [partner.count(telling_training(other, b"set", "one", 2)) for other in ("another", "se")] == [1, 1]
    again = Partner(tmp_path, "lab")
    with pytest.raises(PolicyError) as caught:
        again.count(telling_training("set", b"set", "on", 2))
    assert caught.value.code == "E_BUDGET"
    assert "there were 2 trainings with lab" in caught.value.message
    assert "allows 2 (budgets.trainings)" in caught.value.message
    assert "raise budgets.trainings" in caught.value.hint
    assert not any(word in caught.value.for_peer for word in ("lab", "2", "budgets.trainings"))
    assert again.count(telling_training("set", b"set", "two", 1)) == 2  # a limit lowered later does not forbid what was counted
    assert Partner(tmp_path, "shop").count(telling_training("set", b"set", "on", 1)) == 1
    assert again.count(telling_training("set", b"set", "on", 3)) == 3
    assert again.count(telling_training("another", b"set", "on", 3)) == 2


def test_a_record_more_in_a_table_begins_no_new_count_of_trainings(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    for day in range(20):
        assert partner.count(telling_training("cohort", b"set %d" % day, f"daily-{day}", 20)) == day + 1
    with pytest.raises(PolicyError, match=r"20 trainings with lab over table 'cohort'"):
        partner.count(telling_training("cohort", b"set 20", "daily-20", 20))


def test_a_second_name_of_the_same_records_begins_no_new_count_of_trainings(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    for table in ("one", "two"):
        both = (telling_training(table, b"set", f"of-{table}", 2), telling_training_of_set(b"set", f"of-{table}", 2))
        assert partner.count(*both) == (1 if table == "one" else 2)
        entries = len(partner.lane.entries)
        assert partner.count(*both) == (1 if table == "one" else 2)
        assert len(partner.lane.entries) == entries
    third = (telling_training("three", b"set", "of-three", 2), telling_training_of_set(b"set", "of-three", 2))
    with pytest.raises(PolicyError, match="2 trainings with lab over the same records"):
        partner.count(*third)
    assert len(partner.lane.entries) == entries
    assert partner.usage()["trainings"] == 2


def test_what_an_earlier_version_set_aside_counts_once_it_is_used(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    partner.lane.append("reserve", {"lines": {"trainings": [f"{b'set'.hex()} daily"]}, "job": "daily"})
    assert partner.usage()["trainings"] == 1
    assert partner.count(telling_training("cohort", b"set", "daily", 1)) == 1
    partner.release("daily")
    assert partner.usage()["trainings"] == 1


def test_trainings_that_an_earlier_version_counted_for_a_set_go_on_to_count(tmp_path: Path) -> None:
    partner = Partner(tmp_path, "lab")
    earlier = [f"{of_set.hex()} {job}" for of_set, job in ((b"set", "one"), (b"\xfe", "two"))]
    partner.lane.append("count", {"lines": {"trainings": earlier}})
    assert partner.usage()["trainings"] == 2
    assert partner.count(telling_training("cohort", b"set", "one", 2)) == 1  # the same job is free
    assert partner.count(telling_training("deeds", b"set", "one", 2)) == 1
    for table in ("cohort", "deeds"):
        with pytest.raises(PolicyError, match="there were 2 trainings"):
            partner.count(telling_training(table, b"set", "three", 2))
        assert partner.count(telling_training(table, b"set", f"three-{table}", 3)) == 3


def test_linkages_over_a_set_are_counted_and_the_same_one_is_free(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "clinic")
    for linkage in (b"one", b"two", b"one"):
        lab.count(linked_sets(b"set", linkage, 2))
    with pytest.raises(PolicyError) as refused:
        lab.count(linked_sets(b"set", b"three", 2))
    assert refused.value.code == "E_BUDGET"
    assert "budgets.linkages" in refused.value.message
    lab.count(linked_sets(b"another set", b"three", 2))
    Partner(tmp_path, "clinic").count(linked_sets(b"set", b"two", 2))  # after a restart


def earlier_memory(folder: Path) -> Path:
    """As development versions before checksums wrote it: two pairs of sets, and two trainings over one."""
    folder.mkdir()
    (folder / "secret").write_bytes(b"s" * 32)
    (folder / "inputs").write_bytes(b"\n".join(pair.hex().encode() for pair in (b"one", b"two")))
    (folder / "trainings").write_bytes(b"\n".join(b"%s %s" % (b"set".hex().encode(), job) for job in (b"first", b"second")))
    return folder


@pytest.mark.parametrize("broken_off", [False, True])
def test_a_memory_without_checksums_goes_on_with_what_it_promised(tmp_path: Path, *, broken_off: bool) -> None:
    folder = earlier_memory(tmp_path / "lab")
    if broken_off:
        write_checked(folder / "inputs", (folder / "inputs").read_bytes())
    for _ in range(2):  # the upgrade, and a restart after it
        partner = Partner(tmp_path, "lab")
        assert partner.secret.bytes(8) == Randomness(b"s" * 32).bytes(8)
        partner.count(aligned_sets(b"two", 2))
        with pytest.raises(PolicyError, match="2 different pairs of sets"):
            partner.count(aligned_sets(b"three", 2))
        assert partner.count(telling_training("set", b"set", "second", 2)) == 2
        with pytest.raises(PolicyError, match="there were 2 trainings"):
            partner.count(telling_training("set", b"set", "third", 2))
    assert not (folder / "inputs").exists()
    (folder / "ledger.log").write_bytes(b"")
    with pytest.raises(StateError) as caught:
        partner.count(aligned_sets(b"two", 2))
    assert caught.value.code == "E_STATE_CORRUPT"


def earlier_memory_that_hid(folder: Path) -> Path:
    """As such a version wrote it in two jobs of 500 records each: ``apsi``, and ``psu`` with 100 dummies."""
    folder = earlier_memory(folder)
    (folder / "dummies-4e7374a059701117b8f4690c3587c2ff00491c27.kept").write_bytes(b"100")
    drawn = "obfuscated-656bdc81a148c5bbbf5e599e03171f15ac10771f"
    job = bytes.fromhex("a216a3a6ef8aa199a511559784ccc29b404c3c5a3855a439c0ed9d622ddfb727")
    elements = bytes(450 * 32)
    (folder / f"{drawn}-size.kept").write_bytes(job + (450).to_bytes(8, "big"))
    (folder / f"{drawn}.kept").write_bytes(
        job + b"curve25519".ljust(16) + hashlib.sha256(elements).digest() + elements,
    )
    return folder


@pytest.mark.parametrize("broken_off", [False, True])
def test_what_a_memory_without_checksums_hid_stays_hidden_and_counts_as_changes(tmp_path: Path, *, broken_off: bool) -> None:
    """This version would not find what those jobs drew for the sets, so it draws it anew, for whatever sets they were."""
    folder = earlier_memory_that_hid(tmp_path / "lab")
    if broken_off:  # behind the last of what was kept
        kept = {path: path.read_bytes() for path in folder.iterdir()}
        Partner(tmp_path, "lab")
        for path in (folder / "secret", *folder.glob("obfuscated-*")):
            path.write_bytes(kept[path])
    for _ in range(2):  # the upgrade, and a restart after it
        partner = Partner(tmp_path, "lab")
        assert not any(folder.glob("obfuscated-*"))
        for terms in (Align(protocol="psi"), Align(protocol="psu"), Align(protocol="psu", dummies=99)):
            with pytest.raises(PolicyError) as refused:
                promises.hold(partner, b"any set", terms, "active", binding=False)
            assert refused.value.code == "E_PROMISE"
            assert "all tables" in refused.value.hint
        for hiding in (Align(protocol="psu", dummies=100), Align(protocol="apsi", obfuscation={"size": 9})):
            promises.hold(partner, b"of " + hiding.protocol.encode(), hiding, "active", binding=True)
        with pytest.raises(PolicyError, match="sets have changed 1 times"):
            partner.count(changed_sets("table", b"sets", 1))
        partner.check(changed_sets("table", b"sets", 2))


def test_a_damaged_memory_without_checksums_is_left_as_it_is(tmp_path: Path) -> None:
    folder = earlier_memory(tmp_path / "lab")
    (folder / "dummies-0123.kept").write_bytes(b"1o0")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(StateError) as caught:
        Partner(tmp_path, "lab")
    assert caught.value.code == "E_STATE_CORRUPT"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_is_used_of_each_budget_is_told_without_beginning_a_memory(tmp_path: Path) -> None:
    assert set(PartnerCounts(tmp_path / "lab", "lab").usage().values()) == {0}
    assert not (tmp_path / "lab").exists()
    lab = Partner(tmp_path, "lab")
    for number, digest in enumerate((b"one", b"two", b"three")):
        lab.count(aligned_sets(digest, 9))
        lab.count(changed_sets("table" if number else "another", digest, 9))
        lab.count(telling_training("table" if number else "another", digest, f"job-{number}", 9))
        lab.count(*clear_training("table" if number else "another", digest, f"job-{number}", 9))
        lab.count(linked_sets(b"set" if number else b"another", digest, 9))
        lab.count(served_model("default" if number else "other", f"job-{number}", 9))
    used = {
        "alignments": 3,
        "changes": 1,
        "trainings": 2,
        "trainings_in_clear": 2,
        "models_served": 2,
        "linkages": 2,
        "epsilon": 0,
    }
    assert PartnerCounts(tmp_path / "lab", "lab").usage() == used
    lose(lab, 7)
    assert lab.usage() == used | {"alignments": 4, "changes": 2, "linkages": 3}
    assert b"one" not in (tmp_path / "lab" / "ledger.log").read_bytes()


def test_what_is_checked_is_not_counted(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    for _ in range(2):
        lab.check(aligned_sets(b"one", 1))
        lab.check(changed_sets("table", b"one", 0))
        lab.check(telling_training("set", b"set", "job", 1))
        lab.check(linked_sets(b"set", b"other", 1))
    assert set(lab.usage().values()) == {0}
