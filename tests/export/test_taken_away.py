"""A trained model leaves the product by its commands and by Python, and says the same outside."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from tests.export.needs import needs_onnx
from tests.export.worlds import hidden_half, mixed_table, regression_half
from vfl_node import Result, load, run
from vfl_node.cli import app
from vfl_node.data.tables import Table
from vfl_node.errors import DataError, PolicyError, UsageError, VflError
from vfl_node.execution.outcome import JobOutcome
from vfl_node.export.card import HOLDS, _hide_values, held
from vfl_node.export.exporting import to_onnx
from vfl_node.export.folders import open_folder
from vfl_node.export.joining import score_jointly
from vfl_node.models import storage

ROWS = 300
CELLS = ("grün", "中文", "it's rare")


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    draws = np.random.default_rng(3)
    ids = [f"ID {row:04}" for row in range(ROWS)]
    age = draws.normal(50, 12, ROWS)
    age[::11] = np.nan
    when = pd.to_datetime("2019-06-01") + pd.to_timedelta(draws.integers(0, 20_000, ROWS), unit="h")
    clinic = {"id": ids, "label": (np.nan_to_num(age) > 50).astype(int), "age": age, "visit": when.strftime("%Y-%m-%dT%H:%M")}
    colour = draws.choice([*CELLS[:2], "rot", ""], ROWS)
    colour[5] = CELLS[2]
    lab = {"id": ids, "income": np.exp(draws.normal(8, 3, ROWS)), "colour": colour, "score": draws.normal(0, 1, ROWS)}
    return pd.DataFrame(clinic), pd.DataFrame(lab).sample(frac=1, random_state=1)


def train(folder: Path, keys: dict[str, Any]) -> Result:
    clinic, lab = tables()
    job = {"name": "trial", "parties": {"active": "clinic", "passive": ["lab"]}, "align": {"protocol": "psi"}, "train": keys}
    return run(job, active=clinic, passive=lab, out=folder, progress=False, seed=5, predictions=True)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train(tmp_path_factory.mktemp("split"), {"bottom": [8, 4], "active_bottom": [4], "top": [4], "epochs": 2})


@pytest.fixture(scope="module")
def logistic(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return train(tmp_path_factory.mktemp("logistic"), {"algorithm": "logistic", "iterations": 3, "key_bits": 2048})


def test_predictions_in_one_place(split: Result, logistic: Result) -> None:
    clinic, lab = tables()
    for result in (split, logistic):
        known = result.predictions.to_pandas()
        found = result.predict(active=clinic, passive=lab).to_pandas()
        assert list(found.columns) == ["id", "probability"]
        assert list(found["id"]) == list(clinic["id"])
        np.testing.assert_allclose(found["probability"], known["probability"], rtol=0, atol=1e-12)
        part = result.predict(clinic=clinic, lab=lab[lab["id"] < "ID 0100"]).to_pandas()
        assert part["probability"].notna().sum() == 100
    with pytest.raises(UsageError, match="table of lab is missing"):
        split.predict(active=clinic)
    with pytest.raises(UsageError, match="'bank'"):
        split.predict(active=clinic, passive=lab, bank=lab)
    with pytest.raises(DataError, match="'income'"):
        split.predict(active=clinic, passive=lab.drop(columns="income"))


@needs_onnx
def test_several_rows_a_person_are_read_as_in_the_training(tmp_path: Path) -> None:
    clinic, lab = tables()
    draws = np.random.default_rng(4)
    visits = lab.sample(frac=3, replace=True, random_state=2)
    visits = pd.concat([lab, visits]).assign(day=draws.integers(0, 400, 4 * ROWS))
    aggregate = {"columns": {"income": ["mean", "last"], "colour": {"most": True, "values": [CELLS[0]]}}, "order": "day"}
    job = {"align": {"protocol": "psi"}, "train": {"bottom": [8], "active_bottom": [4], "top": [4], "epochs": 1}}
    settings = {"passive": {"data": {"aggregate": aggregate}}}
    result = run(job, active=clinic, passive=visits, settings=settings, progress=False, seed=5, predictions=True)
    known, found = result.predictions.to_pandas(), result.predict(active=clinic, passive=visits).to_pandas()
    np.testing.assert_allclose(found["probability"], known["probability"], rtol=0, atol=1e-12)
    for card in (files[-1] for files in result.export(tmp_path, forms=["onnx", "card"]).values()):
        assert "300 rows of the table" in card.read_text()


@needs_onnx
def test_files_say_what_the_model_says(split: Result, logistic: Result, tmp_path: Path) -> None:
    clinic, lab = tables()
    for name, result in (("split", split), ("logistic", logistic)):
        written = result.export(tmp_path / name)
        assert {path.name for path in written["lab"]} >= {"lab.onnx", "card.json", "card.md"}
        assert all(path.stat().st_mode & 0o777 == 0o600 for paths in written.values() for path in paths)
        assert ("lab.sql" in {path.name for path in written["lab"]}) == (name == "logistic")
        files = {party: load(tmp_path / name / party / f"{party}.onnx") for party in ("clinic", "lab")}
        ordered = lab.sort_values("id")
        found = files["clinic"].score(clinic, {"lab": files["lab"].embed(ordered)})
        np.testing.assert_allclose(found, result.predictions.to_pandas()["probability"], rtol=0, atol=1e-6)
        card = json.loads((tmp_path / name / "clinic" / "card.json").read_text())
        assert card["check"]["own_rows"] == ROWS
        assert card["check"]["difference"] <= 1e-6
        assert card["metrics"]["auc"]["value"] == result.metrics["auc"]  # type: ignore[index]
        assert card["metrics"]["auc"]["low"] < card["metrics"]["auc"]["high"]


@needs_onnx
def test_cards_have_no_cells(split: Result, tmp_path: Path) -> None:
    split.export(tmp_path)
    clinic, lab = tables()
    for name in ("card.json", "card.md"):
        for party, table in (("clinic", clinic), ("lab", lab)):
            text = (tmp_path / party / name).read_text()
            cells = {str(cell) for column in table.columns for cell in table[column] if str(cell) not in ("0", "1", "", "nan")}
            assert not [cell for cell in cells if cell in text]
    said = (tmp_path / "lab" / "card.md").read_text()
    assert "levels of its categories, which are cells of its table" in said
    assert "no budget counts it" in said


@needs_onnx
def test_values_that_are_counted_are_not_on_the_card_and_ids_have_their_names(tmp_path: Path) -> None:
    people = [f"p{number}" for number in range(60)]
    clinic = pd.DataFrame({"customer": people, "age": np.arange(60.0), "label": [0, 1] * 30})
    shops = np.random.default_rng(1).choice(["Aldi-HIV", "Lidl", "Coop"], 180)
    lab = pd.DataFrame({"customer": people * 3, "amount": np.arange(180.0), "shop": shops})
    aggregate = {"columns": {"amount": "mean", "shop": {"top": 3}}}
    settings = {
        "active": {"data": {"id": "customer"}},
        "passive": {"data": {"id": "customer", "aggregate": aggregate}},
    }
    keys = {"algorithm": "logistic", "iterations": 1, "key_bits": 2048}
    job = {"align": {"protocol": "psi"}, "train": keys, "evaluate": {}}
    result = run(job, active=clinic, passive=lab, settings=settings, progress=False, seed=1, out=tmp_path / "run")
    written = {path.name: path.read_text() for path in result.export(tmp_path / "out")["passive"] if path.suffix != ".onnx"}
    card = json.loads(written["card.json"])
    assert card["reads"] == {"amount_mean": "numeric"}
    assert card["counts"] == {"shop": 3}
    assert "levels of its categories, which are cells of its table" in card["holds"]
    assert "3 of them count the rows with one value of shop" in written["card.md"]
    assert not [shop for shop in set(shops) for name in ("card.json", "card.md") if shop in written[name]]
    assert _hide_values(["Column 'shop_count_Lidl' is odd"], {"shop_count_Lidl": "shop"}) == ["Column 'shop_count_…' is odd"]
    assert '"customer"' in written["passive.sql"]
    assert '"id"' not in written["passive.sql"]
    words = ["export", str(tmp_path / "run"), str(tmp_path / "by id"), "--id-column", "customer", "--sql"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (tmp_path / "by id" / "passive" / "passive.sql").read_text() == written["passive.sql"]


def test_a_card_says_which_cells_encodings_hold() -> None:
    table = mixed_table(dates=False, transforms=False)
    cells = "quantiles of its columns of numbers, which are cells of its table"
    for half, there in (
        (hidden_half(table, "passive", {"epsilon": None}), True),
        (regression_half(table, "passive", {}, "log"), True),
        (regression_half(Table(table.ids, {"plain": table.columns["plain"]}), "passive", {}), False),
    ):
        assert (cells in [HOLDS[name] for name in held(half)]) == there


@needs_onnx
def test_files_of_an_earlier_export_are_on_the_card_or_gone(split: Result, logistic: Result, tmp_path: Path) -> None:
    target = tmp_path / "lab"
    logistic.export(tmp_path)
    split.export(tmp_path)
    assert not (target / "lab.sql").exists()
    split.export(tmp_path, forms=["card"])
    assert list(json.loads((target / "card.json").read_text())["files"]) == ["lab.onnx"]
    (target / "lab.onnx").write_bytes((target / "lab.onnx").read_bytes() + b" ")
    with pytest.raises(UsageError, match="is not the file"):
        load(target / "lab.onnx")


@needs_onnx
def test_mistakes_are_told(split: Result, tmp_path: Path) -> None:
    clinic, lab = tables()
    with pytest.raises(UsageError, match="no form 'onx'") as refused:
        split.export(tmp_path / "x", forms=["onx"])  # type: ignore[list-item]
    assert refused.value.code == "E_EXPORT"
    folder = str(split.folder)
    assert_fails("E_USAGE", ["export", folder, str(tmp_path / "x"), "--data", "pasive=nofile.csv"], "no half is of pasive")
    sealed = tmp_path / "jobs" / "trial-1"
    shutil.copytree(split.folder / "lab", JobOutcome(sealed).artefacts)
    JobOutcome(sealed).seal()
    assert_fails("E_POLICY", ["export", str(JobOutcome(sealed).artefacts), str(tmp_path / "x")], "whose policy says")
    for content in ("{}", '{"party": "lab", "role": "passive", "job": 3, "training": 1, "finished": ""}'):
        (JobOutcome(sealed).artefacts / "SHA256SUMS").unlink(missing_ok=True)
        (JobOutcome(sealed).artefacts / "report.json").write_text(content)
        assert_fails("E_EXPORT", ["export", str(JobOutcome(sealed).artefacts), str(tmp_path / "x")], "is of no training")
    assert not (tmp_path / "x").exists()
    for asked, words in (
        ({"active": 5}, "is of type int"),
        ({"active": clinic, "id_column": "age"}, "reads column 'age'"),
    ):
        with pytest.raises(UsageError, match=words):
            split.predict(**{"passive": lab, **asked})  # type: ignore[arg-type]
    half = open_folder(split.folder)[0]
    half.about = replace(half.about, id_form=("text", "integer"))
    with pytest.raises(UsageError, match="have 2 columns, and 1 are named"):
        score_jointly([half, open_folder(split.folder / "lab")[0]], {"active": clinic, "passive": lab})
    split.export(tmp_path / "files")
    for party in ("clinic", "lab"):
        (tmp_path / "files" / party / "card.json").write_text("[]")
    files = {party: load(tmp_path / "files" / party / f"{party}.onnx") for party in ("clinic", "lab")}
    part = files["lab"].embed(lab)
    for frame, parts, words in (
        (None, part, "table of clinic is missing"),
        (clinic, [["a"]], "are no numbers"),
        (clinic, [[1.0], [1.0, 2.0]], "are no numbers"),
        (clinic, 3.0, "is due"),
        (clinic, part[:1], "is due"),
    ):
        with pytest.raises(UsageError, match=words):
            files["clinic"].score(frame, {"lab": parts})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="is of type int"):
        files["lab"].embed(3)


@needs_onnx
def test_the_commands(split: Result, tmp_path: Path) -> None:
    clinic, lab = tables()
    clinic.to_csv(tmp_path / "clinic.csv", index=False)
    lab.to_csv(tmp_path / "lab.csv", index=False)
    options = ["--data", f"active={tmp_path / 'clinic.csv'}", "--data", f"lab={tmp_path / 'lab.csv'}"]
    done = CliRunner().invoke(app, ["export", str(split.folder), str(tmp_path / "out"), *options])
    assert done.exit_code == 0, done.output
    halves = [str(tmp_path / "out" / party / f"{party}.onnx") for party in ("lab", "clinic")]
    done = CliRunner().invoke(app, ["score", *halves, *options, "--out", str(tmp_path / "scores.csv")])
    assert done.exit_code == 0, done.output
    assert "300 of 300 records" in done.output
    found, known = pd.read_csv(tmp_path / "scores.csv"), split.predictions.to_pandas()
    np.testing.assert_allclose(found["probability"], known["probability"], rtol=0, atol=1e-6)
    assert_fails("E_EXPORT", ["score", halves[0], *options, "--out", str(tmp_path / "x.csv")], "0 of the halves predict")
    assert_fails("E_EXPORT", ["score", halves[1], *options, "--out", str(tmp_path / "x.csv")], "half of lab is missing")


@needs_onnx
def test_a_changed_file_and_another_model_are_refused(split: Result, logistic: Result, tmp_path: Path) -> None:
    split.export(tmp_path / "split")
    logistic.export(tmp_path / "logistic")
    clinic, lab = tables()
    mixed = [load(tmp_path / "split" / "clinic" / "clinic.onnx"), load(tmp_path / "logistic" / "lab" / "lab.onnx")]
    with pytest.raises(UsageError, match="of job") as refused:
        score_jointly(mixed, {"clinic": clinic, "lab": lab})
    assert refused.value.code == "E_EXPORT"
    file = tmp_path / "split" / "lab" / "lab.onnx"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(UsageError, match="is not the file"):
        load(file)
    (file.parent / "card.json").unlink()
    file.write_bytes(b"no model")
    with pytest.raises(UsageError, match="is no half"):
        load(file)
    with pytest.raises(UsageError, match="No such file"):
        load(tmp_path / "none.onnx")


@needs_onnx
def test_a_loaded_half_needs_no_torch(split: Result, tmp_path: Path) -> None:
    split.export(tmp_path, forms=("onnx",))
    tables()[1].to_csv(tmp_path / "lab.csv", index=False)
    program = (
        f"import sys, vfl_node; half = vfl_node.load({str(tmp_path / 'lab' / 'lab.onnx')!r})\n"
        f"embedding, encoded = half.embed({str(tmp_path / 'lab.csv')!r}), half.encode({str(tmp_path / 'lab.csv')!r})\n"
        "print(embedding.shape, sorted(encoded), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == f"({ROWS}, 4) ['codes', 'numeric'] False"


@needs_onnx
def test_a_node_exports_its_own_half_if_its_policy_says_so(split: Result, tmp_path: Path) -> None:
    tables()[1].to_csv(tmp_path / "lab.csv", index=False)
    outcome = JobOutcome(tmp_path / "state" / "jobs" / "trial-1")
    shutil.copytree(split.folder / "lab", outcome.artefacts)
    outcome.seal()
    settings = {
        "name": "lab",
        "role": "passive",
        "listen": "127.0.0.1:1",
        "state_dir": str(tmp_path / "state"),
        "data": {"path": str(tmp_path / "lab.csv")},
        "peers": {},
        "insecure_loopback": True,
    }
    command = ["export", "trial-1", str(tmp_path / "out"), "--config", str(tmp_path / "node.yaml")]
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(settings))
    assert_fails("E_POLICY", command, "does not allow its halves to leave")
    assert not (tmp_path / "out").exists()
    settings["policy"] = {"everyone": {"allow_export": True}}
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(settings))
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, f"{done.output}{done.exception}"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["card.json", "card.md", "lab.onnx"]
    assert json.loads((tmp_path / "out" / "card.json").read_text())["check"]["own_rows"] == ROWS
    assert_fails("E_UNKNOWN_JOB", [*command[:1], "../trial-1", *command[2:]], "no finished job")
    assert_fails("E_EXPORT", [*command, "--sql"], "a network has no SQL")
    with (outcome.artefacts / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    assert_fails("E_STATE_CORRUPT", command, "is not what")


def test_what_is_not_installed_is_named(split: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.halves.graph.find_spec", lambda package: None)
    with pytest.raises(UsageError, match="is not installed") as refused:
        split.export(tmp_path / "x")
    assert refused.value.code == "E_EXTENSION"
    assert refused.value.hint == "pip install 'vfl-node[onnx]'"
    assert not (tmp_path / "x").exists()
    split.export(tmp_path / "cards", forms=("card",))
    assert json.loads((tmp_path / "cards" / "lab" / "card.json").read_text())["check"] is None


@needs_onnx
def test_a_difference_leaves_no_file(split: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfl_node.export.checks.BOUND", -1.0)
    with pytest.raises(UsageError, match="would say another thing") as refused:
        split.export(tmp_path / "x")
    assert refused.value.code == "E_EXPORT"
    assert not (tmp_path / "x").exists()


def test_lists_are_predicted_but_not_exported() -> None:
    clinic, lab = tables()
    lab["seen"] = ["a|b", "b|c|a", ""] * (ROWS // 3)
    job = {"align": {"protocol": "psi"}, "train": {"model": "youtube_dnn", "bottom": [4], "top": [], "epochs": 1}}
    settings = {"passive": {"data": {"columns": {"seen": "list"}}}}
    result = run(job, active=clinic, passive=lab, settings=settings, progress=False, predictions=True)
    found = result.predict(active=clinic, passive=lab).to_pandas()["probability"]
    np.testing.assert_allclose(found, result.predictions.to_pandas()["probability"], rtol=0, atol=1e-12)
    half, _ = open_folder(result.folder / "passive")
    with pytest.raises(UsageError, match="lists") as refused:
        to_onnx(half)
    assert refused.value.code == "E_EXPORT"


def test_an_earlier_half_is_refused(split: Result, tmp_path: Path) -> None:
    shutil.copytree(split.folder / "lab", tmp_path / "lab")
    weights, head = storage.load(tmp_path / "lab" / "model.safetensors")
    storage.save(tmp_path / "lab" / "model.safetensors", weights, {k: v for k, v in head.items() if k != "scoring"})
    assert_fails("E_EXPORT", ["export", str(tmp_path / "lab"), str(tmp_path / "x")], "earlier vfl-node")


def assert_fails(code: str, command: list[str], text: str) -> None:
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, VflError), done.output
    assert done.exception.code == code
    assert text in done.exception.message
    assert isinstance(done.exception, PolicyError) == (code == "E_POLICY")
