"""What a job sets aside before it aligns: it counts for every other job, and no more once the job has ended without it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.trust.ledgers import kinds
from vfl_node.errors import PolicyError, StateError
from vfl_node.gdp import mu_of
from vfl_node.job import Job
from vfl_node.node.endings import conclude
from vfl_node.node.partners import Partner
from vfl_node.node.record import Record
from vfl_node.node.releases import release, release_ended
from vfl_node.node.store import Store
from vfl_node.process import failpoints
from vfl_node.process.files import write_checked
from vfl_node.session.counted import Counted, aligned_sets, telling_training
from vfl_node.session.memory import join_memories
from vfl_node.session.spent import Expense, loss_line
from vfl_node.settings.node import Settings


def training(job_id: str, limit: int | None = 2) -> Counted:
    return telling_training("set", b"set", job_id, limit)


def expense(job_id: str, epsilon: float = 1.0, limit: float | None = 1.2) -> Expense:
    return Expense("default", job_id, mu_of(epsilon), limit=limit, about="psi")


def refusal(act: Any) -> str:
    with pytest.raises(PolicyError) as caught:
        act()
    return caught.value.code


def test_what_is_set_aside_counts_for_every_other_job_and_for_its_own_only_once(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    for job_id in ("one", "two", "one"):
        lab.reserve(job_id, [training(job_id)], [])
    assert refusal(lambda: lab.reserve("three", [training("three")], [])) == "E_BUDGET"
    assert refusal(lambda: lab.count(training("three"))) == "E_BUDGET"
    assert lab.usage()["trainings"] == 2
    assert lab.reserving == {"one", "two"}
    assert [lab.count(training(job_id)) for job_id in ("two", "one", "two")] == [2, 1, 2]  # as they were set aside
    assert lab.reserving == set()
    assert kinds(lab.lane.entries) == ["reserve", "reserve", "count", "count"]
    assert Partner(tmp_path, "lab").usage()["trainings"] == 2


def test_an_expense_is_set_aside_too(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    lab.reserve("one", [], [expense("one")])
    assert refusal(lambda: lab.spend(expense("two"))) == "E_BUDGET"
    assert lab.usage()["epsilon"] == 1
    lab.release("one")
    assert lab.usage()["epsilon"] == 0
    lab.spend(expense("two"))
    assert refusal(lambda: lab.reserve("one", [], [expense("one")])) == "E_BUDGET"


def test_what_was_used_is_not_released_and_the_rest_is(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    lab.reserve("one", [training("one")], [expense("one", limit=None)])
    lab.count(training("one"))
    for _ in range(2):
        lab.release("one")
    assert (lab.usage()["trainings"], lab.usage()["epsilon"]) == (1, 0)
    assert kinds(lab.lane.entries) == ["reserve", "count", "release"]
    lab.release("never heard of")
    assert len(lab.lane.entries) == 3


def test_a_number_that_was_given_stays_with_its_training(tmp_path: Path) -> None:
    """It is in the draws of a job: another one after a restart would give other bytes."""
    lab = Partner(tmp_path, "lab")
    for job_id in ("one", "two", "three"):
        lab.reserve(job_id, [training(job_id, 3)], [])
    assert lab.count(training("two", 3)) == 2
    lab.release("one")
    assert lab.count(training("two", 3)) == 2
    assert lab.count(training("three", 3)) == 3
    lab.reserve("one", [training("one", 3)], [])  # it is resumed
    assert lab.count(training("one", 3)) == 1
    assert refusal(lambda: lab.count(training("four", 3))) == "E_BUDGET"


def test_an_expense_that_was_used_stays(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    lab.reserve("one", [], [expense("one")])
    lab.spend(expense("one"))
    lab.release("one")
    assert (lab.usage()["epsilon"], kinds(lab.lane.entries)) == (1, ["reserve", "spend"])


def test_what_was_released_is_counted_anew(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    lab.reserve("one", [training("one", 1)], [])
    lab.release("one")
    assert lab.count(training("one", 1)) == 1
    assert refusal(lambda: lab.count(training("two", 1))) == "E_BUDGET"


def test_a_new_count_forgets_nothing_that_is_only_set_aside(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    lab.spend(expense("earlier"))
    lab.reserve("one", [], [expense("one", limit=None)])
    assert lab.forget() == 1
    lab.spend(expense("one"))
    assert lab.usage()["epsilon"] == 1


def test_nothing_is_set_aside_where_one_thing_does_not_fit(tmp_path: Path) -> None:
    lab = Partner(tmp_path, "lab")
    assert refusal(lambda: lab.reserve("one", [training("one")], [expense("one", 2.0)])) == "E_BUDGET"
    assert lab.lane.entries == []
    shop = Partner(tmp_path, "shop")
    shop.count(training("earlier", 1))
    both = join_memories([lab, shop])
    assert refusal(lambda: both.reserve("one", [training("one", 1)], [])) == "E_BUDGET"
    assert lab.lane.entries == []  # nor with the other partner


def record_of(store: Store, state: Any = "waiting") -> Record:
    document = {"name": "trial", "parties": {"active": "clinic", "passive": "lab"}}
    return store.add(Job.model_validate(document), submitter="clinic", state=state)


@pytest.mark.parametrize(("state", "left"), [("failed", set()), ("cancelled", set()), ("done", set()), ("waiting", {"job"})])
def test_the_end_of_a_job_releases_what_it_has_not_used(tmp_path: Path, state: Any, left: set[str]) -> None:
    settings = Settings(name="clinic", role="active", insecure_loopback=True, state_dir=tmp_path / "state")
    store = Store(settings.state_dir)
    record = record_of(store)
    lab = store.partner("lab")
    lab.reserve(record.id, [training(record.id)], [])
    conclude(settings, store, store.update(record, state=state))
    assert lab.reserving == ({record.id} if left else set())
    release_ended(store)
    assert lab.reserving == ({record.id} if left else set())


def test_a_node_that_starts_releases_what_died_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    ended, unfinished = record_of(store, "failed"), record_of(store)
    lab = store.partner("lab")
    for job_id in (ended.id, unfinished.id, "pruned"):
        lab.reserve(job_id, [training(job_id, None)], [])
    store.close()
    again = Store(tmp_path / "state")
    release_ended(again)
    assert again.partner("lab").reserving == {unfinished.id}


@pytest.mark.parametrize("stray", ["lab.bak", "lost+found", "spare"])
def test_a_stray_folder_keeps_no_node_from_starting(tmp_path: Path, stray: str) -> None:
    store = Store(tmp_path / "state")
    store.partner("lab").count(training("one"))
    folder = tmp_path / "state" / "partners" / stray
    shutil.copytree(tmp_path / "state" / "partners" / "lab", folder) if stray == "lab.bak" else folder.mkdir()
    release_ended(store)
    assert [path.name for path in folder.iterdir()] in ([], ["ledger.log", "secret"], ["secret", "ledger.log"])


def test_a_damaged_ledger_does_not_keep_a_job_from_ending(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    record = record_of(store)
    lab = store.partner("lab")
    lab.reserve(record.id, [training(record.id)], [])
    path = lab.lane.path
    path.write_bytes(path.read_bytes().replace(b"reserve", b"reserva"))
    release(store, record)
    release_ended(store)
    with pytest.raises(StateError):
        lab.usage()


EARLIER = {
    "inputs": "aa\nbb",
    "trainings": "736574 one\n736574 two",
    "spent": f"one default {mu_of(1)!r} - psi",
    "answers": "m a t 1.0",
}


def earlier_memory(folder: Path) -> Path:
    """As versions before this one wrote it, with a loss that was accepted and not met yet."""
    lab = Partner(folder, "lab").folder
    for name, lines in EARLIER.items():
        write_checked(lab / name, lines.encode())
    write_checked(lab / "met", b"3 2")
    write_checked(lab / "accepted", b"7")
    return lab


def test_counts_of_earlier_versions_move_here_once(tmp_path: Path) -> None:
    folder = earlier_memory(tmp_path)
    for _ in range(2):
        lab = Partner(tmp_path, "lab")
        assert lab.usage() | {"epsilon": 0} == {
            "alignments": 3,  # and the loss
            "changes": 0,
            "trainings": 2,
            "trainings_in_clear": 0,
            "models_served": 0,
            "linkages": 1,
            "epsilon": 0,
        }
        assert lab.account().lines == [EARLIER["spent"], loss_line(7)]
        assert lab.account().losses == 1
        assert lab.count(training("two", 2)) == 2
        lab.check(aligned_sets(bytes.fromhex("aa"), 0))
        assert kinds(lab.lane.entries) == ["import"]
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.log", "secret"]


@pytest.mark.parametrize("passing", range(1, 12))
def test_a_move_that_breaks_off_goes_on_and_counts_nothing_twice(tmp_path: Path, passing: int) -> None:
    folder = earlier_memory(tmp_path)
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    lab = Partner(tmp_path, "lab")
    for name in list(kept)[:passing]:  # as if these had not been removed yet
        (folder / name).write_bytes(kept[name])
    again = Partner(tmp_path, "lab")
    assert again.usage() == lab.usage()
    assert kinds(again.lane.entries) == ["import"]


def test_a_damaged_count_of_an_earlier_version_stays_where_it_is(tmp_path: Path) -> None:
    folder = earlier_memory(tmp_path)
    path = folder / "trainings"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for _ in range(2):
        with pytest.raises(StateError) as caught:
            Partner(tmp_path, "lab")
        assert caught.value.code == "E_STATE_CORRUPT"
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "ledger.log"} == before


@pytest.mark.parametrize("error", ["enospc", "eio"])
def test_an_entry_that_cannot_be_written_leaves_nothing(tmp_path: Path, error: str) -> None:
    lab = Partner(tmp_path, "lab")
    lab.count(training("one"))
    failpoints.arm(f"lane={error}@1+", local=True)
    try:
        with pytest.raises(OSError, match=r"space|put"):
            lab.count(training("two"))
    finally:
        failpoints.arm("", local=True)
    assert lab.usage()["trainings"] == 1
    assert lab.count(training("two")) == 2
