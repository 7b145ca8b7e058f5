"""A job cut off after any message ends, once begun again, with the bytes of one that never was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.thorough import every
from vfl_node.alignment.lists.columns import Columns
from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.reading import read_table
from vfl_node.errors import PeerLost, StateError, VflError
from vfl_node.execution import train
from vfl_node.execution.conversations import conversations
from vfl_node.execution.folder import JobFolder
from vfl_node.execution.live import LiveProgress, Stop
from vfl_node.execution.run import set_up
from vfl_node.execution.trial import Trial
from vfl_node.node import partners
from vfl_node.node.partners import Partner
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.protection import NO_TREE
from vfl_node.training.network import journal
from vfl_node.transport.memory import memory_channels, run_together

ROLES = {"clinic": "active", "lab": "passive"}
JOB = """\
train: {bottom: [8], active_bottom: [4], top: [8], epochs: 6, batch_size: 32, missing: {calibration: test}}
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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipe, name)


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    """Lists in several chunks each, and several checkpoints."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Curve25519, "chunk_rows", 50)
        patch.setattr(journal, "STEPS_BETWEEN", 10)
        patch.setattr(partners, "secrets", SimpleNamespace(token_bytes=lambda count: b"p" * count))  # so that runs compare
        yield


def attempt(
    trial: Any,
    folder: Path,
    number: int,
    victim: str = "",
    left: int = 1 << 30,
    *,
    job: str = JOB,
    defences: Sequence[Mapping[str, Any]] = (),
    asked: Trial | None = None,
) -> tuple[list[Any], int]:
    """One attempt of both parties from what their folders hold; results, and frames the victim has left."""
    channels = dict(zip(ROLES, memory_channels("clinic", "lab", job_id="trial"), strict=True))
    runs, cut = [], None
    for name, channel in channels.items():
        if name == victim:
            cut = channel._pipe = Cut(channel._pipe, left)  # type: ignore[assignment]
        role = ROLES[name]
        data = Data(path=trial.files[name], label="label" if role == "active" else None)
        own = {"compare": NO_TREE} if role == "active" else {}
        settings = Settings(name=name, role=role, data=data, insecure_loopback=True, device="cpu", defences=defences, **own)
        table = read_table(data, id_form="text", needs_label=role == "active", party=name)
        seed, store = Randomness(name[:1].encode() * 32), JobFolder(folder / name, asked)
        progress = LiveProgress("trial", Stop())
        peer = next(other for other in ROLES if other != name)
        memory = Partner(folder / "partners" / name, peer)
        run = set_up(settings, trial.job(job), "trial", table, seed, store, progress, number, {peer: memory}, {peer: channel})
        runs += [(protocol, channel) for protocol in conversations(run)]
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


MOMENTS = (0.0, 0.004, 0.01, 0.02, 0.03, 0.05, 0.2, 0.45, 0.55, 0.9, 0.995, 1.0)
SOME = [("clinic", 0.01), ("lab", 0.55), ("clinic", 0.995)]  # while they align, train and end
MORE = [pytest.param(*of, marks=pytest.mark.slow) for of in product(ROLES, MOMENTS) if of not in SOME]


@pytest.mark.parametrize(("victim", "moment"), [*SOME, *MORE])
def test_cut_off_at_any_moment(trial: Any, clean: tuple[list[Any], int], ram: Path, victim: str, moment: float) -> None:
    expected, frames = clean
    results, _ = attempt(trial, ram, 1, victim, int(moment * frames))
    finished = all((JobFolder(ram / name).artefacts / "report.json").exists() for name in ROLES)
    if not finished:
        assert any(isinstance(result, VflError) for result in results)
        attempt(trial, ram, 2, victim, int((0.3 + moment / 2) * frames))  # and once more
        results, _ = attempt(trial, ram, 3)
        assert results == [None, None]
    assert outcome(ram) == expected


STOPPED = """\
train: {bottom: [16], active_bottom: [8], top: [16], epochs: 40, patience: 2, batch_size: 32, learning_rate: 0.1}
evaluate: {test_fraction: 0.3, validation_fraction: 0.2, repeats: 2}
"""


@pytest.mark.parametrize("victim", ["clinic", pytest.param("lab", marks=pytest.mark.slow)])
def test_a_training_that_stops_early_does_so_after_any_cut(trial: Any, ram: Path, victim: str) -> None:
    """Among others just before and after the messages that end an epoch."""
    results, left = attempt(trial, ram / "clean", 1, victim, 1 << 20, job=STOPPED)
    assert results == [None, None]
    frames, expected = (1 << 20) - left, outcome(ram / "clean")
    report = json.loads((JobFolder(ram / "clean" / victim).artefacts / "report.json").read_text())
    ends = report["training"]["split"]["early_stopping"]
    assert max(ends["last_epochs"]) < 40
    for moment, cut in every(3, list(product((0.45, 0.9), (1, 2)))):
        folder = ram / f"{moment} {cut}"
        attempt(trial, folder, 1, victim, int(moment * frames) + cut, job=STOPPED)
        assert attempt(trial, folder, 2, job=STOPPED)[0] == [None, None]
        assert outcome(folder) == expected


RECORDED = JOB.replace("epochs: 6, batch_size: 32", "epochs: 4, batch_size: 16")


@pytest.mark.parametrize("victim", [pytest.param("clinic", marks=pytest.mark.slow), "lab"])
def test_what_is_recorded_stands_once_after_any_cut(
    trial: Any, ram: Path, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "STEPS_BETWEEN", 1)  # a checkpoint after each epoch, however short
    asked = Trial(transcript=True)
    results, left = attempt(trial, ram / "clean", 1, victim, 1 << 20, job=RECORDED, asked=asked)
    assert results == [None, None]
    frames, clean = (1 << 20) - left, embeddings_of(ram / "clean", asked).read_bytes()
    assert len(clean) == 8 + 2 * 4 * 140 * (5 * 8 + 2 * 4 * 8)  # repeats · epochs · rows · (five numbers; embedding, gradient)
    longer = 0
    for moment in (0.5, 0.6, 0.9):  # in the first repeat, and in the second
        folder = ram / str(moment)
        attempt(trial, folder, 1, victim, int(moment * frames), job=RECORDED, asked=asked)
        recorded = embeddings_of(folder, asked)
        newest = max((path.stem for path in (folder / "lab" / "checkpoints").glob("*.checkpoint")), default="r000-e000000")
        epochs = 4 * int(newest[1:4]) + int(newest[-6:])
        longer += recorded.stat().st_size > 8 + epochs * 140 * (5 * 8 + 2 * 4 * 8)
        assert attempt(trial, folder, 2, job=RECORDED, asked=asked)[0] == [None, None]
        assert recorded.read_bytes() == clean
    assert longer  # some attempt had written rows after its last checkpoint


def embeddings_of(folder: Path, asked: Trial) -> Path:
    return JobFolder(folder / "lab", asked).transcript / "embeddings"


JOBS = {
    "psu": "align: {protocol: psu}",
    "psi": "align: {protocol: psi}",
    "apsi": "align: {protocol: apsi, obfuscation: {fraction: 0.9}}",
}


def aligned_rows(folder: Path) -> list[list[int]]:
    stored = [JobFolder(folder / name).load_alignment(["peer"]) for name in ROLES]
    return [made[0].rows.tolist() for made in stored if made]


@pytest.mark.parametrize(
    ("protocol", "victim"),
    [
        *(("psu", "clinic"), ("apsi", "lab")),
        *(pytest.param(*of, marks=pytest.mark.slow) for of in (("psu", "lab"), *product(["psi"], ROLES), ("apsi", "clinic"))),
    ],
)
def test_lists_are_kept_until_both_have_the_alignment(trial: Any, ram: Path, protocol: str, victim: str) -> None:
    """Cut off at every message around the end of an alignment: nobody lets go of what the other may still ask for."""
    results, left = attempt(trial, ram / "clean", 1, victim, 1000, job=JOBS[protocol])
    assert results == [None, None]
    frames, expected = 1000 - left, aligned_rows(ram / "clean")
    both = 0
    cuts = every(2, range(frames - 13, frames))
    for last in cuts:
        folder = ram / str(last)
        attempt(trial, folder, 1, victim, last, job=JOBS[protocol])
        kept = len(aligned_rows(folder))
        lists = [any((JobFolder(folder / name).lists).glob("*.rows")) for name in ROLES]
        assert all(lists) or kept == 2
        both += kept == 2
        assert attempt(trial, folder, 2, job=JOBS[protocol])[0] == [None, None]
        assert aligned_rows(folder) == expected
        assert not any(JobFolder(folder / name).lists.exists() for name in ROLES)
    assert 0 < both < len(cuts)  # cuts before and after


def test_too_small_a_disk_is_said_before_any_list(trial: Any, ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Columns, "free_bytes", lambda _: 3 << 30)
    monkeypatch.setattr(Curve25519, "width", 1 << 24)
    results, _ = attempt(trial, ram, 1, job=JOBS["psu"])
    assert all(isinstance(result, StateError) and result.code == "E_DISK_FULL" for result in results)
    assert "needs up to 42.5 GiB in" in results[0].message
    assert "3 GiB are free" in results[0].message
    assert "vfl-node resume" in results[0].hint
    assert all(not path.stat().st_size for name in ROLES for path in JobFolder(ram / name).lists.iterdir())
    monkeypatch.undo()
    monkeypatch.setattr(Curve25519, "chunk_rows", 50)
    assert attempt(trial, ram, 2, job=JOBS["psu"])[0] == [None, None]


@pytest.mark.parametrize("victim", ["clinic", "lab"])
def test_another_table_is_refused_in_the_middle_of_an_alignment(trial: Any, ram: Path, victim: str) -> None:
    attempt(trial, ram, 1, victim, 25, job=JOBS["psu"])
    assert any(JobFolder(ram / victim).lists.glob("*.rows"))
    lines = trial.files[victim].read_text().splitlines(keepends=True)
    changed = ram / "changed.csv"
    changed.write_text("".join([*lines[:-1], lines[-1].replace("canary", "another", 1)]))
    files = trial.files | {victim: changed}
    other = SimpleNamespace(files=files, job=trial.job)
    results = dict(zip(ROLES, attempt(other, ram, 2, job=JOBS["psu"])[0], strict=True))
    assert results[victim].code == "E_INPUT_CHANGED"
    assert isinstance(next(result for name, result in results.items() if name != victim), PeerLost)


@pytest.mark.parametrize("victim", ["clinic", pytest.param("lab", marks=pytest.mark.slow)])
def test_a_job_goes_on_upon_the_device_where_it_began(
    trial: Any, clean: tuple[list[Any], int], ram: Path, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that is not there any more, or another one, is never replaced silently: the result would have other bits."""
    expected, frames = clean
    with monkeypatch.context() as patch:
        patch.setattr(train, "device_name", lambda _: "NVIDIA H200")
        attempt(trial, ram, 1, victim, int(0.6 * frames))
    results = dict(zip(ROLES, attempt(trial, ram, 2)[0], strict=True))
    refusal = results["clinic"] if results["clinic"].code == "E_DEVICE" else results["lab"]
    assert isinstance(refusal, StateError)
    assert refusal.code == "E_DEVICE"
    assert "computes on cpu" in refusal.message
    assert "H200" not in refusal.for_peer
    monkeypatch.setattr(train, "device_name", lambda _: "NVIDIA H200")
    assert attempt(trial, ram, 3)[0] == [None, None]
    assert outcome(ram) == expected


def test_a_job_goes_on_under_the_defences_with_which_it_began(trial: Any, clean: tuple[list[Any], int], ram: Path) -> None:
    """Else the peer would get the same tensors changed in two ways. What it is told says nothing of defences."""
    weak, strong = ([{"name": "noise", "sigma": sigma}] for sigma in (0.1, 0.2))
    assert attempt(trial, ram / "whole", 1, defences=weak)[0] == [None, None]
    attempt(trial, ram / "cut", 1, "lab", int(0.6 * clean[1]), defences=weak)
    for other in (strong, []):
        results = attempt(trial, ram / "cut", 2, defences=other)[0]
        refusal = next(result for result in results if isinstance(result, StateError))
        assert refusal.code == "E_DEFENCES"
        assert "defence" not in refusal.for_peer
    assert attempt(trial, ram / "cut", 3, defences=weak)[0] == [None, None]
    assert outcome(ram / "cut") == outcome(ram / "whole") != clean[0]
