"""Images from an owner's settings to a report: a trial, the command line, what is checked and estimated before; real digits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.asymmetric_mnist.make_data import IMAGES, LABELS, read_idx
from tests.node.nodes import command
from vfl_node import run
from vfl_node.configuration.models import parse
from vfl_node.errors import DataError, PolicyError
from vfl_node.execution.inputs import count_input, read_input
from vfl_node.execution.private import read_private, trial_settings
from vfl_node.job import Job
from vfl_node.node.check import TableCheck, check_table
from vfl_node.settings.node import Settings

CNN = "train: {model: cnn, bottom: [8], active_bottom: [4], top: [8], epochs: 2, batch_size: 32, learning_rate: 0.01}"
IMAGE = "data: {image: {columns: 'measure-*', shape: [2, 13]}}\n"
"""The 26 columns of the lab."""


def job_of(text: str = CNN) -> Job:
    return parse(
        f"name: trial\nparties: {{active: clinic, passive: lab}}\nevaluate: {{test_fraction: 0.3}}\n{text}", Job, source="job"
    )


def lab(trial: Any, tmp_path: Path, text: str = IMAGE) -> Settings:
    (tmp_path / "lab.yaml").write_text(text)
    return trial_settings(job_of(), trial.files, given={"lab": read_private(tmp_path / "lab.yaml")})["lab"]


def checked(trial: Any, tmp_path: Path, text: str = IMAGE, train: str = CNN) -> TableCheck:
    return check_table(lab(trial, tmp_path, text), job=job_of(train))


def test_a_trial_on_the_command_line(trial: Any, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        f"name: trial\nparties: {{active: clinic, passive: lab}}\nserve: {{to: active}}\n{CNN}\n"
    )
    (tmp_path / "lab.yaml").write_text(IMAGE)
    files = [f"--data={name}={path}" for name, path in trial.files.items()]
    out = tmp_path / "out"
    ended = command("run", tmp_path / "job.yaml", *files, f"--settings=lab={tmp_path / 'lab.yaml'}", "--out", out)
    assert ended.returncode == 0, ended.stderr
    columns = json.loads((out / "lab" / "report.json").read_text())["training"]["columns"]
    assert len(columns) == 26
    assert {column["transform"] for column in columns} == {"standard"}
    other = (out / "report.json").read_text() + (out / "report.html").read_text()
    assert "measure-02" not in other


def test_a_mistake_is_named_before_anything_runs(trial: Any, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"name: trial\nparties: {{active: clinic, passive: lab}}\n{CNN}\n")
    (tmp_path / "lab.yaml").write_text(IMAGE.replace("13", "12"))
    files = [f"--data={name}={path}" for name, path in trial.files.items()]
    settings = f"--settings=lab={tmp_path / 'lab.yaml'}"
    ended = command("run", tmp_path / "job.yaml", *files, settings, "--out", tmp_path / "out")
    assert ended.returncode != 0
    assert "E_IMAGE" in ended.stderr
    assert "data.image has 26 columns, and its shape, 2 × 12, needs 24" in ended.stderr


def test_in_python_with_a_data_frame_and_predictions(trial: Any) -> None:
    tables = {name: pd.read_csv(path) for name, path in trial.files.items()}
    given = {"lab": {"data": {"image": {"columns": "measure-*", "shape": [2, 13]}}}}
    job = job_of()
    with_image = run(job, tables["clinic"], tables["lab"], settings=given, seed=1, predictions=True, progress=False)
    without = run(job, tables["clinic"], tables["lab"], seed=1, predictions=True, progress=False)
    told = [np.array(result.predictions["probability"].to_pylist(), dtype=float) for result in (with_image, without)]
    assert len(told[0]) == len(told[1])
    assert np.isfinite(told[0]).all()
    assert not np.allclose(*told)
    broken = tables["lab"].copy()
    broken.loc[3, "measure-07-canary"] = np.nan
    with pytest.raises(DataError, match="row 4:measure-07-canary: column 'measure-07-canary' is a pixel") as caught:
        run(job, tables["clinic"], broken, settings=given, seed=1, progress=False)
    assert caught.value.code == "E_IMAGE"


@pytest.mark.parametrize(
    ("text", "train", "said"),
    [
        (IMAGE, CNN, "reads 26 columns of data.image as an image, 2 × 13"),
        (IMAGE, CNN.replace("cnn", "mlp"), "reads 26 columns of data.image as numeric columns: its model takes no images"),
        ("policy: {}", CNN, "the model reads images, and data.image names none: this party's columns go into dense layers"),
        ("policy: {}", CNN.replace("cnn", "mlp"), ""),
    ],
)
def test_check_says_what_the_model_does_with_the_image(trial: Any, tmp_path: Path, text: str, train: str, said: str) -> None:
    seen = checked(trial, tmp_path, text, train)
    assert (seen.errors, seen.job.image) == ((), said)


def test_check_finds_a_missing_pixel(trial: Any, tmp_path: Path) -> None:
    head, first, *rest = trial.lab.read_text().splitlines()
    cells = first.split(",")
    cells[5] = ""
    (tmp_path / "lab.csv").write_text("\n".join([head, ",".join(cells), *rest]))
    broken = lab(trial, tmp_path).data.model_copy(update={"path": tmp_path / "lab.csv"})
    seen = check_table(lab(trial, tmp_path), data=broken, job=job_of())
    assert [error.code for error in seen.errors] == ["E_IMAGE"]
    assert "lab.csv:2:" in seen.errors[0].message


def test_check_prints_the_image(trial: Any, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(
        f"name: lab\nrole: passive\nlisten: 127.0.0.1:0\ninsecure_loopback: true\npeers: {{clinic: {{}}}}\n"
        f"data: {{path: {trial.lab}, image: {{columns: 'measure-*', shape: [13, 2]}}}}\n"
    )
    seen = command("check", "--config", tmp_path / "node.yaml")
    assert seen.returncode == 0, seen.stderr
    assert "image: 26 columns, 13 × 2, measure-02-canary to measure-29-canary" in seen.stdout
    table = json.loads(command("check", "--config", tmp_path / "node.yaml", "--json").stdout)["table"]
    assert table["image"]["shape"] == [1, 13, 2]


def test_an_estimate_counts_the_image_before_the_table_is_read(trial: Any, tmp_path: Path) -> None:
    settings = lab(trial, tmp_path)
    shape = count_input(settings, job_of())
    assert (shape.rows, shape.image) == (160, (1, 2, 13))
    assert read_input(settings, job_of()).image is not None
    few = lab(trial, tmp_path, IMAGE + "policy: {everyone: {size: {parameters: 5000}}}\n")
    (error,) = check_table(few, job=job_of()).errors  # 4,800 of the convolutions, and 8 · (32 · 4 + 1) of the layer behind
    assert isinstance(error, PolicyError)
    assert "5,832 weights" in error.message


def digits(folder: Path, rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The right halves of handwritten digits with their labels, and the left halves."""
    images = read_idx(folder / IMAGES, header=16).reshape(-1, 28, 28)[:rows]
    labels = read_idx(folder / LABELS, header=8)[:rows]

    def table(part: Any, name: str) -> pd.DataFrame:
        grey = part.reshape(rows, -1).astype(np.int64)
        frame = pd.DataFrame(grey, columns=[f"{name}{at}" for at in range(grey.shape[1])])
        return frame.assign(id=range(rows))

    return table(images[:, :, 14:], "right").assign(label=labels), table(images[:, :, :14], "left")


@pytest.mark.slow
def test_convolutions_read_digits_better_than_dense_layers(shared_data: Path) -> None:
    """Halves of MNIST, 28 × 14 each: of 6,000 digits and 10 epochs .955 against .928 (3 seeds); here a small form."""
    right, left = digits(shared_data / "mnist", 1_500)
    settings = {
        role: {"data": {"image": {"columns": f"{name}*", "shape": [28, 14]}}, **rest}
        for role, name, rest in (("active", "right", {"compare": {"boosted_tree": False}}), ("passive", "left", {}))
    }
    train = {"classes": 10, "bottom": [64], "active_bottom": [64], "top": [64], "epochs": 6, "batch_size": 64}

    def accuracy(model: str) -> float:
        job = {"align": {"protocol": "psi"}, "train": {**train, "model": model}, "evaluate": {"test_fraction": 0.2}}
        job["evaluate"]["metrics"] = ["accuracy"]
        found: float = run(job, right, left, settings=settings, seed=1, progress=False).metrics["accuracy"]
        return found

    convolved, dense = accuracy("cnn"), accuracy("mlp")
    assert convolved > 0.85
    assert convolved >= dense
