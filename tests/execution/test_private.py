"""Private settings of parties in a trial: what they may hold, what they change, and how mistakes are said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.node.nodes import FORKS, TrialNodes
from vfl_node.configuration.models import parse
from vfl_node.errors import PolicyError, UsageError, VflError
from vfl_node.execution.private import SET_BY_A_TRIAL, PrivateSettings, read_private, trial_settings
from vfl_node.execution.simulation import simulate
from vfl_node.job import Job
from vfl_node.node import federation as starting
from vfl_node.node.federation import LocalFederation
from vfl_node.settings.node import Settings

SPLIT = "train: {bottom: [4], active_bottom: [4], top: [4], epochs: 1}\n"


def job(text: str = "", parties: str = "{active: clinic, passive: lab}") -> Job:
    return parse(f"name: trial\nparties: {parties}\n{text}", Job, source="job.yaml")


def given(folder: Path, text: str, name: str = "clinic.yaml") -> PrivateSettings:
    (folder / name).write_text(text)
    return read_private(folder / name)


def settings_of(folder: Path, text: str, spec: Job, party: str = "clinic", **options: Any) -> Settings:
    files = {"clinic": folder / "given.csv", "lab": folder / "lab.csv"}
    return trial_settings(spec, files, given={party: given(folder, text, f"{party}.yaml")}, **options)[party]


def test_what_is_written_binds_and_the_rest_permits_what_the_job_asks(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, "policy: {everyone: {size: {rows: 80}}}\ndefences: [{name: noise, sigma: 0.5}]\n", job(SPLIT)
    )
    limits = settings.limits_for(None)
    assert (limits.size.rows, limits.min_own_rows, limits.min_peer_rows, limits.reveal) == (80, 1, 1, "any")
    assert limits.size.steps > 10**9
    assert [defence.name for defence in settings.defences] == ["noise"]
    narrow = settings_of(tmp_path, "policy: {everyone: {reveal: [], min_own_rows: 9}}\n", job(SPLIT))
    limits = narrow.limits_for(None)
    assert (limits.min_own_rows, limits.min_peer_rows, limits.reveal) == (9, 1, ())


def test_data_are_of_the_command_or_of_the_file_beside_which_they_lie(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    own = given(private, "data: {path: own.csv, id: number, columns: {ward: ignore}}\n")
    columns = {"id": "record", "label": "ill"}
    spec = job(SPLIT)
    files = {"lab": tmp_path / "lab.csv"}
    both = trial_settings(spec, files, given={"clinic": own}, columns=columns)
    assert both["clinic"].tables["default"].path == private / "own.csv"
    assert both["clinic"].tables["default"].id == "number"
    assert both["clinic"].tables["default"].columns == {"ward": "ignore"}
    assert both["clinic"].tables["default"].labels.column == "ill"
    assert both["lab"].tables["default"].labels.column == "ill"
    assert both["lab"].tables["default"].id == "record"
    files["clinic"] = tmp_path / "given.csv"
    replaced = trial_settings(spec, files, given={"clinic": own})["clinic"].tables["default"]
    assert (replaced.path, replaced.id) == (tmp_path / "given.csv", "number")


@pytest.mark.parametrize("own", ["columns: {ill: numeric}", "id: ill", "keys: {day: ill}"])
def test_a_column_that_a_passive_party_describes_itself_is_not_that_of_the_labels(tmp_path: Path, own: str) -> None:
    private = given(tmp_path, f"data: {{path: own.csv, {own}}}\n")
    label = {"column": "ill", "positive": "yes"}
    settings = trial_settings(job(SPLIT), {"clinic": tmp_path / "a.csv"}, given={"lab": private}, columns={"label": label})
    assert settings["lab"].tables["default"].label is None
    assert settings["clinic"].tables["default"].labels.positive == "yes"


def test_several_tables_by_name_of_which_the_command_gives_the_one_of_the_job(tmp_path: Path) -> None:
    text = "data: {visits: {path: visits.csv}, scores: {id: number}}\n"
    tables = settings_of(tmp_path, text, job("tables: {clinic: scores}\n")).tables
    assert {name: table.path.name for name, table in tables.items()} == {"visits": "visits.csv", "scores": "given.csv"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy:\n  everyone:\n    min_own_row: 3\n", "clinic.yaml:3:5: unknown key 'policy.everyone.min_own_row'"),
        ("data:\n  id: a\n  colums: {}\n", "clinic.yaml:3:3: unknown key 'data.colums'"),
        ("data: {columns: {age: numerc}}\n", "clinic.yaml:1:23: 'data.columns.age' cannot be 'numerc'"),
        ("data: table.csv\n", "clinic.yaml:1:7: 'data': 'table.csv' is not keys and values"),
        ("policy: 3\n", "clinic.yaml:1:9: 'policy': 3 is not keys and values"),
        ("obfuscation: {security_number: 2}\n", "clinic.yaml:1:32: 'obfuscation.security_number': 2 is not 1.0 or less"),
        ("- a\n", "clinic.yaml must hold keys and values"),
        ("policy: {\n", "clinic.yaml:2:1 is not valid YAML"),
        ("policy: {}\ntls: {}\n", "clinic.yaml:2:1: 'tls' cannot be set in a trial: a trial connects its parties itself"),
        ("state_dir: x\n", "clinic.yaml:1:1: 'state_dir' cannot be set in a trial: a trial runs one job"),
        ("name: clinic\n", "'name' cannot be set in a trial: the job names the parties"),
        ("threads: 2\n", "'threads' cannot be set in a trial: --threads sets it for all parties"),
        ("audit: {membership: true, wire: true}\n", "clinic.yaml:1:27: 'audit.wire' cannot be set in a trial: what is sent"),
    ],
)
def test_a_mistake_has_file_line_and_column(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(tmp_path, text, job(SPLIT))
    assert said in caught.value.message
    assert caught.value.message.startswith(str(tmp_path))


def test_what_a_passive_party_audits_hides_and_allows(tmp_path: Path) -> None:
    text = "audit: {features: {columns: [ward]}}\ndefences: [{name: fbs, columns: [ward]}]\n"
    text += "policy: {everyone: {attacks: {columns: 0.1}}}\n"
    protection = settings_of(tmp_path, text, job(SPLIT), "lab").protection
    assert protection.features
    assert (protection.features.names, protection.features.known_share) == (("ward",), 0.05)
    assert protection.max_feature_gain == 0.1
    (fbs,) = protection.defences
    assert fbs.model_dump()["columns"] == ("ward",)


@pytest.mark.parametrize(
    ("party", "text", "said"),
    [
        ("clinic", "policy: {}\naudit:\n  features: {columns: all}\n", "clinic.yaml:3:3: audit.features is for a passive node"),
        (
            "clinic",
            "defences:\n  - {name: fbs, columns: [a]}\n",
            "clinic.yaml:2:5: defences.0: 'fbs' changes nothing",
        ),
        (
            "lab",
            "policy: {everyone: {attacks: {columns: 0.1}}}\n",
            "lab.yaml:1:31: policy.everyone.attacks.columns needs audit.features",
        ),
        (
            "lab",
            "defences:\n  - name: fbs\n    columns: [a]\n    tau: 1\n",
            "lab.yaml:2:5: 'defences.0': fbs: unknown key",
        ),
        (
            "lab",
            "defences: [{name: fbs-fixed, columns: [a], tau1: 0}]\n",
            "lab.yaml:1:12: 'defences.0': fbs-fixed: 'tau1'",
        ),
        ("lab", "audit: {features: {columns: []}}\n", "lab.yaml:1:29: 'audit.features.columns'"),
    ],
)
def test_a_mistake_in_what_protects_columns_has_file_line_and_column(tmp_path: Path, party: str, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(tmp_path, text, job(SPLIT), party)
    assert caught.value.message.startswith(f"{tmp_path}/{said}")


def test_every_key_of_a_nodes_settings_is_either_set_by_a_trial_or_may_be_given() -> None:
    may_be_given = {"data", "device", "policy", "resources", "obfuscation", "models", "audit", "defences", "compare"}
    earlier = {"accept_jobs_from", "keep_days", "keep_jobs", "jobs_at_once"}
    assert set(Settings.model_fields) | earlier == may_be_given | set(SET_BY_A_TRIAL)


def test_a_party_without_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no table for lab") as caught:
        trial_settings(job(), {"clinic": tmp_path / "a.csv"}, given={"lab": given(tmp_path, "data: {id: number}\n")})
    assert caught.value.hint.startswith("--data lab=FILE.csv, or data.path in --settings lab=FILE; in Python")


def test_a_coordinator_has_no_data_and_may_have_limits(tmp_path: Path) -> None:
    three = "{active: clinic, passive: lab, coordinator: notary}"
    spec = job("align: {protocol: psi}\ntrain: {algorithm: logistic, flow: coordinator, loss: taylor}\n", three)
    files = {name: tmp_path / f"{name}.csv" for name in ("clinic", "lab")}
    limits = given(tmp_path, "policy: {everyone: {size: {steps: 5}}}\n")
    assert trial_settings(spec, files, given={"notary": limits})["notary"].limits_for(spec).size.steps == 5
    with pytest.raises(UsageError, match="a coordinator has no data"):
        trial_settings(spec, files, given={"notary": given(tmp_path, "data: {path: a.csv}\n")})


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        ("policy: {everyone: {protocols: [psi]}}\n", "aligns by psu, which this node's policy does not allow", "E_POLICY"),
        (
            "policy: {everyone: {min_own_rows: 161}}\n",
            "clinic takes part with 160 records, and this node's minimum is 161",
            "E_TOO_FEW",
        ),
        ("policy: {everyone: {size: {parameters: 20}}}\n", "weights of a model at this node", "E_POLICY"),
        ("resources: {memory_mib: 1}\n", "1 MiB are free", "E_MEMORY"),
    ],
)
def test_a_limit_binds_in_one_process(tmp_path: Path, trial: Any, text: str, said: str, code: str) -> None:
    own = {"clinic": given(tmp_path, text)}
    settings = trial_settings(trial.job(), trial.files, given=own)
    with pytest.raises(VflError, match=said) as caught:
        simulate(trial.job(), {}, tmp_path / "out", settings=settings)
    assert caught.value.code == code


def test_both_ways_of_running_read_the_same_settings(tmp_path: Path, trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are left out and a defence acts; and a limit binds at a process as it does in one."""
    monkeypatch.setattr(starting, "subprocess", TrialNodes(context=FORKS))
    spec = trial.job(SPLIT + "evaluate: {test_fraction: 0.3}\n")
    path = {"data": {"path": str(trial.lab), "columns": {"measure-02-canary": "ignore"}}}
    text = json.dumps(path | {"defences": [{"name": "noise", "sigma": 0.25}]})
    settings = trial_settings(spec, {"clinic": trial.clinic}, given={"lab": given(tmp_path, text, "lab.yaml")})
    simulate(spec, {}, tmp_path / "one", settings=settings)
    with LocalFederation(spec, settings, logs=tmp_path / "logs") as federation:
        federation.run(tmp_path / "several", lambda _: None)
    reports = [json.loads((tmp_path / way / "lab" / "report.json").read_text()) for way in ("one", "several")]
    for report in reports:
        (defence,) = report["training"]["split"]["defences"]
        assert (defence["name"], defence["sigma"]) == ("noise", 0.25)
    narrow = {"lab": given(tmp_path, "policy: {everyone: {protocols: [psi]}}\n", "lab.yaml")}
    settings = trial_settings(spec, trial.files, given=narrow)
    with (
        LocalFederation(spec, settings, logs=tmp_path / "logs") as federation,
        pytest.raises(VflError, match=r"its policy does not allow the job \(kind\)"),
    ):
        federation.run(tmp_path / "several", lambda _: None)
    with pytest.raises(PolicyError, match="aligns by psu, which this node's policy does not allow"):
        simulate(spec, {}, tmp_path / "one", settings=settings)
