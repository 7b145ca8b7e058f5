"""An installed package adds one thing of each kind, and nodes run jobs with them; docs/guides/extend-it.md shows its code."""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.sessions import TWO, session
from vfl_node.alignment.alignment import Alignment, PeerFacts
from vfl_node.crypto.randomness import Randomness
from vfl_node.data.reading import read_table
from vfl_node.job import Evaluate
from vfl_node.job.alignment import ALIGNMENTS
from vfl_node.settings.node import Data
from vfl_node.training.checkpoints import MemoryCheckpoints
from vfl_node.training.trainer import Trained, TrainingData
from vfl_node.transport.memory import memory_channels, run_together

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "examples" / "extension"

PARTIES = "name: trial\nparties: {active: clinic, passive: lab}\n"
SPLIT = (
    PARTIES
    + """
align: {protocol: psu}
train:
  {model: gated, bottom: [16], active_bottom: [4], top: [8], epochs: 3, batch_size: 64,
   missing: {labels: coin, heads: 0.25, features: mixed}}
evaluate: {metrics: [auc]}
"""
)
OWN = (
    PARTIES + "align: {protocol: psi_floor}\ntrain: {algorithm: nearest_mean}\nevaluate: {metrics: [auc], test_fraction: 0.3}\n"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the package."""
    source, target = tmp_path_factory.mktemp("source") / "extension", tmp_path_factory.mktemp("installed")
    shutil.copytree(EXTENSION, source)
    quietly = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *quietly, "--target", target, source], check=True, stdin=subprocess.DEVNULL
    )
    return target


@pytest.fixture(scope="module")
def nodes(installed: Path, federations: Any, trial: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A clinic and a lab with the package; the lab's table is in the package's format, and it has the package's defence."""
    folder = tmp_path_factory.mktemp("extended")
    with trial.files["lab"].open() as lines, (folder / "lab.jsonl").open("w") as file:
        for row in csv.DictReader(lines):
            print(json.dumps(row), file=file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        federation = federations(folder)
        federation.as_users_start_them()
        federation.start_both(
            data={"path": str(folder / "lab.jsonl"), "format": "jsonl"}, defences=[{"name": "rounding", "step": 0.25}]
        )
        yield federation


def test_a_split_network_with_a_model_strategies_an_attack_a_defence_and_a_reader_of_the_package(nodes: Any) -> None:
    job_id = nodes.client("clinic").submit(SPLIT)["id"]
    assert nodes.end("clinic", job_id)["state"] == nodes.end("lab", job_id)["state"] == "done", nodes.log("lab")
    lab, clinic = (nodes.report(name, job_id) for name in ("lab", "clinic"))
    assert lab["training"]["split"]["strategies"] == {"labels": "coin", "features": "mixed", "calibration": "none"}
    assert lab["training"]["split"]["defences"] == [{"name": "rounding", "step": 0.25}]
    assert all(0 <= epoch["attacks"]["row_length"] <= 1 for report in (lab, clinic) for epoch in report["training"]["epochs"])
    assert clinic["metrics"]["auc"] is not None  # three epochs of a small network show nothing
    learnt = {entry["what"]: entry["text"] for name in ("lab", "clinic") for entry in clinic["learnt"][name]}
    assert "their labels fit worse" in learnt["membership"] or "what the columns have in common is lost" in learnt["membership"]
    page = (nodes.job_folder("lab", job_id) / "artefacts" / "report.html").read_text()
    assert "1 with probability 0.25, drawn once for each row" in page
    assert "each column from another row of the party&#39;s own" in page
    assert "rounded to a multiple of 0.25" in page
    assert "how long the rows of a position are" in page


def test_a_trainer_over_an_alignment_of_the_package(nodes: Any) -> None:
    job_id = nodes.client("clinic").submit(OWN)["id"]
    assert nodes.end("clinic", job_id)["state"] == nodes.end("lab", job_id)["state"] == "done", nodes.log("lab")
    lab, clinic = (nodes.report(name, job_id) for name in ("lab", "clinic"))
    assert clinic["alignment"]["protocol"] == lab["alignment"]["protocol"] == "psi_floor"
    assert clinic["metrics"]["auc"] > 0.6  # of 36 rows, which are others each time: .79 to .97
    low, high = clinic["training"]["nearest_mean"]["class_means"]
    assert low < high
    assert lab["training"]["nearest_mean"]["class_means"] is None
    assert clinic["metrics"]["rows"] == 36
    assert "numbers" in [entry["what"] for entry in lab["learnt"]["clinic"]]
    page = (nodes.job_folder("clinic", job_id) / "artefacts" / "report.html").read_text()
    assert "Mean number of class 1" in page


def test_the_trainer_goes_on_from_its_checkpoints_to_the_same_result(
    installed: Path, trial: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed)
    trainer = importlib.import_module("vfl_example.nearest_mean.trainer")
    train = importlib.import_module("vfl_example.nearest_mean.config").NearestMean(algorithm="nearest_mean", epochs=3)
    tables = [
        read_table(Data(path=trial.files[name]), id_form="text", needs_label=name == "clinic", party=name) for name in TWO.data
    ]
    common = np.arange(trial.shared)
    rows = (common + 40, common)  # the lab's first 120 records are the clinic's last ones
    stored = [MemoryCheckpoints(9), MemoryCheckpoints(9)]

    def trained(checkpoints: list[MemoryCheckpoints], resume: str | None) -> list[Trained]:
        halves = []
        for name, channel, table, of, kept in zip(TWO.data, memory_channels(*TWO.data), tables, rows, checkpoints, strict=True):
            evaluate = Evaluate(test_fraction=0.3, metrics=("auc",))
            own = session(name, {channel.peer: channel}, Randomness(name.encode().ljust(32)), train=train, evaluate=evaluate)
            data = TrainingData(aligned(of, channel.peer), table)
            halves.append((trainer.NearestMeanTrainer().run(own, data, kept, resume), channel))
        return run_together(*halves)

    def aligned(of: Any, peer: str) -> Alignment:
        facts = PeerFacts(records=160, intersection=len(of), missing=0, padded=False, learnt=())
        return Alignment(
            spec=ALIGNMENTS["psi"], group="curve25519", rows=of, ours=160, peers={peer: facts}, union=200, learnt=()
        )

    whole = trained(stored, None)
    assert whole[0].results.metrics["auc"] > 0.7
    for name in stored[0].names()[:-1]:
        again = trained(stored, name)
        assert [of.results for of in again] == [of.results for of in whole]
        assert [of.section for of in again] == [of.section for of in whole]
        assert again[0].epochs[0] == whole[0].epochs[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (OWN.replace("psi_floor", "psu"), "nearest_mean trains on records that both parties have: say align.protocol: psi"),
        pytest.param(SPLIT.replace("heads: 0.25", "heads: 2"), "2 is not 1.0 or less", marks=pytest.mark.slow),
        pytest.param(SPLIT.replace("heads", "head"), "unknown key 'train.missing.head'", marks=pytest.mark.slow),
        (SPLIT.replace("labels: coin, ", ""), "heads is for coin"),
    ],
)
def test_what_a_job_says_wrong_of_an_extension_is_refused_in_words(nodes: Any, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "job.yaml").write_text(text)
    words = ["submit", tmp_path / "job.yaml", "--config", nodes.folder / "clinic" / "node.yaml"]
    ended = subprocess.run([sys.executable, "-m", "vfl_node", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert ended.returncode != 0
    assert why in ended.stderr


def test_the_page_shows_the_code_of_the_package() -> None:
    """Every file of the package stands on one of two pages, and these show no other one."""
    page = "".join((ROOT / "docs" / "guides" / f"{name}.md").read_text() for name in ("extend-it", "add-a-trainer"))
    shown = dict(re.findall(r"^`examples/extension/([\w/.]+)`:\n\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    files = {path.relative_to(EXTENSION).as_posix(): path.read_text() for path in EXTENSION.rglob("*.*") if path.is_file()}
    files = {
        name: text for name, text in files.items() if not name.endswith(("__init__.py", ".pyc")) and "egg-info" not in name
    }
    assert shown == files
