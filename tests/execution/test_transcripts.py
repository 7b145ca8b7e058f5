"""``vfl-node run --transcript``: what each party received in training, row by row; no service writes it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.node.several import make_several
from vfl_node import run as run_in_python
from vfl_node.configuration import parse
from vfl_node.errors import UsageError
from vfl_node.execution.private import private, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.execution.trial import Trial, read_trial
from vfl_node.job import Job
from vfl_node.node.federation import LocalFederation
from vfl_node.node.store import Store
from vfl_node.session.transcript import Transcript
from vfl_node.settings import Settings
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.recorder import Recorder

SPLIT = "train: {bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 32}\nevaluate: {test_fraction: 0.3}"
NOISE = {"defences": [{"name": "noise", "sigma": 0.5}]}

Received = dict[str, NDArray[Any]]


def received(path: Path) -> Received:
    assert path.stat().st_mode & 0o777 == 0o600
    with np.load(path) as entries:
        return dict(entries)


def on_the_wire(recorder: Recorder, kind: type[Any], sender: str) -> list[NDArray[np.float32]]:
    return [values(of) for of in recorder.messages(kind, sender=sender)]


def values(message: Any) -> NDArray[np.float32]:
    return codec.decode(message.tensor, dtype=torch.float32, shape=list(message.tensor.shape)).numpy()


@pytest.mark.parametrize("defended", [{}, {"clinic": NOISE}, {"lab": NOISE}], ids=["no defence", "labels", "columns"])
def test_what_crossed_the_wire_in_training_is_recorded_after_the_defences(
    trial: Any, tmp_path: Path, defended: Mapping[str, Any]
) -> None:
    job = trial.job("align: {protocol: psi}\n" + SPLIT.replace("0.3", "0.3, validation_fraction: 0.2, repeats: 2"))
    given = {name: private(document, source=name) for name, document in defended.items()}
    wire = Recorder()
    simulate(
        job,
        {},
        tmp_path / "out",
        settings=trial_settings(job, trial.files, given=given),
        wrap=wire.wrap,
        transcript=tmp_path / "t",
    )
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["clinic.npz", "lab.npz"]
    at_clinic, at_lab = (received(tmp_path / "t" / f"{name}.npz") for name in ("clinic", "lab"))
    assert list(at_clinic) == ["step", "rows", "embeddings"]
    assert list(at_lab) == ["step", "rows", "gradients"]
    for name in ("step", "rows"):
        assert at_clinic[name].dtype == np.int64
        np.testing.assert_array_equal(at_clinic[name], at_lab[name])
    steps = at_clinic["step"]
    last = int(steps[-1]) + 1
    assert np.array_equal(np.unique(steps), np.arange(last))
    assert np.array_equal(steps, np.sort(steps))
    gradients = on_the_wire(wire, training_pb2.Gradient, "clinic")
    assert len(gradients) == 2 * last  # two repeats, of which the first is recorded
    np.testing.assert_array_equal(at_lab["gradients"], np.concatenate(gradients[:last]))
    answered = {of.step for of in wire.messages(training_pb2.Gradient)}
    sent = {of.step: values(of) for of in wire.messages(training_pb2.Embedding)}
    assert len(sent) > len(answered)  # held-out rows, too
    np.testing.assert_array_equal(at_clinic["embeddings"], np.concatenate([sent[step] for step in sorted(answered)[:last]]))


def lab_of_kinds(folder: Path, ids: list[str], kinds: int = 5) -> Path:
    """A table in which all rows of one number modulo ``kinds`` are equal."""
    path = folder / "kinds.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "x", "y"], *([id_, row % kinds, (row % kinds) ** 2] for row, id_ in enumerate(ids))])
    return path


@pytest.mark.parametrize(
    "align", ["{protocol: psi}", "{protocol: psu}", "{protocol: psi, at_most: 130}", "{protocol: psu, at_most: 130}"]
)
def test_rows_are_those_of_the_file(trial: Any, tmp_path: Path, align: str) -> None:
    """Equal rows have equal embeddings, and others other ones: so each embedding belongs to the row that it is said to."""
    kinds, ids = 5, [row["id"] for row in csv.DictReader(trial.lab.open(newline=""))]
    files = trial.files | {"lab": lab_of_kinds(tmp_path, ids, kinds)}
    job = trial.job(f"align: {align}\n" + SPLIT.replace("{bottom", "{missing: {features: sampling}, bottom", 1))
    simulate(job, files, tmp_path / "out", transcript=tmp_path / "t", seed=3)
    at_clinic = received(tmp_path / "t" / "clinic.npz")
    rows = at_clinic["rows"]
    assert (rows < 0).any() == ("psu" in align)
    assert rows.max() < len(ids)
    of_clinic = {row["id"] for row in csv.DictReader(trial.clinic.open(newline=""))}
    if "psi" in align:
        assert {ids[row] for row in rows} <= of_clinic
    first = (at_clinic["step"] == 0) & (rows >= 0)
    embeddings = at_clinic["embeddings"][first]
    means = np.array([embeddings[rows[first] % kinds == kind].mean(axis=0) for kind in range(kinds)])
    np.testing.assert_allclose(embeddings, means[rows[first] % kinds], atol=1e-6)
    assert np.linalg.norm(means[:, None] - means[None], axis=2)[~np.eye(kinds, dtype=bool)].min() > 1e-3


@pytest.mark.slow
def test_several_passive_parties_and_processes_of_their_own(tmp_path: Path) -> None:
    several = make_several(tmp_path)
    job = several.job("align: {protocol: psi}\n" + SPLIT, ("lab", "insurer"))
    files = {name: several.files[name] for name in job.parties.data}
    (tmp_path / "together").mkdir()
    (tmp_path / "together" / "lab.npz").write_bytes(b"of an earlier run")
    simulate(job, files, tmp_path / "a", seed=7, transcript=tmp_path / "together")
    nodes = LocalFederation(job, trial_settings(job, files), logs=tmp_path / "logs", seed=7, transcript=tmp_path / "apart")
    with nodes as federation:
        federation.run(tmp_path / "b", lambda _: None)
    names = ["clinic.insurer.npz", "clinic.lab.npz", "insurer.npz", "lab.npz"]
    for folder in ("together", "apart"):
        assert sorted(path.name for path in (tmp_path / folder).iterdir()) == names
    for name in names:
        ours, theirs = (received(tmp_path / folder / name) for folder in ("together", "apart"))
        assert list(ours) == list(theirs)
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours)
    ids = {name: [row["id"] for row in csv.DictReader(files[name].open(newline=""))] for name in ("lab", "insurer")}
    lab, insurer = (received(tmp_path / "apart" / f"clinic.{name}.npz") for name in ids)
    assert [ids["lab"][row] for row in lab["rows"]] == [ids["insurer"][row] for row in insurer["rows"]]
    assert not np.array_equal(lab["embeddings"], insurer["embeddings"])


def test_from_python(trial: Any, tmp_path: Path) -> None:
    job = {"align": {"protocol": "psi"}, "train": {"bottom": [4], "epochs": 1}}
    run_in_python(job, trial.clinic, trial.lab, transcript=tmp_path / "t", progress=False)
    assert received(tmp_path / "t" / "active.npz")["embeddings"].shape == (96, 4)
    assert received(tmp_path / "t" / "passive.npz")["gradients"].shape == (96, 4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("align: {protocol: psi}", "this job only aligns"),
        ("train: {algorithm: logistic, flow: two-party, iterations: 1}\nalign: {protocol: psi}", "'logistic' exchanges no"),
    ],
)
def test_a_job_without_embeddings_is_refused_before_it_starts(trial: Any, tmp_path: Path, text: str, said: str) -> None:
    job = parse(f"name: t\nparties: {{active: clinic, passive: lab}}\n{text}", Job, source="job")
    with pytest.raises(UsageError, match=said) as caught:
        simulate(job, trial.files, tmp_path / "out", transcript=tmp_path / "t")
    assert "leave --transcript out" in caught.value.hint
    with pytest.raises(UsageError, match=said):
        LocalFederation(job, trial_settings(job, trial.files), logs=tmp_path / "logs", transcript=tmp_path / "t")
    assert not (tmp_path / "t").exists()
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_none_of_this_users_is_refused(trial: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(UsageError, match=f"--transcript {tmp_path / name}: ") as caught:
            simulate(trial.job(SPLIT), trial.files, tmp_path / "out", transcript=tmp_path / name)
        assert caught.value.code == "E_FILE"


def test_a_folder_in_which_nothing_can_be_written_is_refused_before_it_starts(trial: Any) -> None:
    with pytest.raises(UsageError, match="--transcript /proc/self/task: ") as caught:
        simulate(trial.job("align: {protocol: psi}\n" + SPLIT), {}, Path("none"), transcript=Path("/proc/self/task"))
    assert caught.value.code == "E_FILE"


def test_a_service_writes_none_whatever_a_job_or_its_settings_say(trial: Any, tmp_path: Path) -> None:
    for text in ("transcript: t\n", "evaluate: {transcript: t}\n", "train: {transcript: t}\n"):
        with pytest.raises(UsageError, match="unknown key"):
            trial.job(text)
    assert not [name for name in Settings.model_fields if "transcript" in name or "trial" in name]
    own = Settings(name="lab", role="passive", insecure_loopback=True, listen="127.0.0.1:0", state_dir=tmp_path / "state")
    assert read_trial(own).transcript is False
    store = Store(own.state_dir, read_trial(own))
    folder = store.job_folder(store.add(trial.job(), submitter="lab"))
    store.close()
    folder.transcript.write_bytes(b"")
    folder.destroy_secrets()
    assert not folder.transcript.exists()


def test_without_the_option_nothing_is_recorded(trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[int] = []
    add = Transcript.add

    def noted(own: Transcript, step: int, *rest: Any) -> None:
        added.append(step)
        add(own, step, *rest)

    monkeypatch.setattr(Transcript, "add", noted)
    simulate(trial.job("align: {protocol: psi}\n" + SPLIT), trial.files, tmp_path / "out")
    assert added == []
    simulate(trial.job("align: {protocol: psi}\n" + SPLIT), trial.files, tmp_path / "out", transcript=tmp_path / "t")
    assert added == list(range(6))


def test_rows_are_cut_where_a_checkpoint_was(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path / "rows", np.array([5, 7, 9]))
    rows, sent = np.array([2, -1, 0]), np.arange(6, dtype=np.float32).reshape(3, 2)
    for step in range(3):
        transcript.add(step, rows, sent + step, -sent)
    transcript.keep()
    transcript.cut(6)
    transcript.add(2, rows[:1], sent[:1], sent[:1])
    transcript.write(tmp_path / "a.npz", "embeddings")
    found = received(tmp_path / "a.npz")
    assert found["step"].tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert found["rows"].tolist() == [9, -1, 5, 9, -1, 5, 9]
    np.testing.assert_array_equal(found["embeddings"], np.concatenate([sent, sent + 1, sent[:1]]))
    assert found["embeddings"].dtype == np.float32
    transcript.cut(0)
    transcript.cut(0)
    assert not (tmp_path / "rows").exists()


def test_trials_differ_in_what_they_ask_for() -> None:
    assert Trial.of(None, "lab", transcript=True) == Trial(transcript=True) != Trial()
    assert Trial.of(7, "lab", transcript=True).seed == Trial.of(7, "lab").seed
