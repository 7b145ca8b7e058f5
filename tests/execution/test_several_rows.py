"""Jobs over tables with several rows a person: what trains and what is predicted, whatever the order of the rows."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from vfl_node import cli, run
from vfl_node.api import Result
from vfl_node.data import stored as encoders
from vfl_node.data.dates import DAY_S
from vfl_node.data.design import LinearEncoder
from vfl_node.data.features import Encoder
from vfl_node.data.tables import DateColumn
from vfl_node.errors import DataError
from vfl_node.execution.inputs import count_input, read_input
from vfl_node.job import Job
from vfl_node.node.check import check_table
from vfl_node.prediction import records as given
from vfl_node.prediction.records import read_records
from vfl_node.settings.node import Data, Settings
from vfl_node.settings.policy import Policy
from vfl_node.training.split.prediction.model import column_kinds

JOB: dict[str, Any] = {
    "align": {"protocol": "psi"},
    "train": {"bottom": [4], "active_bottom": [4], "top": [4], "epochs": 2, "batch_size": 32},
    "evaluate": {"test_fraction": 0.3},
}
SETTINGS: dict[str, Any] = {
    "active": {"data": {"aggregate": {"columns": {"cost": ["mean", "last"]}, "order": "day", "as_of": "2026-03-15"}}},
    "passive": {
        "data": {
            "columns": {"code": "categorical"},
            "aggregate": {
                "columns": {"value": ["sum", "std"], "code": {"top": 2, "most": True}, "day": "days_since_last"},
                "order": "day",
                "as_of": "2026-03-15",
                "rows": "visits",
            },
        }
    },
}
PEOPLE = 150


def rows_of(seed: int, **columns: Any) -> pd.DataFrame:
    """One to six rows of each person, of which some are later than the day of the settings."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(PEOPLE), rng.integers(1, 7, PEOPLE))
    day = pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 74, len(person)), unit="D")
    day = day.where(rng.random(len(person)) < 0.95, pd.Timestamp("2026-05-01"))
    made = {name: column(rng, person) for name, column in columns.items()}
    return pd.DataFrame({"id": [f"p{number}" for number in person], "day": day.strftime("%Y-%m-%d"), **made})


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return {
        "active": rows_of(1, cost=lambda rng, person: rng.gamma(2, 9, len(person)), label=lambda _, person: person % 2),
        "passive": rows_of(
            2,
            value=lambda rng, person: rng.normal(size=len(person)) * 10.0 ** rng.integers(-3, 3, len(person)),
            code=lambda rng, person: np.where(rng.random(len(person)) < 0.7, person % 2, rng.integers(2, 5, len(person))),
        ),
    }


def train(tables: dict[str, pd.DataFrame], out: Path) -> Result:
    return run(JOB, **tables, settings=SETTINGS, seed=7, predictions=True, out=out, progress=False)


def test_a_job_trains_on_records_and_the_order_of_the_rows_changes_no_byte(
    tables: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    shuffled = {party: frame.sample(frac=1, random_state=3) for party, frame in tables.items()}
    results = [train(tables, tmp_path / "one"), train(shuffled, tmp_path / "other")]
    files = [sorted((tmp_path / name).rglob("model.safetensors")) for name in ("one", "other")]
    assert len(files[0]) == len(files[1]) == 2
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]
    predictions = [(tmp_path / name / "predictions.csv").read_bytes() for name in ("one", "other")]
    assert predictions[0] == predictions[1]
    assert results[0].metrics == results[1].metrics

    known = {party: frame[frame.day <= "2026-03-15"] for party, frame in tables.items()}
    shared = set(known["active"].id) & set(known["passive"].id)
    said = list(csv.DictReader(predictions[0].decode().splitlines()))
    assert {row["id"] for row in said} == shared
    assert {row["label"] for row in said if int(row["id"][1:]) % 2} == {"1"}
    reports = [json.loads(path.read_text()) for path in (tmp_path / "one").rglob("report.json")]
    assert {report["party"] for report in reports} == set(tables)
    for report in reports:
        party, figures = report["party"], report["alignment"]
        sizes = known[party].groupby("id").size()
        assert figures["merged"] == {
            "rows": len(tables[party]),
            "records": figures["records"],
            "fewest": sizes.min(),
            "most": sizes.max(),
            "median": sizes.median(),
            "dropped": len(tables[party]) - len(known[party]),
            "as_of": "2026-03-15",
        }
        assert figures["records"] == len(sizes)
        assert figures["rows"] == len(shared)


def test_without_it_the_tables_are_refused(tables: dict[str, pd.DataFrame]) -> None:
    with pytest.raises(DataError) as refused:
        run(JOB, **tables, progress=False)
    assert (refused.value.code, "data.aggregate" in str(refused.value.hint)) == ("E_DUP_IDS", True)


def job() -> Job:
    return Job.model_validate({"name": "visits", "parties": {"active": "clinic", "passive": "lab"}, **JOB})


def settings(path: Path, party: str = "passive", **more: Any) -> Settings:
    role: Any = party
    name = {"active": "clinic", "passive": "lab"}[party]
    data = Data(path=path, **{**SETTINGS[party]["data"], **more})
    return Settings(name=name, role=role, data=data, insecure_loopback=True, policy=Policy(preset="trial"))


def test_records_to_predict_are_rows_too_and_have_the_columns_of_the_model(
    tables: dict[str, pd.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where other values are the commonest ones in them."""
    path = tmp_path / "own.csv"
    tables["passive"].to_csv(path, index=False)
    own = settings(path)
    read = read_input(own, job())
    encoder = Encoder.fit(read, np.arange(len(read)))
    kinds = column_kinds(encoder.to_json())
    assert {name for name in kinds if name.startswith("code_count_")} == {"code_count_0", "code_count_1"}
    asked = tmp_path / "asked.csv"
    asked.write_text("id,day,value,code\nx,2026-03-01,1.5,4\ny,2026-02-01,1,1\nx,2026-03-03,2,4\nx,2026-02-01,1,0\n")
    records = read_records(own, job(), kinds, own.tables["default"].model_copy(update={"path": asked}), all_columns=True)
    table = records.table
    encoder.transform(table)
    values = {name: table.columns[name].values.tolist() for name in ("code_count_0", "code_count_1", "value_sum", "visits")}  # type: ignore[union-attr]
    of = dict(zip(records.text.cells("id"), zip(*values.values(), strict=True), strict=True))
    assert of == {"x": (1, 0, 4.5, 3), "y": (0, 1, 1, 1)}
    for rows, answers in (("new", 2), ("known", None)):
        monkeypatch.setattr(given, "predict_of", lambda _, rows=rows: SimpleNamespace(rows=rows))
        monkeypatch.setattr(given, "numbers_read", lambda *_: {})
        request: Any = (
            own,
            job(),
            SimpleNamespace(classes=(), encoder=encoder.to_json()),
            job(),
            asked.read_bytes(),
            kinds if answers else {},
        )
        if answers:
            assert len(given.read_request(*request).table) == answers
        else:  # asked for by their ids, once each
            with pytest.raises(DataError, match="duplicate ids"):
                given.read_request(*request)
    again = read_records(own, job(), kinds, own.tables["default"], all_columns=True).table
    assert encoder.transform(again).numeric.tobytes() == encoder.transform(read).numeric.tobytes()


NOTATIONS: dict[str, tuple[dict[str, Any], str, str, dict[str, list[float]]]] = {
    "decimal comma": (
        {"columns": {"v": ["sum", "last"]}, "order": "t"},
        "id;t;v\na;1;1,5\nb;1;2.000,5\nb;2;3,25\n",
        "id;t;v\na;1;1.500\na;2;2.000\n",
        {"v_sum": [3500], "v_last": [2000]},
    ),
    "text of digits": ({"columns": {"v": "distinct"}}, "id,v\na,01\na,1\nb,x\n", "id,v\na,01\na,1\n", {"v_distinct": [2]}),
    "order of days": (
        {"columns": {"v": "last"}, "order": "t"},
        "id,t,v\na,31.01.2026,1\na,01.02.2026,2\nb,13.03.2026,3\n",
        "id,t,v\na,01.02.2026,5\na,02.01.2026,6\n",
        {"v_last": [5]},
    ),
    "first days, up to a day": (
        {"columns": {"t": ["min", "days_since_last"]}, "order": "t", "as_of": "2026-03-31"},
        "id,t\na,31.01.2026\nb,01.02.2026\n",
        "id,t\na,01.02.2026\n",
        {"t_min": [20485], "t_days_since_last": [58]},
    ),
}


@pytest.mark.parametrize("case", NOTATIONS)
def test_records_to_predict_are_read_as_those_of_the_training(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their own cells suggest: numbers, dates and text are written as they were."""
    aggregate, trained, asked, expected = NOTATIONS[case]
    (tmp_path / "own.csv").write_text(trained)
    own = Settings(
        name="lab",
        role="passive",
        data=Data(path=tmp_path / "own.csv", aggregate=aggregate),
        insecure_loopback=True,
        policy=Policy(preset="trial"),
    )
    read = read_input(own, job())
    whole = np.arange(len(read))
    for encoder in (Encoder.fit(read, whole), LinearEncoder.fit(read, "standard")):
        stored: Any = SimpleNamespace(classes=(), encoder=encoder.to_json())
        kinds = {name: "date" if name == "t_min" else "numeric" for name in expected}
        monkeypatch.setattr(given, "predict_of", lambda _: SimpleNamespace(rows="new"))
        monkeypatch.setattr(given, "numbers_read", lambda *_: {})
        found = given.read_request(own, job(), stored, job(), asked.encode(), kinds).table.columns  # type: ignore[arg-type]
        values = {
            name: (column.seconds / DAY_S if isinstance(column, DateColumn) else column.values).tolist()  # type: ignore[union-attr]
            for name, column in found.items()
        }
        assert values == expected
        assert encoders.rows_of(encoder.to_json()) == type(encoder).from_json(encoder.to_json()).rows != {}
    assert encoders.rows_of("{") == encoders.rows_of("of another trainer") == {}


def test_what_is_taken_now_must_suit_what_was_read_then() -> None:
    with pytest.raises(DataError, match="as in the training") as refused:
        given.fit_source(Data(path="x", aggregate={"columns": {"v": "sum"}}), {"v_sum": "numeric"}, {"v": "categorical"})
    assert refused.value.code == "E_COLUMN"


def test_a_model_predicts_rows_as_it_was_trained_on_them() -> None:
    """Rows of one person, whose numbers alone would be read in another way."""
    people = [f"p{number}" for number in range(60)]
    clinic = pd.DataFrame({"id": people, "age": np.arange(60.0), "label": [0, 1] * 30})
    cells = [f"{1 + number % 2}.{number:03},5" for number in range(120)]
    lab = pd.DataFrame({"id": people * 2, "v": cells})
    settings = {"passive": {"data": {"aggregate": {"columns": {"v": "sum"}}}}}
    result = run({**JOB, "evaluate": {}}, active=clinic, passive=lab, settings=settings, seed=1, progress=False)
    few = lab.assign(v=[cell.removesuffix(",5") for cell in cells])
    as_numbers = lab.assign(v=[str(float(cell.removesuffix(",5").replace(".", ""))).replace(".", ",") for cell in cells])
    said = [result.predict(active=clinic, passive=table).column("probability").to_pylist() for table in (few, as_numbers)]
    assert said[0] == said[1]


def test_an_estimate_counts_records(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    tables["passive"].to_csv(path, index=False)
    own = settings(path)
    assert count_input(own, job()).rows == len(read_input(own, job()))


def test_a_check_tells_how_many_rows_became_records_and_warns_of_the_future(
    tables: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    path = tmp_path / "own.csv"
    tables["active"].to_csv(path, index=False)
    checked = check_table(settings(path, "active"))
    assert not checked.errors
    assert checked.merged is not None
    assert checked.merged.rows == len(tables["active"])
    assert not [text for text in checked.warnings if "as_of" in text]
    late = {"columns": {"cost": "mean", "day": "last"}, "order": "day"}
    checked = check_table(settings(path, "active", aggregate=late, order="day_last"))
    assert [text for text in checked.warnings if "data.aggregate has no as_of" in text]


def test_a_look_at_the_first_rows_reads_on_where_these_are_all_too_late(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("id,day,value,code\nx,2026-09-01,1.5,4\ny,2026-02-01,1,1\nx,2026-03-03,2,4\n")
    assert [check_table(settings(path), rows=rows).profile.rows for rows in (1, 2)] == [2, 1]  # type: ignore[union-attr]
    path.write_text("id,day,value,code\nx,2026-09-01,1.5,4\n")
    assert [error.code for error in check_table(settings(path), rows=1).errors] == ["E_EMPTY"]


def test_the_command_shows_it(tables: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    tables["passive"].to_csv(tmp_path / "own.csv", index=False)
    data = {**SETTINGS["passive"]["data"], "path": "own.csv"}
    config = {"name": "lab", "role": "passive", "listen": "127.0.0.1:0", "data": data, "insecure_loopback": True}
    (tmp_path / "node.yaml").write_text(json.dumps(config))
    words = ["check", "--config", str(tmp_path / "node.yaml")]
    shown = CliRunner().invoke(cli.app, words, env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert f"{len(tables['passive'])} rows → " in shown.output
    assert "rows after 2026-03-15 left out" in shown.output
    merged = json.loads(CliRunner().invoke(cli.app, [*words, "--json"]).stdout)
    assert '"fewest": 1' in json.dumps(merged)


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "several-rows-a-person.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(example, {})
    assert float(capsys.readouterr().out) > 0.8
