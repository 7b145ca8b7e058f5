"""The examples: their data are what they say, and the joint model beats the active party alone."""

from __future__ import annotations

import csv
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import command
from vfl_node.crypto.randomness import Randomness
from vfl_node.errors import PolicyError
from vfl_node.execution.extras import Extras
from vfl_node.execution.private import PrivateSettings, read_private, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import load_job
from vfl_node.settings.protection import Compare

EXAMPLES = Path(__file__).parents[2] / "examples"


def made(example: str, folder: Path) -> Path:
    """Run an example's ``make_data.py``; returns the folder of its data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["make_data.py", str(folder)])
        runpy.run_path(str(EXAMPLES / example / "make_data.py"), run_name="__main__")
    return folder


def made_again(example: str, folder: Path) -> Path:
    """The same in a process of its own, as a user does it, where sets have another order."""
    words: list[str | Path] = [sys.executable, EXAMPLES / example / "make_data.py", folder]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return folder


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return list(reader.fieldnames or []), list(reader)


@pytest.fixture(scope="module")
def clinic_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made("clinic_lab", tmp_path_factory.mktemp("clinic-lab"))


def test_clinic_and_lab_overlap_in_part(clinic_lab: Path) -> None:
    columns, clinic = read(clinic_lab / "clinic.csv")
    others, lab = read(clinic_lab / "lab.csv")
    assert len(columns) == 6
    assert len(others) == 27
    assert set(columns) & set(others) == {"id"}
    assert columns[-1] == "label"
    assert all(re.fullmatch("[a-z_]+", name) for name in columns + others)
    assert {row["label"] for row in clinic} == {"0", "1"}
    ours, theirs = {row["id"] for row in clinic}, {row["id"] for row in lab}
    assert len(clinic) == len(ours) == len(lab) == len(theirs) == 512
    assert ours - theirs
    assert theirs - ours
    assert len(ours | theirs) < 569


def test_the_insurer_knows_patients_of_both_and_others(clinic_lab: Path) -> None:
    columns, insurer = read(clinic_lab / "insurer.csv")
    assert columns == ["id", "age", "region", "visits_last_year", "claims_last_year"]
    clinic, lab, theirs = ({row["id"] for row in read(clinic_lab / f"{name}.csv")[1]} for name in ("clinic", "lab", "insurer"))
    assert len(insurer) == len(theirs) == 512
    assert len(clinic & lab & theirs) == 416
    assert theirs - clinic - lab
    assert all(18 <= int(row["age"]) < 100 for row in insurer)


def test_malignant_is_the_rarer_label(clinic_lab: Path) -> None:
    labels = [int(row["label"]) for row in read(clinic_lab / "clinic.csv")[1]]
    assert 0.3 < sum(labels) / len(labels) < 0.45  # 212 of 569


def test_data_are_the_same_every_time(clinic_lab: Path, tmp_path: Path) -> None:
    again = made_again("clinic_lab", tmp_path)
    for name in ("clinic.csv", "lab.csv", "insurer.csv"):
        assert (again / name).read_bytes() == (clinic_lab / name).read_bytes()


@pytest.mark.slow
def test_clinic_gains_from_the_lab(clinic_lab: Path, tmp_path: Path) -> None:
    job = load_job(EXAMPLES / "clinic_lab" / "job.yaml")
    job = job.model_copy(update={"evaluate": job.evaluate.model_copy(update={"repeats": 4})})
    randomness = {name: Randomness(name.encode().ljust(32, b"-")) for name in job.parties.all}
    files = {name: clinic_lab / f"{name}.csv" for name in job.parties.all}
    simulate(job, files, tmp_path, randomness=randomness)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["metrics"]["auc"] > 0.95
    assert report["metrics"]["auc"] > report["local_metrics"]["auc"] + 0.04
    assert report["gains"]["auc"]["low"] > 0  # the interval over four splits is above nothing
    assert report["metrics"]["nll"] < report["local_metrics"]["nll"]


@pytest.mark.slow
def test_clinic_gains_from_a_lab_that_learns_no_overlap(clinic_lab: Path, tmp_path: Path) -> None:
    job = load_job(EXAMPLES / "clinic_lab" / "asymmetric.yaml")
    randomness = {name: Randomness(name.encode().ljust(32, b"-")) for name in job.parties.all}
    files = {name: clinic_lab / f"{name}.csv" for name in ("clinic", "lab")}
    folders = simulate(job, files, tmp_path, randomness=randomness)
    reports = {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}
    clinic = reports["clinic"]
    assert clinic["metrics"]["auc"] > 0.95
    assert clinic["metrics"]["auc"] > clinic["local_metrics"]["auc"] + 0.04
    assert clinic["alignment"]["intersection"] < clinic["alignment"]["rows"] == 512
    assert reports["lab"]["alignment"]["intersection"] is None
    assert reports["lab"]["metrics"] is None
    assert reports["coordinator"]["alignment"] is None
    assert any("fewer than 20 for each" in warning for warning in clinic["training"]["warnings"])


@pytest.mark.slow
def test_an_insurer_hides_a_column_by_its_own_settings(clinic_lab: Path, tmp_path: Path) -> None:
    """With fewer epochs and one split; the figures of the example's page are those of all epochs."""
    job = load_job(EXAMPLES / "clinic_lab" / "three.yaml")
    fewer = {"train": job.train.model_copy(update={"epochs": 6}), "evaluate": job.evaluate.model_copy(update={"repeats": 1})}
    job = job.model_copy(update=fewer)
    files = {name: clinic_lab / f"{name}.csv" for name in job.parties.all}
    insurer = read_private(EXAMPLES / "clinic_lab" / "insurer_settings.yaml")
    assert insurer.document["defences"] == [{"name": "fbs", "columns": ["region"]}]
    audited = PrivateSettings({"audit": insurer.document["audit"]})
    found = {}
    for name, own in (("hidden", insurer), ("shown", audited)):
        simulate(job, {}, tmp_path / name, settings=trial_settings(job, files, given={"insurer": own}), extras=Extras(seed=1))
        whole, report = (json.loads((tmp_path / name / party / "report.json").read_text()) for party in ("", "insurer"))
        assert report["training"]["feature_audit"].keys() == {"age", "region", "visits_last_year", "claims_last_year"}
        assert "region" not in json.dumps(whole)
        found[name] = report["training"]["feature_audit"]["region"]
    assert found["shown"]["constant"] < 0.4
    assert found["shown"]["static"] > 0.9
    assert found["hidden"]["static"] < found["shown"]["static"] - 0.2
    assert found["hidden"]["held_out"] < found["shown"]["held_out"] - 0.2


LINKED = {"agency": "sales.csv", "schools": "schools.csv"}


@pytest.fixture(scope="module")
def linkage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made("linkage", tmp_path_factory.mktemp("linkage"))


def linked(data: Path, out: Path, *, epochs: int = 6, max_reuse: int | None = None) -> dict[str, Any]:
    """Reports of a smaller form of the example's job, by the settings that it has."""
    job = load_job(EXAMPLES / "linkage" / "job.yaml")
    job = job.model_copy(update={"train": job.train.model_copy(update={"epochs": epochs})})
    given = {name: read_private(EXAMPLES / "linkage" / f"{name}_settings.yaml") for name in LINKED}
    if max_reuse:
        own = given["schools"].document
        everyone = own["policy"]["everyone"] | {"linkage": {"max_reuse": max_reuse}}
        given["schools"] = PrivateSettings({**own, "policy": {"everyone": everyone}})
    files = {name: data / file for name, file in LINKED.items()}
    settings = trial_settings(job, files, given=given, compare=Compare(boosted_tree=False))
    folders = simulate(job, {}, out, settings=settings, extras=Extras(seed=1))
    return {name: json.loads((folder / "report.json").read_text()) for name, folder in folders.items()}


def test_sales_and_schools_have_places_and_no_identifier_in_common(linkage: Path, tmp_path: Path) -> None:
    columns, sales = read(linkage / "sales.csv")
    others, schools = read(linkage / "schools.csv")
    assert (columns, others) == (["id", "lat", "lon", "area", "age", "price"], ["id", "lat", "lon", "results", "pupils"])
    assert (len(sales), len(schools)) == (3000, 400)
    assert {row["id"] for row in sales}.isdisjoint(row["id"] for row in schools)
    mixed = read(linkage / "schools_mixed.csv")[1]
    assert [row["lat"] for row in mixed] == [row["lat"] for row in schools]
    assert sorted(row["results"] for row in mixed) == sorted(row["results"] for row in schools)
    assert sum(one["results"] == other["results"] for one, other in zip(mixed, schools, strict=True)) < 20
    placed = read(linkage / "sales_with_place.csv")[1]
    assert all((row["north"], row["east"]) == (row["lat"], row["lon"]) for row in placed)
    again = made_again("linkage", tmp_path)
    for name in ("sales", "sales_with_place", "schools", "schools_mixed"):
        assert (again / f"{name}.csv").read_bytes() == (linkage / f"{name}.csv").read_bytes()


@pytest.mark.slow
def test_sales_gain_from_schools_near_them(linkage: Path, tmp_path: Path) -> None:
    agency, schools, coordinator = linked(linkage, tmp_path).values()
    assert agency["metrics"]["r2"] > agency["local_metrics"]["r2"] + 0.2
    assert agency["alignment"]["candidates"] == 10
    assert 75 < schools["alignment"]["reuse"] <= 200
    assert coordinator["training"] is None


def test_the_school_office_may_refuse_that_a_school_is_used_as_often(linkage: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"linkage\.max_reuse"):
        linked(linkage, tmp_path, max_reuse=100)


def test_three_parties_in_a_minute(tmp_path: Path) -> None:
    """The commands of docs/guides/try-a-job.md, in one process, with a third of the epochs and one split of the rows."""
    page = (EXAMPLES.parent / "docs" / "guides" / "try-a-job.md").read_text()
    make, run, compose = re.findall(
        r"^    (.+)$", page.partition("## Three parties in a minute")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert compose == "docker compose --profile three run --rm three"  # tests/compose runs it
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    job = tmp_path / "examples" / "clinic_lab" / "three.yaml"
    text = job.read_text()
    assert "epochs: 30" in text
    assert "repeats: 5" in text
    job.write_text(text.replace("epochs: 30", "epochs: 10").replace("repeats: 5", "repeats: 1"))
    (python, *script), (tool, *words) = shlex.split(make), shlex.split(run)
    assert (python, tool) == ("python", "vfl-node")
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    subprocess.run([sys.executable, *script], check=True, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, timeout=240)
    done = command(*words, "--in-process", "--seed", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "runs" / "three"
    assert (out / "report.html").exists()
    clinic, *others = (json.loads((out / path / "report.json").read_text()) for path in ("", "lab", "insurer"))
    assert clinic["alignment"]["theirs"] == {"lab": 512, "insurer": 512}
    assert {report["alignment"]["union"] for report in (clinic, *others)} == {568}
    assert clinic["alignment"]["intersection"] == 416
    assert clinic["metrics"]["auc"] > clinic["local_metrics"]["auc"] + 0.04
    worse = {name: of["auc"]["mean"] for name, of in clinic["training"]["split"]["contributions"].items()}
    assert worse["lab"] > worse["insurer"] > 0.02
    assert [report["training"]["split"]["contributions"] for report in others] == [None, None]
