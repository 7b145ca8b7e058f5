from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs

from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.configuration.models import parse
from vfl_node.errors import StateError, UsageError, VflError
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.outcome import SUMS
from vfl_node.job import Job
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.ledger import Disclosure
from vfl_node.models import storage
from vfl_node.node import index
from vfl_node.node.pruning import HourlyPruning
from vfl_node.node.record import Record
from vfl_node.node.states import UNFINISHED
from vfl_node.node.store import Store
from vfl_node.process.files import write_whole
from vfl_node.process.machine import utc_now
from vfl_node.session.memory import Memory
from vfl_node.settings.retention import Retention
from vfl_node.training.prediction.stored import FileTally, StoredPredictor
from vfl_node.training.predictor import ServiceCount
from vfl_node.transport.pipe import Traffic

JOB = parse("name: trial\nparties: {active: clinic, passive: lab}\n", Job, source="j")


def test_every_change_of_a_job_changes_what_others_remember_of_it_by(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    seen = [store.changes]
    record = store.add(JOB, submitter="clinic")
    seen.append(store.changes)
    record = store.update(record, state="failed")
    seen.append(store.changes)
    store.end(replace(record, finished="now"))
    seen.append(store.changes)
    store.remove(record)
    assert sorted({*seen, store.changes}) == [*seen, store.changes]
    before = store.changes
    assert store.records() == []
    assert store.changes == before
    store.close()


def test_a_reopened_store_knows_its_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    record = store.add(JOB, submitter="clinic")
    store.update(record, state="done", finished="now")
    other = store.add(JOB, submitter="clinic")
    store.close()
    again = Store(tmp_path / "s")
    assert [r.id for r in again.records()] == [other.id, record.id]
    assert [r.id for r in again.standing(*UNFINISHED)] == [other.id]
    assert again.get(record.id).state == "done"  # type: ignore[union-attr]
    assert again.get(record.id).job == JOB  # type: ignore[union-attr]
    assert again.get("none") is None
    again.close()


def test_a_transaction_on_a_full_disk_names_that_and_not_what_follows_from_it(tmp_path: Path) -> None:
    """SQLite ends the transaction itself then, and has nothing left to roll back."""
    store = Store(tmp_path / "s")
    store.add(JOB, submitter="clinic", job_id="first")
    pages = store._index._db.execute("PRAGMA page_count").fetchone()[0]
    store._index._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StateError) as caught:
        store.add(JOB, submitter="clinic", job_id="second", documents={"manifest": b"x" * (1 << 20)})
    assert caught.value.code == "E_DISK_FULL", caught.value.message
    assert "rollback" not in caught.value.message

    def break_off() -> None:
        with store._index.transaction():
            store._index.prune("first", "done")
            raise KeyError

    with pytest.raises(KeyError):  # an error of another kind still takes back what was written
        break_off()
    assert [record.id for record in store.records()] == ["first"]
    store.close()


def test_jobs_of_one_second_keep_their_order_whichever_changes(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    records = [store.add(JOB, submitter="clinic") for _ in range(3)]
    for record in (records[1], records[0]):
        store.update(record, state="paused", submitted=records[2].submitted)
    assert [record.id for record in store.standing(*UNFINISHED)] == [record.id for record in records]
    store.close()


def test_the_index_is_for_its_user_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path / "s")
        store.add(JOB, submitter="clinic")
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "s").glob("jobs.sqlite*")}
        assert modes == dict.fromkeys(("jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm"), 0o600)
        store.close()
        (tmp_path / "s" / "jobs.sqlite").chmod(0o644)  # as an earlier release left it
        store = Store(tmp_path / "s")
        assert stat.S_IMODE((tmp_path / "s" / "jobs.sqlite").stat().st_mode) == 0o600
        store.close()
    finally:
        os.umask(before)


def test_a_record_names_every_party(tmp_path: Path) -> None:
    text = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, flow: coordinator-open-scores}
"""
    store = Store(tmp_path)
    assert store.add(JOB, submitter="clinic").parties == ["clinic", "lab"]
    assert store.add(parse(text, Job, source="j"), submitter="clinic").parties == ["clinic", "lab", "notary"]
    store.close()


def test_two_nodes_cannot_share_a_state_folder(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(UsageError, match=r"in use by another node \(process \d+\)") as caught:
        Store(tmp_path)
    assert caught.value.code == "E_STATE_LOCKED"
    store.close()
    Store(tmp_path).close()


def test_a_store_of_an_earlier_release_is_brought_up_to_date(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as old:
        old.execute(index.MIGRATIONS[0][0])
        row = ("old-1", "ötr", "clinic", JOB.canonical(), "done", 3, "then", None, None, "said é", None)
        old.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        old.commit()
    for _ in range(2):
        store = Store(tmp_path)
        (record,) = store.records()
        assert (record.id, record.name, record.attempt, record.deaths, record.damaged) == ("old-1", "ötr", 3, 0, False)
        assert record.job == JOB
        store.close()


@contextmanager
def an_earlier_index(folder: Path, version: int) -> Iterator[sqlite3.Connection]:
    """The index as the release of this version made it, to be filled."""
    with closing(sqlite3.connect(folder / "jobs.sqlite")) as old:
        old.create_function("digest", -1, lambda *values: index._digest(values).decode(), deterministic=True)
        for step in chain.from_iterable(index.MIGRATIONS[:version]):
            old.execute(step)
        yield old
        old.execute(f"PRAGMA user_version = {version}")
        old.commit()


def test_a_damaged_row_of_an_earlier_release_stays_one_and_no_other_is(tmp_path: Path) -> None:
    with an_earlier_index(tmp_path, 4) as old:
        for number in (1, 2):
            row = (f"old-{number}", "ötr", "clinic", JOB.canonical(), "done", 3, "then", None, None, "said é", None, 0)
            old.execute(f"INSERT INTO jobs VALUES ({', '.join('?' * 13)})", (*row, index._digest(row).decode()))
        old.execute("UPDATE jobs SET name = CAST(x'FF41' AS TEXT) WHERE id = 'old-2'")  # a flipped bit, no UTF-8 any more
    store = Store(tmp_path)
    assert {record.id: record.damaged for record in store.records()} == {"old-1": False, "old-2": True}
    store.close()


def test_a_store_without_persons_keeps_its_rows(tmp_path: Path) -> None:
    with an_earlier_index(tmp_path, 5) as old:
        names = (*index.COLUMNS[:-1], "sha256")
        for number, figures in ((1, None), (2, '{"metric": "é"}'), (3, "{}")):
            row = (f"old-{number}", "ötr", "clinic", JOB.canonical(), "done", 3, "then", None, None, "é", None, 0, figures)
            cells = (*row, index._digest(row).decode())
            old.execute(f"INSERT INTO jobs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", cells)
        old.execute("UPDATE jobs SET figures = CAST(x'FF41' AS TEXT) WHERE id = 'old-3'")
    store = Store(tmp_path)
    assert {record.id: record.damaged for record in store.records()} == {"old-1": False, "old-2": False, "old-3": True}
    record = store.add(JOB, submitter="clinic", person="anna")
    assert (store.record(record.id).person, store.record("old-2").person) == ("anna", None)
    store.close()


def test_what_an_earlier_release_kept_without_checksums_is_said_to_be_of_it_and_never_removed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = store.update(store.add(JOB, submitter="clinic"), state="done")
    folder = store.job_folder(record)
    folder.artefacts.mkdir()
    for name in ("seed", "pins.json", "serving.json", "alignment.safetensors"):
        (folder.path / name).write_bytes(bytes(32))
    with pytest.raises(StateError, match="earlier vfl-node") as caught:
        folder.seed(first=False)
    assert caught.value.code == "E_STATE_VERSION"
    store.destroy_secrets(record)  # as whenever the node starts
    assert {path.name for path in folder.path.iterdir()} == {"artefacts", "serving.json", "alignment.safetensors"}
    assert store.prune(Retention(jobs_keep=0), dry=True) == []
    with pytest.raises(StateError, match="kept by an earlier") as caught:
        _ = folder.predictor
    assert caught.value.code == "E_STATE_VERSION"
    folder.forget_predictor()
    assert folder.predictor is None
    store.close()


@pytest.mark.parametrize("change", ["state = 'done'", "attempt = attempt + 1", "spec = x'ff00'", "submitted = NULL || ''"])
def test_a_row_that_is_damaged_is_shown_as_such_and_hides_no_other(tmp_path: Path, change: str) -> None:
    store = Store(tmp_path)
    first, second = (store.add(JOB, submitter="clinic") for _ in range(2))
    folder = store.job_folder(first)
    folder.seed()
    with suppress(sqlite3.IntegrityError):
        store._index._db.execute(f"UPDATE jobs SET {change} WHERE id = ?", [first.id])
    if "NULL" in change:
        store._index._db.execute("UPDATE jobs SET sha256 = 'x' WHERE id = ?", [first.id])
    shown = {record.id: record for record in store.records()}
    assert shown[second.id] == second
    damaged = shown[first.id]
    assert (damaged.state, damaged.code, damaged.damaged, damaged.parties) == ("failed", "E_STATE_CORRUPT", True, [])
    assert not damaged.over  # what its folder holds stays for the owner to restore
    assert not damaged.resumable
    assert store.standing(*UNFINISHED) == [second]
    store.close()


def test_any_byte_of_the_index_that_changes_is_named_or_does_no_harm(tmp_path: Path) -> None:
    store = Store(tmp_path / "whole")
    records = [store.add(JOB, submitter="clinic") for _ in range(3)]
    expected = store.records()
    store.close()
    whole = (tmp_path / "whole" / "jobs.sqlite").read_bytes()
    named, codes = 0, set()
    for place in range(0, len(whole), 211):
        data = bytearray(whole)
        data[place] ^= 0x10
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / "jobs.sqlite").write_bytes(data)
        try:
            store = Store(folder)
        except StateError as error:
            codes.add(error.code)
            named += 1
            continue
        found = store.records()
        store.close()
        if found != expected:
            named += 1
            assert any(record.damaged for record in found)
            assert {record for record in found if not record.damaged} <= set(records)
    assert named > 5
    assert codes <= {"E_STATE_CORRUPT", "E_STATE_VERSION"}


def test_a_state_folder_that_goes_away_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    record = store.add(JOB, submitter="clinic")
    (tmp_path / "state").rename(tmp_path / "elsewhere")
    for act in (store.check_there, lambda: store.add(JOB, submitter="clinic"), lambda: store.update(record, state="running")):
        with pytest.raises(StateError, match="is gone") as caught:
            act()
        assert caught.value.code == "E_STATE_LOST"
    assert not (tmp_path / "state").exists()  # nor is it begun anew
    (tmp_path / "elsewhere").rename(tmp_path / "state")
    store.check_there()
    store.close()


def test_a_damaged_index_is_reported(tmp_path: Path) -> None:
    (tmp_path / "jobs.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(VflError) as caught:
        Store(tmp_path)
    assert caught.value.code == "E_STATE_CORRUPT"


def test_secrets_are_private_repeatable_and_destroyed(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    seed = folder.seed()
    assert JobFolder(tmp_path / "job").seed() == seed
    assert JobFolder(tmp_path / "other").seed() != seed
    assert stat.S_IMODE((folder.path / "seed").stat().st_mode) == 0o600
    folder.artefacts.mkdir()
    folder.checkpoints.mkdir()
    folder.check("x", b"1")
    folder.destroy_secrets()
    assert [entry.name for entry in folder.path.iterdir()] == ["artefacts"]


def test_pins_refuse_another_digest(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.check("step 11", b"a")
    JobFolder(tmp_path / "job").check("step 11", b"a")
    with pytest.raises(StateError) as caught:
        JobFolder(tmp_path / "job").check("step 11", b"b")
    assert caught.value.code == "E_REPLAY"
    folder.check_input("clinic", b"\xaa" * 32)
    with pytest.raises(StateError) as caught:
        folder.check_input("clinic", b"\xbb" * 32)
    assert caught.value.code == "E_INPUT_CHANGED"
    assert "aaaaaaaaaaaa" in caught.value.message
    assert "bbbbbbbbbbbb" in caught.value.message


def test_alignment_is_kept(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    assert folder.load_alignment(["lab"]) is None
    alignment = Alignment(
        spec=ALIGNMENTS["psu"],
        group="curve25519",
        rows=np.array([2, -1, 0], dtype=np.int64),
        ours=2,
        peers={"lab": PeerFacts(2, intersection=1, padded=True, learnt=(Disclosure("set size", 2, "your 2 records"),))},
        union=3,
        learnt=(Disclosure("set size", 2, "lab holds 2 records"), Disclosure("intersection", None, "hidden")),
    )
    folder.save_alignment(alignment, 1.5, Traffic(1, 2, 3, 4))
    loaded = JobFolder(tmp_path / "job").load_alignment(["lab"])
    assert loaded is not None
    again, seconds, traffic = loaded
    assert again.rows.dtype == np.int64
    assert again.rows.tolist() == [2, -1, 0]
    assert replace(again, rows=alignment.rows) == alignment
    assert (seconds, traffic) == (1.5, Traffic(1, 2, 3, 4))


def test_an_alignment_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    head = {"protocol": "psu", "group": "curve25519", "ours": 1, "theirs": 1, "intersection": 1, "learnt": ["in words"]}
    for about in ({"alignment": json.dumps(head), "seconds": "1.0", "traffic": "{}"}, {}, {"alignment": "{"}):
        storage.keep(folder.path / "alignment", {"rows": torch.zeros(1, dtype=torch.int64)}, about)
        with pytest.raises(StateError, match="another version") as caught:
            folder.load_alignment(["lab"])
        assert caught.value.code == "E_STATE_VERSION"


def kept_files(folder: JobFolder) -> dict[str, Any]:
    """Everything a job keeps for itself, by the name of its file: how it is read back."""
    serving = StoredPredictor(input="0f" * 32, encoder="e", serving="s")
    folder.seed()
    folder.check("step", b"x")
    folder.keep_predictor(serving)
    folder.keep_request(b"id\na\n")
    alignment = Alignment(ALIGNMENTS["psu"], "curve25519", np.arange(3), 3, {"lab": PeerFacts(3, intersection=3, missing=0)})
    folder.save_alignment(alignment, 1.0, Traffic())
    FileTally(folder.path).write(ServiceCount(256, batches=1))
    folder.artefacts.mkdir()
    (folder.artefacts / "model.safetensors").write_bytes(b"weights")
    folder.seal()
    model = lambda: folder.artefact("model.safetensors")  # noqa: E731
    return {
        "seed": folder.seed,
        "pins": lambda: folder.check("step", b"x"),
        "serving": lambda: folder.predictor,
        "request": lambda: folder.request,
        "alignment": lambda: folder.load_alignment(["lab"]),
        "served": FileTally(folder.path).read,
        "artefacts/model.safetensors": model,
        f"artefacts/{SUMS}": model,
    }


def test_a_bit_that_flips_in_any_file_is_named(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    readers = kept_files(folder)
    assert {str(path.relative_to(folder.path)) for path in folder.path.rglob("*") if path.is_file()} == set(readers)
    for name, read in readers.items():
        read()
        path = folder.path / name
        whole = path.read_bytes()
        for place in range(0, 8 * len(whole) - 8, 7):  # but for a line's end
            damaged = bytearray(whole)
            damaged[place // 8] ^= 1 << place % 8
            path.write_bytes(damaged)
            with pytest.raises(StateError) as caught:
                read()
            assert caught.value.code == "E_STATE_CORRUPT", name
            assert str(tmp_path) not in caught.value.for_peer
        path.write_bytes(whole)
        read()


def test_what_predictions_need_is_kept_or_not(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    assert folder.predictor is None
    assert folder.request is None
    serving = StoredPredictor(input="0f" * 32, encoder="e", serving="s")
    folder.keep_predictor(serving)
    assert folder.predictor == serving


def test_a_wish_to_cancel_lasts_until_the_job_has_ended(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    assert not folder.cancelled
    folder.cancel()
    assert JobFolder(tmp_path / "job").cancelled
    folder.destroy_secrets()
    assert not folder.cancelled


def test_partners_are_remembered_beyond_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    memory: Memory = store.partner("lab")
    memory.keep("set", b"ids")
    assert store.partner("lab") is memory  # one lock for all jobs
    record = store.add(JOB, submitter="clinic")
    store.job_folder(record).destroy_secrets()
    store.close()
    again = Store(tmp_path)
    assert again.partner("lab").recall("set") == b"ids"
    assert (tmp_path / "partners" / "lab").is_dir()
    again.close()


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_whole(path, b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize(
    ("state", "code", "resumable"),
    [
        ("failed", "E_PEER_ABSENT", True),
        ("failed", "E_WORKER", True),
        ("failed", "E_DATA", False),
        ("cancelled", "E_WORKER", False),
    ],
)
def test_what_may_go_on(state: str, code: str, resumable: bool) -> None:
    record = Record(id="a", name="a", submitter="a", spec="{}", state=state, code=code)  # type: ignore[arg-type]
    assert record.resumable is resumable


def test_the_state_folder_becomes_private(tmp_path: Path) -> None:
    """Also one that an owner made, with the mode that folders have by default."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    Store(folder).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_jobs_that_have_ended_are_pruned_by_age_and_number(tmp_path: Path) -> None:
    store = Store(tmp_path)
    long_ago = "2020-01-01T00:00:00+00:00"

    def job(state: str, **changes: Any) -> Record:
        record = store.update(store.add(JOB, submitter="clinic"), state=state, **changes)
        store.job_folder(record).artefacts.mkdir()
        return record

    old = job("done", finished=long_ago)
    served = job("done", finished=long_ago)
    store.job_folder(served).keep_predictor(StoredPredictor(input="0f" * 32, encoder="e", serving="s"))
    resumable = job("failed", finished=long_ago, code="E_DISK_FULL")
    running = job("running", submitted=long_ago)
    newest = job("cancelled", finished=utc_now())
    assert store.prune(Retention(jobs_days=1), dry=True) == [old.id]
    assert len(store.records()) == 5
    assert store.prune(Retention(jobs_days=1)) == [old.id]
    assert not (tmp_path / "jobs" / old.id).exists()
    assert {record.id for record in store.records()} == {served.id, resumable.id, running.id, newest.id}
    assert store.pruned_state(old.id)
    assert not store.pruned_state(newest.id)
    assert store.prune(Retention(jobs_keep=0)) == [newest.id]
    assert store.prune(Retention(models_days=1e5)) == []
    assert store.prune(Retention(models_days=1), dry=True) == [served.id]
    assert store.prune(Retention(jobs_keep=0), models=True) == [served.id]
    store.close()
    again = Store(tmp_path)
    assert {record.id for record in again.records()} == {resumable.id, running.id}
    assert again.pruned_state(served.id)
    again.close()


def test_a_model_is_named_once_before_it_is_pruned(tmp_path: Path) -> None:
    store, days_ago = Store(tmp_path), {"old": 31, "soon": 20, "young": 10}
    jobs: dict[str, str] = {}
    for name, days in days_ago.items():
        finished = (datetime.now(timezone.utc) - timedelta(days=days)).isoformat()
        record = store.update(store.add(JOB, submitter="clinic"), state="done", finished=finished)
        store.job_folder(record).keep_predictor(StoredPredictor(input="0f" * 32, encoder="e", serving="s"))
        jobs[name] = record.id
    kept = HourlyPruning(Retention(), store.prune, store)
    every_hour = HourlyPruning(Retention(models_days=30), store.prune, store)
    with capture_logs() as logs:
        kept.run()
        assert len(store.records()) == 3
        for _ in range(2):
            every_hour.run()
    assert {record.id for record in store.records()} == {jobs["soon"], jobs["young"]}
    assert [entry["job"] for entry in logs] == [jobs["soon"]]
    store.close()


def test_a_job_at_rest_is_small(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = store.add(JOB, submitter="clinic")
    folder = store.job_folder(record)
    kept_files(folder)
    folder.forget_predictor()
    store.end(replace(record, state="done"))
    beside = [path for path in folder.path.rglob("*") if path.is_file() and folder.artefacts not in path.parents]
    assert sum(path.stat().st_size for path in beside) < 20_000
    store.close()
