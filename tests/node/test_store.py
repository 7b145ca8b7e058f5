from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from vfl_node.alignment.alignment import Alignment, Memory
from vfl_node.configuration import parse
from vfl_node.errors import StateError, UsageError, VflError
from vfl_node.files import write_whole
from vfl_node.job import Job
from vfl_node.ledger import Learnt
from vfl_node.models import storage
from vfl_node.node.store import JobFolder, Record, Serving, Store
from vfl_node.transport.channel import Traffic

JOB = parse("name: trial\nparties: {active: clinic, passive: lab}\n", Job, source="j")


def test_a_reopened_store_knows_its_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    record = store.add(JOB, submitter="clinic")
    store.update(record, state="done", finished="now")
    other = store.add(JOB, submitter="clinic")
    store.close()
    again = Store(tmp_path / "s")
    assert [r.id for r in again.all()] == [other.id, record.id]
    assert [r.id for r in again.unfinished()] == [other.id]
    assert again.get(record.id).state == "done"  # type: ignore[union-attr]
    assert again.get(record.id).job == JOB  # type: ignore[union-attr]
    assert again.get("none") is None
    again.close()


def test_a_record_names_every_party(tmp_path: Path) -> None:
    text = """\
name: trial
parties: {active: clinic, passive: lab, coordinator: notary}
align: {protocol: psi}
train: {algorithm: logistic, flow: coordinator-clear}
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
    assert folder.load_alignment() is None
    alignment = Alignment(
        protocol="psu",
        group="curve25519",
        rows=np.array([2, -1, 0], dtype=np.int64),
        ours=2,
        theirs=2,
        intersection=1,
        padded=True,
        learnt=(Learnt("set size", 2, "lab holds 2 records"), Learnt("intersection", None, "hidden")),
        peer_learnt=(Learnt("set size", 2, "your 2 records"),),
    )
    folder.save_alignment(alignment, 1.5, Traffic(1, 2, 3, 4))
    loaded = JobFolder(tmp_path / "job").load_alignment()
    assert loaded is not None
    again, seconds, traffic = loaded
    assert again.rows.dtype == np.int64
    assert again.rows.tolist() == [2, -1, 0]
    assert replace(again, rows=alignment.rows) == alignment
    assert (seconds, traffic) == (1.5, Traffic(1, 2, 3, 4))


def test_an_alignment_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    head = {"protocol": "psu", "group": "curve25519", "ours": 1, "theirs": 1, "intersection": 1, "learnt": ["in words"]}
    about = {"alignment": json.dumps(head), "seconds": "1.0", "traffic": "{}"}
    storage.save(folder.path / "alignment.safetensors", {"rows": torch.zeros(1, dtype=torch.int64)}, about)
    with pytest.raises(StateError, match="another version"):
        folder.load_alignment()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        "\xff",
        '{"input": 1, "encoder": "", "serving": ""}',
        '{"input": "", "encoder": "", "serving": ""}',
    ],
)
def test_what_predictions_need_is_read_whole_or_not_at_all(tmp_path: Path, text: str) -> None:
    folder = JobFolder(tmp_path / "job")
    assert folder.serving is None
    serving = Serving(input="0f" * 32, encoder="e", serving="s")
    folder.serve(serving)
    assert folder.serving == serving
    (folder.path / "serving.json").write_text(text, encoding="latin-1")
    with pytest.raises(StateError, match="is damaged") as caught:
        _ = folder.serving
    assert caught.value.code == "E_STATE_CORRUPT"


def test_a_damaged_alignment_is_refused(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    for about in ({}, {"alignment": "{"}):
        storage.save(folder.path / "alignment.safetensors", {"rows": torch.zeros(1, dtype=torch.int64)}, about)
        with pytest.raises(StateError):
            folder.load_alignment()


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
