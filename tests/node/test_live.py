"""What a job's owner sees of it while it runs."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vfl_node.errors import Cancelled
from vfl_node.node.meeting import Meeting
from vfl_node.node.service import Node
from vfl_node.run.live import ALONE, AT_REST, LiveProgress, Stop
from vfl_node.settings import Settings
from vfl_node.transport.channel import Channel
from vfl_node.transport.streams import StreamPipe


def channel(pipe: Any, peer: str, job_id: str) -> Channel:
    """As a node's peers make it."""
    return Channel(pipe, peer=peer, job_id=job_id)


@pytest.fixture
def progress() -> LiveProgress:
    return LiveProgress("job", Stop())


def test_a_live_view_has_the_keys_of_one_at_rest(progress: LiveProgress) -> None:
    assert progress.snapshot() == AT_REST | {"phase": "waiting"}


def test_figures_stay_until_newer_ones_are_known(progress: LiveProgress) -> None:
    progress.note(loss=0.5, attacks={"spectral": 0.51, "longitudinal": None})
    progress.note(local_loss=0.4)
    view = progress.snapshot()
    assert (view["loss"], view["attacks"]) == (0.5, {"spectral": 0.51, "longitudinal": None})
    assert view["note"] == ALONE
    progress.note(attacks={"spectral": 0.6})  # a party that is not told the loss
    view = progress.snapshot()
    assert (view["loss"], view["attacks"], view["note"]) == (0.5, {"spectral": 0.6}, "")
    progress.note(loss=0.3, attacks={})
    assert progress.snapshot()["attacks"] == {"spectral": 0.6}


def test_a_remark_outlives_phases_and_a_note_does_not(progress: LiveProgress) -> None:
    progress.remark("training on the union")
    progress.say("waiting for lab")
    progress.phase("train", 10, "batches")
    progress.advance(3)
    view = progress.snapshot()
    assert (view["remark"], view["note"], view["done"]) == ("training on the union", "", 3)


def test_what_is_shown_does_not_change_behind_the_reader(progress: LiveProgress) -> None:
    given = {"spectral": 0.51}
    progress.note(attacks=given)
    view = progress.snapshot()
    given["spectral"] = 0.9
    progress.note(attacks={"row_loss": 0.7})
    assert view["attacks"] == {"spectral": 0.51}
    assert AT_REST["attacks"] == {}


def test_a_stop_is_heard_at_an_epochs_end() -> None:
    stop = Stop()
    progress = LiveProgress("job", stop)
    stop.ask(Cancelled("cancelled"))
    with pytest.raises(Cancelled):
        progress.note(loss=0.1)
    progress.remark("training on the union")  # says no more than what is so


def test_a_conversation_that_has_ended_is_kept_by_nobody() -> None:
    """A job may have thousands of attempts."""
    stop, attempts = Stop(), []
    for _ in range(3):
        with Meeting("job", ["lab"], SimpleNamespace(channel=channel), stop, LiveProgress("job", stop)) as meeting:  # type: ignore[arg-type]
            pipe = StreamPipe("lab")
            pipe.finish()
            meeting.add("lab", pipe)
            attempts.append(weakref.ref(pipe))
    del meeting, pipe
    gc.collect()
    assert [attempt() for attempt in attempts] == [None, None, None]


def test_a_token_is_what_its_file_says_however_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of-the-owner\n")
    node = Node(Settings(name="lab", role="passive", insecure_loopback=True, http=None, state_dir=tmp_path, device="cpu"))
    node._store.close()
    assert node.token == "of-the-owner"


def test_prometheus_reads_the_audit_of_running_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(
        Settings(name="lab", role="passive", insecure_loopback=True, listen="127.0.0.1:0", state_dir=tmp_path, device="cpu")
    )
    attacks = {"longitudinal": None, "spectral": 0.51}
    views = [AT_REST | {"id": state, "state": state, "attacks": attacks} for state in ("running", "failed")]
    monkeypatch.setattr(node._jobs, "views", lambda: views)
    lines = [line for line in node.metrics_text().decode().splitlines() if line.startswith("vfl_attack_auc")]
    node._store.close()
    assert lines == ['vfl_attack_auc{attack="spectral",job="running"} 0.51']
