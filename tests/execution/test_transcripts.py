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
from vfl_node.configuration.models import parse
from vfl_node.errors import UsageError
from vfl_node.execution.extras import Extras
from vfl_node.execution.private import private_settings, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.execution.trial import Trial, read_trial
from vfl_node.job import Job
from vfl_node.node.federation import LocalFederation
from vfl_node.node.store import Store
from vfl_node.session.transcript import Steps, Transcript
from vfl_node.settings.node import Settings
from vfl_node.transport import codec
from vfl_node.transport.generated.vfl.v1 import training_pb2
from vfl_node.transport.recorder import Recorder

SPLIT = "train: {bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 32}\nevaluate: {test_fraction: 0.3}"
LINKED = """\
name: links
parties: {active: clinic, passive: lab, coordinator: linker}
align: {protocol: linkage, keys: {u: {kind: number, low: 0, high: 1, reach: 0.2}}, candidates: 3, noise: {sigma: 0.4}}
train: {algorithm: candidates, bottom: [8, 4], active_bottom: [4], top: [8], merge_hidden: [8], epochs: 2, batch_size: 16}
evaluate: {test_fraction: 0.3, repeats: 2}
"""
NOISE = {"defences": [{"name": "noise", "sigma": 0.5}]}

NUMBERS = ["repeat", "step", "positions", "rows", "active_rows", "number"]

Received = dict[str, NDArray[Any]]


def received(path: Path) -> Received:
    assert path.stat().st_mode & 0o777 == 0o600
    with np.load(path) as entries:
        return dict(entries)


def on_the_wire(recorder: Recorder, kind: type[Any], sender: str) -> list[NDArray[np.float32]]:
    return [values(of) for of in recorder.messages(kind, sender=sender)]


def values(message: Any, field: str = "tensor", dtype: torch.dtype = torch.float32) -> NDArray[Any]:
    tensor = getattr(message, field)
    return codec.decode(tensor, dtype=dtype, shape=list(tensor.shape)).numpy()


@pytest.mark.parametrize("defended", [{}, {"clinic": NOISE}, {"lab": NOISE}], ids=["no defence", "labels", "columns"])
def test_what_crossed_the_wire_in_training_is_recorded_after_the_defences(
    trial: Any, tmp_path: Path, defended: Mapping[str, Any]
) -> None:
    job = trial.job("align: {protocol: psi}\n" + SPLIT.replace("0.3", "0.3, validation_fraction: 0.2, repeats: 2"))
    given = {name: private_settings(document, source=name) for name, document in defended.items()}
    wire = Recorder()
    simulate(
        job,
        {},
        tmp_path / "out",
        settings=trial_settings(job, trial.files, given=given),
        wrap=wire.wrap,
        extras=Extras(transcript=tmp_path / "t"),
    )
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["clinic.npz", "lab.npz"]
    at_clinic, at_lab = (received(tmp_path / "t" / f"{name}.npz") for name in ("clinic", "lab"))
    assert list(at_clinic) == [*NUMBERS, "embeddings"]
    assert list(at_lab) == [*NUMBERS, "gradients"]
    for name in NUMBERS:
        assert at_clinic[name].dtype == np.int64
        np.testing.assert_array_equal(at_clinic[name], at_lab[name])
    steps = at_clinic["step"]
    last = int(steps[-1]) + 1
    assert np.array_equal(np.unique(steps), np.arange(last))
    assert np.array_equal(steps, np.sort(steps))
    assert np.array_equal(at_clinic["repeat"], (steps >= last // 2).astype(np.int64))  # two repeats, equally long
    assert all(np.array_equal(at_clinic["number"][steps == step], np.arange((steps == step).sum())) for step in range(last))
    gradients = on_the_wire(wire, training_pb2.Gradient, "clinic")
    assert len(gradients) == last
    np.testing.assert_array_equal(at_lab["gradients"], np.concatenate(gradients))
    answered = {of.step for of in wire.messages(training_pb2.Gradient)}
    sent = {of.step: values(of) for of in wire.messages(training_pb2.Embedding)}
    assert len(sent) > len(answered)  # held-out rows, too
    np.testing.assert_array_equal(at_clinic["embeddings"], np.concatenate([sent[step] for step in sorted(answered)]))


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
    simulate(job, files, tmp_path / "out", extras=Extras(transcript=tmp_path / "t", seed=3))
    at_clinic = received(tmp_path / "t" / "clinic.npz")
    rows = at_clinic["rows"]
    assert (rows < 0).any() == ("psu" in align)
    assert rows.max() < len(ids)
    of_clinic = [row["id"] for row in csv.DictReader(trial.clinic.open(newline=""))]
    own, both = at_clinic["active_rows"], (rows >= 0) & (at_clinic["active_rows"] >= 0)
    assert (own < 0).any() == ("psu" in align)
    assert ((rows >= 0) | (own >= 0)).all()
    assert [ids[row] for row in rows[both]] == [of_clinic[row] for row in own[both]]
    if "at_most" not in align:  # else who has a record may not take part with it
        assert not {of_clinic[row] for row in own[rows < 0]} & set(ids)
        assert not {ids[row] for row in rows[own < 0]} & set(of_clinic)
    for name in ("rows", "active_rows"):  # a position stands for one record all along
        assert len(set(zip(at_clinic["positions"], at_clinic[name], strict=True))) == len(set(at_clinic["positions"]))
    first = (at_clinic["step"] == 0) & (rows >= 0)
    embeddings = at_clinic["embeddings"][first]
    means = np.array([embeddings[rows[first] % kinds == kind].mean(axis=0) for kind in range(kinds)])
    np.testing.assert_allclose(embeddings, means[rows[first] % kinds], atol=1e-6)
    assert np.linalg.norm(means[:, None] - means[None], axis=2)[~np.eye(kinds, dtype=bool)].min() > 1e-3


def test_an_outside_judge_reads_labels_in_all_repeats_of_made_up_rows_too(trial: Any, tmp_path: Path) -> None:
    """From the files and the tables alone, by the leading direction of the gradients, each with length 1."""
    job = trial.job("align: {protocol: psu}\n" + SPLIT.replace("0.3", "0.3, repeats: 2"))
    simulate(job, trial.files, tmp_path / "out", extras=Extras(transcript=tmp_path / "t", seed=3))
    at_lab = received(tmp_path / "t" / "lab.npz")
    label = np.array([int(row["label"]) for row in csv.DictReader(trial.clinic.open(newline=""))])
    shuffled, found = np.random.default_rng(0).permutation(label), []
    for repeat in range(2):
        judged = (at_lab["repeat"] == repeat) & (at_lab["active_rows"] >= 0)
        records, made_up = at_lab["active_rows"][judged], at_lab["rows"][judged] < 0
        gradients = at_lab["gradients"][judged].astype(np.float64)
        unit = gradients / np.maximum(np.linalg.norm(gradients, axis=1), 1e-12)[:, None]
        scores = unit @ np.linalg.svd(unit, full_matrices=False)[2][0]
        assert folded(scores, label[records]) > 0.9
        assert folded(scores, shuffled[records]) < 0.7  # of about 110 records: three and a half deviations
        positives = made_up & (label[records] == 1)  # there are hardly any others among them
        assert positives.sum() > 30
        assert folded(scores[positives | (label[records] == 0)], label[records][positives | (label[records] == 0)]) > 0.9
        found.append({record for record, lacks in zip(records, made_up, strict=True) if lacks})
    assert found[0] & found[1]
    assert all(record < 40 for record in found[0] | found[1])  # the clinic's first 40 records are not the lab's


def folded(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """AUC of what may have the wrong sign."""
    auc = float((scores[truth == 1][:, None] > scores[truth == 0]).mean())
    return max(auc, 1 - auc)


@pytest.mark.slow
def test_several_passive_parties_and_processes_of_their_own(tmp_path: Path) -> None:
    several = make_several(tmp_path)
    job = several.job("align: {protocol: psi}\n" + SPLIT, ("lab", "insurer"))
    files = {name: several.files[name] for name in job.parties.data}
    (tmp_path / "together").mkdir()
    (tmp_path / "together" / "lab.npz").write_bytes(b"of an earlier run")
    simulate(job, files, tmp_path / "a", extras=Extras(seed=7, transcript=tmp_path / "together"))
    nodes = LocalFederation(
        job, trial_settings(job, files), logs=tmp_path / "logs", extras=Extras(seed=7, transcript=tmp_path / "apart")
    )
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
    assert np.array_equal(lab["active_rows"], insurer["active_rows"])
    of_clinic = [row["id"] for row in csv.DictReader(files["clinic"].open(newline=""))]
    assert [ids["lab"][row] for row in lab["rows"]] == [of_clinic[row] for row in lab["active_rows"]]


def test_one_of_several_passive_parties_lacks_rows_that_neither_it_nor_the_active_party_has(tmp_path: Path) -> None:
    several = make_several(tmp_path)
    job = several.job("align: {protocol: psu}\n" + SPLIT.replace("epochs: 2", "epochs: 1"), ("lab", "insurer"))
    simulate(
        job,
        {name: several.files[name] for name in job.parties.data},
        tmp_path / "out",
        extras=Extras(transcript=tmp_path / "t", seed=3),
    )
    lab, insurer = (received(tmp_path / "t" / f"clinic.{name}.npz") for name in ("lab", "insurer"))
    assert np.array_equal(lab["positions"], insurer["positions"])
    assert np.array_equal(lab["active_rows"], insurer["active_rows"])
    neither = (insurer["rows"] < 0) & (insurer["active_rows"] < 0)
    assert neither.any()
    assert (lab["rows"][neither] >= 0).all()


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
        simulate(job, trial.files, tmp_path / "out", extras=Extras(transcript=tmp_path / "t"))
    assert "leave --transcript out" in caught.value.hint
    with pytest.raises(UsageError, match=said):
        LocalFederation(job, trial_settings(job, trial.files), logs=tmp_path / "logs", extras=Extras(transcript=tmp_path / "t"))
    assert not (tmp_path / "t").exists()
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_none_of_this_users_is_refused(trial: Any, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(UsageError, match=f"--transcript {tmp_path / name}: ") as caught:
            simulate(trial.job(SPLIT), trial.files, tmp_path / "out", extras=Extras(transcript=tmp_path / name))
        assert caught.value.code == "E_FILE"


def test_a_folder_in_which_nothing_can_be_written_is_refused_before_it_starts(trial: Any) -> None:
    with pytest.raises(UsageError, match="--transcript /proc/self/task: ") as caught:
        simulate(
            trial.job("align: {protocol: psi}\n" + SPLIT), {}, Path("none"), extras=Extras(transcript=Path("/proc/self/task"))
        )
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
    add = Steps.add

    def noted(own: Steps, *step: Any) -> None:
        added.append(own.extent[0])
        add(own, *step)

    monkeypatch.setattr(Steps, "add", noted)
    simulate(trial.job("align: {protocol: psi}\n" + SPLIT), trial.files, tmp_path / "out")
    assert added == []
    simulate(
        trial.job("align: {protocol: psi}\n" + SPLIT), trial.files, tmp_path / "out", extras=Extras(transcript=tmp_path / "t")
    )
    assert added == list(range(6))


def test_rows_are_cut_where_a_checkpoint_was(tmp_path: Path) -> None:
    folder, active = tmp_path / "left", np.array([4, -1, 8, 6])
    steps = Transcript(folder, np.array([5, 7, 9])).embeddings
    positions, rows, numbers = np.array([3, 0, 1]), np.array([2, -1, 0]), np.array([0, 1, 0])
    sent = np.arange(6, dtype=np.float32).reshape(3, 2)
    for step in range(3):
        steps.add(step // 2, positions, rows, numbers, sent + step, -sent)
    steps.keep()
    steps.cut(2, 6)
    steps.add(1, positions[:1], rows[:1], numbers[:1], sent[:1], sent[:1])
    steps.write(tmp_path / "a.npz", "embeddings", "sent", active)
    found = received(tmp_path / "a.npz")
    assert found["repeat"].tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert found["step"].tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert found["positions"].tolist() == [3, 0, 1, 3, 0, 1, 3]
    assert found["rows"].tolist() == [9, -1, 5, 9, -1, 5, 9]
    assert found["active_rows"].tolist() == [6, 4, -1, 6, 4, -1, 6]
    assert found["number"].tolist() == [0, 1, 0, 0, 1, 0, 0]
    np.testing.assert_array_equal(found["embeddings"], np.concatenate([sent, sent + 1, sent[:1]]))
    assert found["embeddings"].dtype == np.float32
    steps.cut(0, 0)
    steps.cut(0, 0)
    assert not list(folder.iterdir())


def test_projections_have_files_of_their_own(trial: Any, tmp_path: Path) -> None:
    method = "unaligned: {method: fedhssl, pretrain_epochs: 2, projection: 6}, "
    job = trial.job(
        "align: {protocol: psi}\n" + SPLIT.replace("{bottom", "{" + method + "bottom").replace("0.3", "0.3, repeats: 2")
    )
    policy = {"policy": {"everyone": {"unaligned": ["fedhssl"]}}}
    given = {"clinic": private_settings(policy, source="clinic"), "lab": private_settings(policy | NOISE, source="lab")}
    wire, owners = Recorder(), trial_settings(job, trial.files, given=given)
    simulate(job, {}, tmp_path / "out", settings=owners, wrap=wire.wrap, extras=Extras(transcript=tmp_path / "t"))
    names = ["clinic.npz", "clinic.projections.npz", "lab.npz", "lab.projections.npz"]
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == names
    for receiver, sender in (("clinic", "lab"), ("lab", "clinic")):
        found = received(tmp_path / "t" / f"{receiver}.projections.npz")
        assert list(found) == [*NUMBERS, "projections"]
        crossed = on_the_wire(wire, training_pb2.Projection, sender)
        assert found["step"][-1] + 1 == len(crossed) == 2 * 2 * 3  # repeats · epochs · batches
        np.testing.assert_array_equal(found["projections"], np.concatenate(crossed))
        assert found["projections"].shape[1] == 6
    ids = {name: [row["id"] for row in csv.DictReader(trial.files[name].open(newline=""))] for name in ("clinic", "lab")}
    assert [ids["lab"][row] for row in found["rows"]] == [ids["clinic"][row] for row in found["active_rows"]]


def test_of_linked_rows_each_candidate_is_recorded_beside_the_record_where_it_stands(tmp_path: Path) -> None:
    files, rng = {}, np.random.default_rng(0)
    u = {name: rng.random(rows) for name, rows in (("clinic", 60), ("lab", 40))}
    for name, places in u.items():
        files[name] = tmp_path / f"{name}.csv"
        lines = [f"{name}-{row},{place:.6f},{row % 5},{row % 2}" for row, place in enumerate(places)]
        files[name].write_text("\n".join(["id,u,x,y", *lines]) + "\n")
    job = parse(LINKED, Job, source="job")
    given = {"clinic": private_settings({"data": {"label": "y"}}, source="clinic"), "lab": private_settings({}, source="lab")}
    wire, owners = Recorder(), trial_settings(job, files, given=given)
    simulate(job, {}, tmp_path / "out", settings=owners, wrap=wire.wrap, extras=Extras(transcript=tmp_path / "t"))
    at_clinic, at_lab = (received(tmp_path / "t" / f"{name}.npz") for name in ("clinic", "lab"))
    assert all(np.array_equal(at_clinic[name], at_lab[name]) for name in NUMBERS)
    gradients = [*wire.messages(training_pb2.Gradient)]
    sent = {of.step: of for of in wire.messages(training_pb2.LinkedEmbeddings)}
    for step, gradient in enumerate(gradients):
        lines = at_clinic["step"] == step
        number = at_clinic["number"][lines]
        of_step = sent[gradient.step]
        embeddings, index = values(of_step, "embeddings"), values(of_step, "index", torch.int32)
        assert np.array_equal(number, index.ravel())
        np.testing.assert_array_equal(at_clinic["embeddings"][lines], embeddings[number])
        np.testing.assert_array_equal(at_lab["gradients"][lines], values(gradient)[number])
        assert len({*zip(at_clinic["rows"][lines], number, strict=True)}) == len(embeddings)  # one number for one record
    assert np.array_equal(at_clinic["repeat"], (at_clinic["step"] >= len(gradients) // 2).astype(np.int64))
    assert (at_clinic["active_rows"] >= 0).all()
    known = at_clinic["rows"] >= 0
    own, candidates = u["clinic"][at_clinic["active_rows"][known]], u["lab"][at_clinic["rows"][known]]
    strangers = rng.permutation(candidates)
    assert np.abs(own - candidates).mean() < 0.5 * np.abs(own - strangers).mean()  # each is near the record where it stands


def test_trials_differ_in_what_they_ask_for() -> None:
    assert Trial.from_number(None, "lab", transcript=True) == Trial(transcript=True) != Trial()
    assert Trial.from_number(7, "lab", transcript=True).seed == Trial.from_number(7, "lab").seed
