"""The index of jobs in the hands of an earlier and of a newer release: copied, opened as it is, and put back."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.node.indexes import open_and_die, roll_back_and_die, version_of, written_by_a_newer_release, written_by_version_7
from tests.node.nodes import Child
from vfl_node.cli import app
from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.job import Job
from vfl_node.node import index
from vfl_node.node.index_copies import keep_copy
from vfl_node.node.rollback import MOST_NAMED, roll_back
from vfl_node.node.store import Store
from vfl_node.process import failpoints

JOB = parse("name: trial\nparties: {active: clinic, passive: lab}\n", Job, source="j")


def settings(state: Path) -> Any:
    return SimpleNamespace(state_dir=state)


@pytest.fixture
def state(ram: Path) -> Path:
    """The state folder of a node of version 7, with a job that is done and one that is paused."""
    with closing(Store(ram / "state")) as store:
        done = store.add(JOB, submitter="clinic", documents={"card": b"words"})
        store.update(done, state="done", finished="now")
        store.update(store.add(JOB, submitter="clinic"), state="paused")
    written_by_version_7(ram / "state")
    return ram / "state"


def ids(state: Path) -> list[str]:
    """Of the jobs, none of which is damaged."""
    with closing(Store(state)) as store:
        assert not any(record.damaged for record in store.records())
        return [record.id for record in store.records()]


def refusal(act: Callable[[], object]) -> VflError:
    with pytest.raises(VflError) as caught:
        act()
    assert caught.value.hint
    return caught.value


def files(state: Path) -> set[str]:
    return {path.name for path in state.glob("jobs.sqlite*")}


def test_an_earlier_index_is_copied_before_it_is_changed(state: Path) -> None:
    assert files(state) == {"jobs.sqlite"}
    before = os.umask(0)
    try:
        assert len(ids(state)) == 2
    finally:
        os.umask(before)
    copy = state / "jobs.sqlite.v7"
    assert files(state) == {"jobs.sqlite", copy.name}
    assert (version_of(copy), version_of(state / "jobs.sqlite")) == (7, index.VERSION)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    about = copy.stat()
    with closing(sqlite3.connect(state / "jobs.sqlite")) as database:
        assert database.execute("SELECT min_reader FROM meta").fetchall() == [(index.MIN_READER,)]
    ids(state)
    assert copy.stat() == about  # once


def test_a_new_index_has_no_copy(tmp_path: Path) -> None:
    Store(tmp_path).close()
    assert files(tmp_path) == {"jobs.sqlite"}


@pytest.mark.parametrize("point", ["write", "rename", "index"])
def test_a_node_that_dies_while_it_brings_the_index_up_to_date_leaves_the_earlier_one(state: Path, point: str) -> None:
    child = Child(open_and_die, point, state)
    assert child.wait(60) == -signal.SIGKILL
    assert version_of(state / "jobs.sqlite") == 7
    assert ("jobs.sqlite.v7" in files(state)) == (point == "index")  # whole or not at all
    assert len(ids(state)) == 2
    assert {"jobs.sqlite", "jobs.sqlite.v7"} == files(state)
    assert roll_back(settings(state), 7).copied


@pytest.mark.parametrize("point", ["write", "rename"])
def test_without_room_for_the_copy_the_index_stays_as_it_was(state: Path, point: str) -> None:
    failpoints.arm(f"{point}=enospc", local=True)
    try:
        assert refusal(lambda: Store(state)).code == "E_DISK_FULL"
    finally:
        failpoints.arm("", local=True)
    assert (version_of(state / "jobs.sqlite"), files(state)) == (7, {"jobs.sqlite"})


def test_the_index_of_a_newer_release_is_opened_if_that_permits_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ids(state)
    written_by_a_newer_release(state, min_reader=index.VERSION)
    with closing(Store(state)) as store:
        assert [record.id for record in store.records()] == known
        added = store.add(JOB, submitter="clinic").id
        store.update(store.record(known[0]), state="done")
    assert version_of(state / "jobs.sqlite") == index.VERSION + 1
    assert roll_back(settings(state), index.VERSION).copied is None  # nothing needs to be done
    monkeypatch.setattr(index, "VERSION", index.VERSION + 1)  # the newer release again
    assert ids(state) == [added, *known]


def test_the_index_of_a_newer_release_is_refused_otherwise(state: Path) -> None:
    ids(state)
    written_by_a_newer_release(state, min_reader=index.VERSION + 1)
    refused = refusal(lambda: index.Index(state / "jobs.sqlite"))
    assert (refused.code, f"vfl-node rollback --to {index.VERSION}" in str(refused.hint)) == ("E_STATE_VERSION", True)
    with closing(sqlite3.connect(state / "jobs.sqlite")) as database:
        database.execute("UPDATE meta SET min_reader = 3")  # a flipped bit
        database.commit()
    assert refusal(lambda: index.Index(state / "jobs.sqlite")).code == "E_STATE_CORRUPT"


def test_the_earlier_index_is_put_back_and_may_be_brought_up_to_date_again(state: Path) -> None:
    before = state.joinpath("jobs.sqlite").stat().st_ino
    known = ids(state)
    rolled = roll_back(settings(state), 7)
    assert (rolled.before, rolled.copied is not None) == (index.VERSION, True)
    assert (version_of(state / "jobs.sqlite"), files(state)) == (7, {"jobs.sqlite"})
    assert state.joinpath("jobs.sqlite").stat().st_ino != before
    assert roll_back(settings(state), 7).copied is None
    assert ids(state) == known
    assert roll_back(settings(state), index.VERSION).copied is None
    assert roll_back(settings(state), index.VERSION + 1).copied is None


def test_the_newest_copy_that_the_earlier_release_can_use_is_put_back(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of a version before that of the release, which brings it up to date by itself."""
    known, present = ids(state), index.VERSION
    newest = present + 2
    with monkeypatch.context() as patch:  # the release after the next
        more = ("CREATE TABLE another (id TEXT)",), ("CREATE TABLE one_more (id TEXT)",)
        patch.setattr(index, "MIGRATIONS", (*index.MIGRATIONS, *more))
        patch.setattr(index, "VERSION", newest)
        patch.setattr(index, "MIN_READER", newest)
        assert ids(state) == known
    assert f"copies of version 7 and {present} " in refusal(lambda: roll_back(settings(state), 6)).message
    rolled = roll_back(settings(state), present + 1)
    assert (rolled.before, rolled.version, version_of(state / "jobs.sqlite")) == (newest, present, present)
    assert files(state) == {"jobs.sqlite", "jobs.sqlite.v7"}
    assert ids(state) == known


def test_a_copy_that_root_makes_is_its_users(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, about = list[tuple[str, int, int]](), (state / "jobs.sqlite").stat()
    monkeypatch.setattr(os, "chown", lambda path, *owner, **_: given.append((path.name, *owner)))
    keep_copy(state / "jobs.sqlite", 7)
    assert given == []
    monkeypatch.setattr(os, "geteuid", lambda: about.st_uid + 1)
    keep_copy(state / "jobs.sqlite", 7)
    assert given == [("jobs.sqlite.v7.tmp", about.st_uid, about.st_gid)]


def test_what_only_the_journal_has_does_not_come_into_the_copy(state: Path, tmp_path: Path) -> None:
    """A node of the newer release was killed: its journal (WAL) has all that it wrote."""
    known = ids(state)
    with closing(Store(state)) as store:
        store.keep_figures({store.record(known[0]): "{}"})
        kept = {path.name: path.read_bytes() for path in state.glob("jobs.sqlite*")}
    assert kept["jobs.sqlite-wal"]
    for name, data in kept.items():
        (state / name).write_bytes(data)
    assert roll_back(settings(state), 7).copied
    assert (version_of(state / "jobs.sqlite"), files(state)) == (7, {"jobs.sqlite"})
    assert ids(state) == known


def test_a_rollback_that_dies_has_changed_nothing(state: Path) -> None:
    known = ids(state)
    child = Child(roll_back_and_die, "rename", settings(state))
    assert child.wait(60) == -signal.SIGKILL
    assert (version_of(state / "jobs.sqlite"), files(state)) == (index.VERSION, {"jobs.sqlite", "jobs.sqlite.v7"})
    assert ids(state) == known
    assert roll_back(settings(state), 7).copied


@pytest.mark.parametrize("change", ["begun", "ended", "document"])
def test_no_job_is_lost(state: Path, change: str) -> None:
    known = ids(state)
    with closing(Store(state)) as store:
        if change == "begun":
            lost = store.add(JOB, submitter="clinic").id
        elif change == "ended":
            lost = store.update(store.record(known[0]), state="done").id
        else:
            store.keep(lost := known[1], {"consent": b"words"})
    refused = refusal(lambda: roll_back(settings(state), 7))
    assert (refused.code, refused.message.endswith(f"what it knows of: {lost}")) == ("E_STATE_VERSION", True)
    assert "1 job began, went on or ended since" in refused.message
    assert version_of(state / "jobs.sqlite") == index.VERSION


def test_of_many_jobs_some_are_named(state: Path) -> None:
    ids(state)
    with closing(Store(state)) as store:
        for _ in range(MOST_NAMED + 3):
            store.add(JOB, submitter="clinic")
    said = refusal(lambda: roll_back(settings(state), 7)).message
    assert f"{MOST_NAMED + 3} jobs" in said
    assert said.endswith(" and 3 more")


def test_what_was_pruned_since_does_not_keep_the_earlier_index_away(state: Path) -> None:
    known = ids(state)
    with closing(Store(state)) as store:
        store.remove(store.record(known[1]))
    assert roll_back(settings(state), 7).copied
    assert ids(state) == known


def test_a_job_that_ended_and_was_pruned_since_keeps_the_earlier_index_away(state: Path) -> None:
    """With the copy it would go on, though it has ended; one that began since would be unknown, and could begin anew."""
    with closing(Store(state)) as store:
        (paused,) = (record.id for record in store.records() if record.state == "paused")
        store.update(store.record(paused), state="done", finished="now")
        store.remove(store.record(paused))
        begun = store.add(JOB, submitter="clinic")
        store.update(begun, state="done", finished="now")
        store.remove(store.record(begun.id))
    refused = refusal(lambda: roll_back(settings(state), 7))
    assert refused.code == "E_STATE_VERSION"
    assert paused in refused.message
    assert begun.id in refused.message


def test_a_folder_may_have_any_name(ram: Path) -> None:
    folder = ram / "site#1 100%25?"
    folder.mkdir()
    Store(folder).close()
    written_by_version_7(folder)
    assert ids(folder) == []
    assert roll_back(settings(folder), 7).copied
    assert ids(folder) == []
    assert [path.name for path in ram.iterdir()] == [folder.name]


@pytest.mark.parametrize(
    ("spoil", "code"), [("flip", "E_STATE_CORRUPT"), ("other", "E_STATE_CORRUPT"), ("gone", "E_STATE_VERSION")]
)
def test_a_copy_that_is_not_what_was_copied_is_never_put_back(state: Path, tmp_path: Path, spoil: str, code: str) -> None:
    known, copy = ids(state), state / "jobs.sqlite.v7"
    if spoil == "flip":
        data = bytearray(copy.read_bytes())
        data[len(data) // 2] ^= 1
        copy.write_bytes(data)
    elif spoil == "other":
        Store(tmp_path).close()
        written_by_version_7(tmp_path)
        copy.write_bytes((tmp_path / "jobs.sqlite").read_bytes())
    else:
        copy.unlink()
    code = refusal(lambda: roll_back(settings(state), 7)).code
    assert code == ("E_STATE_VERSION" if spoil == "gone" else "E_STATE_CORRUPT")
    assert refusal(lambda: roll_back(settings(state), 6)).code == "E_STATE_VERSION"
    assert ids(state) == known


def test_the_command(state: Path) -> None:
    config = state.parent / "node.yaml"
    config.write_text(yaml.safe_dump({"name": "clinic", "role": "active", "listen": "127.0.0.1:0", "insecure_loopback": True}))

    def say(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*words, "--config", str(config)])
        return done.exit_code, done.output + (str(done.exception) if isinstance(done.exception, VflError) else "")

    assert f"version 7 becomes {index.VERSION}, and stays beside it as jobs.sqlite.v7" in say("upgrade", "--check")[1]
    with closing(Store(state)):
        assert "in use by another node" in say("rollback", "--to", "7")[1]
    status, said = say("rollback", "--to", "7")
    assert (status, f"of version 7 (it was {index.VERSION})" in said) == (0, True)
    status, said = say("rollback", "--to", "7")
    assert (status, "nothing needs to be done" in said) == (0, True)
    (state / "jobs.sqlite").write_bytes(b"not a database at all" * 100)
    assert "is damaged" in say("rollback", "--to", "6")[1]
    (state / "jobs.sqlite").unlink()
    assert "no state of a node" in say("rollback", "--to", "7")[1]
