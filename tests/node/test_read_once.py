"""A run reads each party's table once, and nobody else reads it: what training will take is told by whoever has read it."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import command
from vfl_node.execution.simulation import simulate

IN_OPEN, IN_CLOSE_NOWRITE, IN_NONBLOCK = 0x20, 0x10, 0o4000
EVENT = struct.Struct("iIII")

LIBC = ctypes.CDLL(None, use_errno=True)


@contextmanager
def opened(files: Mapping[str, Path]) -> Iterator[dict[str, int]]:
    """How often any process opens each file meanwhile, one after the other: name → times, as the kernel counts them."""
    watcher = LIBC.inotify_init1(IN_NONBLOCK)
    assert watcher >= 0, os.strerror(ctypes.get_errno())
    events_of_a_reader = IN_OPEN | IN_CLOSE_NOWRITE  # two events of one kind in a row would be reported as one
    watched = {LIBC.inotify_add_watch(watcher, os.fsencode(path), events_of_a_reader): name for name, path in files.items()}
    times = dict.fromkeys(files, 0)
    try:
        yield times
        events, place = os.read(watcher, 1 << 16), 0
        while place < len(events):
            number, kind, _, length = EVENT.unpack_from(events, place)
            times[watched[number]] += bool(kind & IN_OPEN)
            place += EVENT.size + length
    finally:
        os.close(watcher)


def test_control_every_opening_is_counted(trial: Any) -> None:
    with opened(trial.files) as times:
        trial.lab.read_bytes()
        trial.lab.read_bytes()
        trial.clinic.read_bytes()
    assert times == {"clinic": 1, "lab": 2}


def test_a_simulation_reads_each_table_once_and_tells_what_training_takes(trial: Any, tmp_path: Path) -> None:
    views: list[dict[str, Any]] = []
    with opened(trial.files) as times:
        simulate(trial.job(), trial.files, tmp_path, on_view=views.append)
    assert times == {"clinic": 1, "lab": 1}
    assert views[0]["remark"].startswith("this job trains on the union: 140 rows per epoch")  # 200, 60 held out
    assert "; the intersection would take 84 rows" in views[0]["remark"]  # 120
    assert views[-1]["remark"].startswith("training on the union: 140 rows per epoch")
    assert not any(item in views[0]["remark"] for item in trial.ids)


@pytest.mark.parametrize("options", [[], pytest.param(["--in-process"], marks=pytest.mark.slow)])
def test_run_reads_each_table_once(options: list[str], trial: Any, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(trial.job().canonical())
    data = [f"--data={name}={path}" for name, path in trial.files.items()]
    with opened(trial.files) as times:
        result = command("run", job, *data, "--out", tmp_path / "out", *options)
    assert result.returncode == 0, result.stderr
    assert times == {"clinic": 1, "lab": 1}
    assert "training on the union: 140 rows per epoch" in result.stderr
