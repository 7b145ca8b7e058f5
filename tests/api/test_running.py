"""A trial from Python: tables in memory in, figures and reports out, and nothing left of it besides."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest
import structlog
import torch

import vfl_node
from tests.models.own_models import Gated
from tests.node.several import COMMON, make_several
from vfl_node import Job, run
from vfl_node.api import Result, frames
from vfl_node.configuration.models import validate
from vfl_node.data.readers.arrow import ArrowReader
from vfl_node.errors import DataError, PolicyError, UsageError, VflError
from vfl_node.execution.inputs import read_input
from vfl_node.execution.private import trial_settings

ROOT = Path(__file__).parents[2]
JOB = {
    "align": {"protocol": "psi"},
    "train": {"bottom": [4], "active_bottom": [4], "top": [4], "epochs": 2, "batch_size": 32},
    "evaluate": {"test_fraction": 0.3},
}


@pytest.fixture(scope="module")
def result(trial: Any) -> Result:
    return run(JOB, active=pd.read_csv(trial.clinic), passive=pl.read_csv(trial.lab), predictions=True)


def program(*lines: str) -> str:
    return "\n".join(["import pandas as pd, sys", "from vfl_node import run", f"job = {JOB!r}", *lines])


def python(text: str, *, folder: Path, **options: Any) -> subprocess.Popen[str]:
    """A program from standard input, as no importable module."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    (folder / "program").write_text(text)
    with (folder / "program").open() as source:
        return subprocess.Popen(
            [sys.executable, "-"], stdin=source, stdout=subprocess.PIPE, text=True, env=environment, **options
        )


def test_the_names_load_nothing_heavy(tmp_path: Path) -> None:
    heavy = {"torch", "grpc", "google", "numpy", "scipy", "sklearn", "pyarrow", "pandas", "polars", "nacl", "IPython"}
    lines = (
        "import sys, vfl_node",
        "from vfl_node import Job, Result, run",
        "print(sorted({m.split('.')[0] for m in sys.modules}))",
    )
    child = python("\n".join(lines), folder=tmp_path)
    said, _ = child.communicate(timeout=240)
    assert child.returncode == 0
    assert heavy.isdisjoint(json.loads(said.replace("'", '"')))


def test_a_name_that_is_not_there_is_said_so() -> None:
    assert vfl_node.run is run is vfl_node.api.run
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        _ = vfl_node.rum


def test_the_result_is_what_the_reports_say(result: Result) -> None:
    report = json.loads((result.folder / "report.json").read_text())
    assert result.parties == ("active", "passive")
    assert (result.metrics, result.local_metrics) == (report["metrics"], report["local_metrics"])
    assert 0 <= report["metrics"]["auc"] <= 1
    assert [row["epoch"] for row in result.epochs] == [1, 2]
    assert pd.DataFrame(result.epochs)["loss"].tolist() == [epoch["loss"] for epoch in report["training"]["epochs"]]
    learnt = pd.DataFrame(result.learnt)
    assert set(learnt["party"]) == {"active", "passive"}
    (shared,) = learnt[(learnt["party"] == "passive") & (learnt["what"] == "intersection")]["count"]
    assert shared == 120
    assert result.report("lab" if "lab" in result.parties else "passive").figures["party"] == "passive"
    assert set(result.model) == {"active", "passive"}
    assert all(isinstance(tensor, torch.Tensor) for tensor in result.weights("passive").values())
    verdict = result.verdict
    assert verdict
    assert verdict["helped"] in ("yes", "no", "unclear", "mixed")
    assert "light-dark" not in result.report.pictures["loss"].svg
    assert re.match(r"Result\(federated: .*auc 0\.\d{4}.*; alone: ", repr(result))
    with pytest.raises(UsageError, match="'coordinator' is not one party of this job"):
        result.report("coordinator")


def test_predictions_are_of_every_shared_row(result: Result) -> None:
    frame = result.predictions.to_pandas()
    assert list(frame.columns) == ["id", "rows", "label", "probability"]
    assert (len(frame), frame["id"].is_unique, set(frame["rows"])) == (120, True, {"held_out", "trained"})
    assert frame["probability"].between(0, 1).all()


def test_a_notebook_shows_the_page_without_rights_and_each_chart_as_an_image(result: Result, tmp_path: Path) -> None:
    shown = result.report._repr_html_()
    assert 'sandbox=""' in shown
    page = re.fullmatch(
        r'<iframe srcdoc="([^"]*)" sandbox="" [^<>]*></iframe>', shown
    )  # nothing of the page leaves the attribute
    assert page
    assert "&lt;svg" in page[1]
    inside = unescape(page[1])
    assert inside.index('<base href="about:srcdoc">') < inside.index("Content-Security-Policy")  # which allows no other base
    assert "<base" not in result.report.page
    assert result.report.save(tmp_path / "report.html").read_text() == result.report.page
    assert {"loss", "auc"} <= set(result.report.pictures)
    loss = result.report.pictures["loss"]
    root = ET.fromstring(loss._repr_svg_())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    style = root.find("{http://www.w3.org/2000/svg}style")
    assert style is not None
    assert style.text
    assert all(line.startswith("svg.vfl-node") for line in style.text.splitlines() if "{" in line)
    assert root.findall(".//{http://www.w3.org/2000/svg}path")
    assert loss.save(tmp_path / "loss.svg").read_text() == loss.svg
    with pytest.raises(UsageError, match="cannot write"):
        loss.save(tmp_path / "none" / "loss.svg")


def test_the_folder_ends_with_the_result_unless_it_was_named(trial: Any, tmp_path: Path) -> None:
    aligns = {"align": {"protocol": "psi"}}
    ended = run(aligns, active=trial.clinic, passive=str(trial.lab))
    folder = ended.folder
    assert (ended.metrics, ended.epochs, ended.model) == (None, [], {})
    with pytest.raises(UsageError, match="made no predictions"):
        _ = ended.predictions
    with pytest.raises(UsageError, match="active has no part of a model"):
        ended.weights()
    assert (folder / "passive" / "report.json").exists()
    del ended
    gc.collect()
    assert not folder.exists()
    run(aligns, active=trial.clinic, passive=trial.lab, out=tmp_path / "out")
    assert (tmp_path / "out" / "report.html").exists()


def tables(path: Path) -> dict[str, Any]:
    """One table in every form: row labels that mean nothing, in another order of rows, are no column."""
    frame = pd.read_csv(path)
    return {
        "pandas": frame,
        "selected rows": pd.concat([frame, frame]).iloc[len(frame) :].rename(index=lambda row: row + 7),
        "row labels": frame.set_index("id"),
        "polars": pl.read_csv(path),
        "arrow": pa.csv.read_csv(path),
        "backed by arrow": pd.read_csv(path, dtype_backend="pyarrow"),
    }


def test_every_kind_of_frame_is_the_table_that_its_csv_is(trial: Any, tmp_path: Path) -> None:
    job = trial.job()
    settings = trial_settings(job, trial.files)["clinic"]
    expected = read_input(settings, job)
    for kind, table in tables(trial.clinic).items():
        _, given = frames.tables_of(job, table, None)
        here = read_input(settings, job, given["clinic"])
        folder = tmp_path / kind
        folder.mkdir()
        written = settings.tables["default"].model_copy(update={"path": frames.write(given["clinic"], folder, "clinic")})
        there = read_input(settings.model_copy(update={"data": written}), job)
        for read in (here, there):
            assert read.ids.digest() == expected.ids.digest(), kind
            assert set(read.columns) == set(expected.columns), kind
            assert (read.labels == expected.labels).all(), kind


def test_a_job_may_be_an_object_a_file_or_keys_and_values(trial: Any, tmp_path: Path) -> None:
    keys = {"name": "mine", "parties": {"active": "clinic", "passive": "lab"}, "align": {"protocol": "psi"}}
    (tmp_path / "job.yaml").write_text(json.dumps(keys))
    for job in (validate(keys, Job, source="job"), keys, tmp_path / "job.yaml", str(tmp_path / "job.yaml")):
        ended = run(job, active=trial.clinic, passive={"lab": pl.read_csv(trial.lab)}, progress=False)
        assert ended.parties == ("clinic", "lab")
        assert ended.report.figures["job"]["name"] == "mine"
    named = run({"align": {"protocol": "psi"}}, active=trial.clinic, passive={"lab": trial.lab})
    assert named.parties == ("active", "lab")


def test_three_parties_and_private_settings(trial: Any, tmp_path: Path) -> None:
    job = {
        "parties": {"active": "clinic", "passive": "lab", "coordinator": "notary"},
        "align": {"protocol": "psi"},
        "train": {"algorithm": "logistic", "iterations": 1, "flow": "coordinator-open-scores"},
    }
    own = tmp_path / "lab.yaml"
    own.write_text("data: {id: number, columns: {measure-02-canary: ignore}}\n")
    clinic = pd.read_csv(trial.clinic).rename(columns={"label": "ill"})
    lab = pl.read_csv(trial.lab).rename({"id": "number"})
    ended = run(job, clinic, lab, settings={"passive": own, "clinic": {"data": {"label": "ill"}}})
    assert ended.parties == ("clinic", "lab", "notary")
    assert set(ended.model) == {"clinic", "lab"}
    with pytest.raises(PolicyError, match=r"minimum is 161"):
        run(job, clinic, lab, settings={"active": {"policy": {"everyone": {"min_own_rows": 161}}, "data": {"label": "ill"}}})


def test_several_passive_parties_by_name(tmp_path: Path) -> None:
    tables = make_several(tmp_path).files
    passive = {name: pd.read_csv(tables[name]) for name in ("insurer", "lab")}
    ended = run({"align": {"protocol": "psi"}}, tables["clinic"], passive, seed=7)
    assert ended.parties == ("active", "insurer", "lab")
    assert ended.report.figures["alignment"]["theirs"] == dict.fromkeys(passive, 120)
    assert ended.report("lab").figures["alignment"]["theirs"] == {"active": 120, "insurer": 120}
    assert {report.figures["alignment"]["intersection"] for report in ended.reports.values()} == {COMMON}
    with pytest.raises(UsageError, match="is not one party"):
        ended.report("passive")
    for wrong in ({"passive": tables["lab"]}, {"passive": passive, "settings": {"passive": {}}}):
        with pytest.raises(UsageError, match="passive parties") as caught:
            run({"parties": {"active": "a", "passive": list(passive)}, "align": {"protocol": "psi"}}, tables["clinic"], **wrong)
        assert "lab" in caught.value.hint or "NAME" in caught.value.hint


def test_own_networks_by_their_class(trial: Any) -> None:
    own = JOB | {"train": {**JOB["train"], "model": "gated"}}
    ended = run(own, active=trial.clinic, passive=trial.lab, models={"gated": Gated}, seed=7)
    again = run(own, active=pd.read_csv(trial.clinic), passive=pl.read_csv(trial.lab), models={"gated": Gated}, seed=7)
    assert all(torch.equal(tensor, again.weights()[name]) for name, tensor in ended.weights().items())
    assert any("gate" in name for name in ended.weights("passive"))

    class Inner(Gated):
        pass

    with pytest.raises(UsageError, match="defined inside of a function or class") as caught:
        run(own, active=trial.clinic, passive=trial.lab, models={"gated": Inner})
    assert caught.value.hint == "define it at the top of a module or notebook"


@pytest.mark.parametrize(
    ("change", "said", "hint"),
    [
        ({"active": [1, 2]}, "the table of active is of type list", "give a data frame of pandas or polars, an Arrow table"),
        ({"active": None}, "no table for active", "in Python the argument active"),
        ({"active": "none.csv"}, "no file none.csv (the table of active)", ""),
        ({"passive": {"lba": "a.csv"}, "job": {"parties": {"active": "a", "passive": "lab"}}}, "passive names 'lba'", "lab"),
        ({"job": {"trian": {}}}, "the job: unknown key 'trian'", "did you mean 'train'"),
        ({"job": {"predict": {"model": "x", "to": "active"}}}, "a job that predicts needs the nodes", "vfl-node predict"),
        ({"settings": {"bank": {}}}, "settings names 'bank', which is no party of this job", "parties: active, passive"),
        ({"settings": {"active": {"tls": {}}}}, "settings of active: 'tls' cannot be set in a trial", "leave it out"),
        (
            {"settings": {"active": {"policy": {"everyone": {"min_own_row": 3}}}}},
            "settings of active: unknown key",
            "min_own_rows",
        ),
        ({"label_column": "ill"}, "there is no column 'ill' (data.label)", "columns"),
        ({"seed": -1}, "seed -1 is not a whole number from 0", ""),
        ({"predictions": True, "job": {"align": {"protocol": "psi"}}}, "this job only aligns", ""),
        ({"out": "/dev/null/x"}, "out='/dev/null/x': File exists", "name a folder of your own"),
    ],
)
def test_a_mistake_is_an_error_with_a_text_and_a_hint(trial: Any, change: dict[str, Any], said: str, hint: str) -> None:
    given = {"job": JOB, "active": pd.read_csv(trial.clinic), "passive": trial.lab} | change
    with pytest.raises(VflError) as caught:
        run(given.pop("job"), **given)
    assert said in caught.value.message
    assert hint in caught.value.hint


def test_no_cell_of_a_frame_is_in_an_error(trial: Any) -> None:
    frame = pd.read_csv(trial.clinic)
    mixed = frame.assign(extra=["canary", *range(len(frame) - 1)])
    for table in (pd.concat([frame, frame]), frame.assign(label="canary"), mixed):
        with pytest.raises(DataError) as caught:
            run(JOB, active=table, passive=trial.lab)
        assert caught.value.message.startswith("active: the table in memory")
        assert "canary" not in str(caught.value).replace("measure", "").replace("-canary", "")


def test_the_process_is_as_before(trial: Any, capfd: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(2)
    structlog.configure(processors=[structlog.dev.ConsoleRenderer()])
    before = structlog.get_config()
    run(JOB, active=trial.clinic, passive=trial.lab)
    assert torch.get_num_threads() == 2
    assert structlog.get_config() == before
    assert capfd.readouterr() == ("", "")


def test_a_running_event_loop_does_not_matter(trial: Any) -> None:
    async def cell() -> Result:
        return run({"align": {"protocol": "psi"}}, active=trial.clinic, passive=trial.lab)

    assert asyncio.run(cell()).report.figures["alignment"]["intersection"] == 120


@pytest.mark.slow
def test_from_standard_input_in_one_process_and_in_several(trial: Any, tmp_path: Path) -> None:
    """Where no module of the program can be imported: a class of its own serves in one process alone."""
    text = program(
        "from tests.models.own_models import Gated",
        "class Mine(Gated): pass",
        f"clinic, lab = pd.read_csv({str(trial.clinic)!r}), pd.read_csv({str(trial.lab)!r})",
        "own = job | {'train': job['train'] | {'model': 'mine'}}",
        "print(sorted(run(own, clinic, lab, models={'mine': Mine}).model))",
        "try:",
        "    run(own, clinic, lab, models={'mine': Mine}, processes=True)",
        "except Exception as error:",
        "    print(error.message, error.hint)",
        "result = run(job, clinic, lab, processes=True, predictions=True)",
        "print(len(result.epochs), len(result.predictions))",
    )
    child = python(text, folder=tmp_path)
    said, _ = child.communicate(timeout=240)
    assert child.returncode == 0
    assert said.splitlines() == [
        "['active', 'passive']",
        "model 'mine': other processes cannot import Mine from this program put it into a module, "
        "models={'mine': 'module:Mine'}; or leave processes out",
        "2 120",
    ]
    assert list(tmp_path.glob("vfl-*")) == []


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ctrl_c_ends_it_cleanly(trial: Any, tmp_path: Path, processes: bool) -> None:
    text = program(
        "import signal",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",  # which a shell ignores for what it runs in the background
        "job['train']['epochs'] = 100_000",
        f"clinic, lab = pd.read_csv({str(trial.clinic)!r}), pd.read_csv({str(trial.lab)!r})",
        "try:",
        f"    run(job, active=clinic, passive=lab, processes={processes})",
        "except KeyboardInterrupt:",
        "    print('interrupted')",
    )
    child = python(text, folder=tmp_path, start_new_session=True)
    limit = time.monotonic() + 240
    # In training, and not before: what interrupts pydantic while it writes a job is no KeyboardInterrupt any more.
    under_way = "vfl-federation-*/passive/state/jobs/*/checkpoints/*" if processes else "vfl-simulation-*/**/*.checkpoint"
    try:
        while not list(tmp_path.glob(under_way)):
            assert time.monotonic() < limit
            assert child.poll() is None
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGINT)
    try:
        said, _ = child.communicate(timeout=240)
    finally:
        child.kill()
    assert (child.returncode, said) == (0, "interrupted\n")
    assert list(tmp_path.glob("vfl-*")) == []


def test_an_arrow_reader_reads_what_was_written(trial: Any, tmp_path: Path) -> None:
    path = frames.write(pl.read_csv(trial.lab), tmp_path, "lab")
    with pa.ipc.open_file(path) as file:
        assert ArrowReader(file.read_all(), source="lab").names[0] == "id"
