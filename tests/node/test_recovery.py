"""A job cut off after any message ends, once begun again, with the bytes of one that never was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vfl_node.crypto.randomness import Randomness
from vfl_node.data.tables import read_table
from vfl_node.errors import PeerLost, VflError
from vfl_node.node.live import LiveProgress, Stop
from vfl_node.node.party import Part, play
from vfl_node.node.store import JobFolder
from vfl_node.settings import Data, Settings
from vfl_node.transport.channel import memory_channels, run_together

ROLES = {"clinic": "active", "lab": "passive"}
JOB = """\
train: {bottom: [8], active_bottom: [4], top: [8], epochs: 15, batch_size: 32, missing: {calibration: test}}
evaluate: {test_fraction: 0.3, repeats: 2}
"""


class Cut:
    """A pipe whose party dies when it has sent or received ``left`` frames."""

    def __init__(self, pipe: Any, left: int) -> None:
        self._pipe = pipe
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise PeerLost("cut off by the test")

    async def put(self, frame: Any) -> None:
        self._count()
        await self._pipe.put(frame)

    async def get(self) -> Any:
        self._count()
        return await self._pipe.get()

    def close(self) -> None:
        self._pipe.close()


def attempt(trial: Any, folder: Path, number: int, victim: str = "", left: int = 1 << 30) -> tuple[list[Any], int]:
    """One attempt of both parties from what their folders hold; results, and frames the victim has left."""
    channels = dict(zip(ROLES, memory_channels("clinic", "lab", job_id="trial"), strict=True))
    runs, cut = [], None
    for name, channel in channels.items():
        if name == victim:
            cut = channel._pipe = Cut(channel._pipe, left)  # type: ignore[assignment]
        role = ROLES[name]
        data = Data(path=trial.files[name], label="label" if role == "active" else None)
        settings = Settings(name=name, role=role, data=data, insecure_loopback=True, device="cpu")
        table = read_table(data, id_form="text", needs_label=role == "active", party=name)
        seed, store = Randomness(name[:1].encode() * 32), JobFolder(folder / name)
        progress = LiveProgress("trial", Stop())
        part = Part.on_this_machine(settings, trial.job(JOB), "trial", table, seed, store, progress, attempt=number)
        runs.append((play(part, channel), channel))
    return run_together(*runs), cut.left if cut else 0


def outcome(folder: Path) -> list[Any]:
    """What must not depend on how often the job was cut off."""
    found: list[Any] = []
    for name in ROLES:
        artefacts = JobFolder(folder / name).artefacts
        report = json.loads((artefacts / "report.json").read_text())
        losses = [(epoch["loss"], epoch["auc"]) for epoch in report["training"]["epochs"]]
        found += [(artefacts / "model.safetensors").read_bytes(), report["metrics"], report["local_metrics"], losses]
    return found


@pytest.fixture(scope="module")
def clean(trial: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], int]:
    folder = tmp_path_factory.mktemp("clean")
    results, left = attempt(trial, folder, 1, "lab", 1 << 20)
    assert results == [None, None]
    return outcome(folder), (1 << 20) - left


@pytest.mark.parametrize("victim", ["clinic", "lab"])
@pytest.mark.parametrize("moment", [0.0, 0.004, 0.01, 0.02, 0.03, 0.05, 0.2, 0.45, 0.55, 0.9, 0.995, 1.0])
def test_cut_off_at_any_moment(trial: Any, clean: tuple[list[Any], int], tmp_path: Path, victim: str, moment: float) -> None:
    expected, frames = clean
    results, _ = attempt(trial, tmp_path, 1, victim, int(moment * frames))
    finished = all((JobFolder(tmp_path / name).artefacts / "report.json").exists() for name in ROLES)
    if not finished:
        assert any(isinstance(result, VflError) for result in results)
        attempt(trial, tmp_path, 2, victim, int((0.3 + moment / 2) * frames))  # and once more
        results, _ = attempt(trial, tmp_path, 3)
        assert results == [None, None]
    assert outcome(tmp_path) == expected
