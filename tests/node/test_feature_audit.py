"""``vfl-node audit``: a passive node's owner attacks the half of a model that its node has kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.node.nodes import at_least, command
from tests.node.revealing import COLUMNS, FLAG, KIND, NUMBER, ROWS, make_revealing
from vfl_node.cli import app
from vfl_node.cli.audit import _names
from vfl_node.errors import StateError, UsageError, VflError
from vfl_node.execution import feature_audit as attacks
from vfl_node.execution.feature_audit import DECODERS, FeatureAuditResult
from vfl_node.node import feature_audit
from vfl_node.node.feature_audit import audit
from vfl_node.process.files import write_whole
from vfl_node.settings.reading import load_settings

SPLIT = """\
align: {protocol: psi}
train: {bottom: [16], active_bottom: [4], top: [8], epochs: 1, batch_size: 64}
evaluate: {test_fraction: 0.2}
"""
JOBS = {
    "plain": SPLIT,
    "served": SPLIT + "serve: {to: active}\n",
    "aligned only": "align: {protocol: psi}\n",
    "failed": SPLIT.replace("psi}", "psi, expect: {at_least: 481}}"),
}
NOTHING = FeatureAuditResult((), shared=True, rows=0, known=0, defences=())
PART = SPLIT.replace("psi}", "psu, at_most: 280}") + "serve: {to: active}\n"


@pytest.fixture(scope="module")
def nodes(federations: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    tables = make_revealing(tmp_path_factory.mktemp("revealing"))
    made = federations(tmp_path_factory.mktemp("nodes"), tables=tables)
    made.start_both(everyone=at_least(10))
    return made


@pytest.fixture(scope="module")
def jobs(nodes: Any) -> dict[str, str]:
    """Jobs that have ended, by what they were."""
    ids = {}
    for what, text in JOBS.items():
        ids[what] = nodes.submit(text)
        state = nodes.end("lab", ids[what])["state"]
        assert state == ("failed" if what == "failed" else "done"), (what, nodes.log("lab")[-2000:])
        nodes.end("clinic", ids[what])
    folder = nodes.job_folder("lab", ids["plain"])
    nodes.wait_until(lambda: nodes.is_cleared(folder))
    return ids


@pytest.fixture(autouse=True)
def one_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where their number is not what a test is about."""
    monkeypatch.setattr(attacks, "DECODERS", 1)


def of(nodes: Any, job_id: str, *, at: str = "lab", **options: Any) -> FeatureAuditResult:
    return audit(load_settings(nodes.folder / at / "node.yaml"), job_id, **({"known_share": 0.2} | options))


@pytest.mark.parametrize("what", ["plain", "served"])
def test_columns_are_rebuilt_from_the_half_that_was_kept(
    nodes: Any, jobs: dict[str, str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "DECODERS", DECODERS if what == "plain" else 1)
    found = of(nodes, jobs[what])
    assert found.shared == (what == "served")
    assert (found.rows, found.known, found.defences) == (ROWS, ROWS // 5, ())
    columns = {column.column: column for column in found.columns}
    assert columns.keys() == set(COLUMNS)  # none that never varies
    assert {name: column.metric for name, column in columns.items()} == {FLAG: "auc", KIND: "accuracy", NUMBER: "r2"}
    for column in found.columns:
        assert len(column.each) == attacks.DECODERS
        assert column.gain is not None
        assert column.rows == ROWS - ROWS // 5
        assert column.gain > 0.3, column  # an embedding of 16 numbers of columns this few
    assert [column.gain for column in found.columns] == sorted((column.gain for column in found.columns), reverse=True)


def test_only_the_records_that_took_part_are_audited(federations: Callable[..., Any], tmp_path: Path) -> None:
    """Of a union, in which there are synthetic rows as well; the part is the one that the memory of the partner names."""
    nodes = federations(tmp_path, tables=make_revealing(tmp_path))
    nodes.start_both(everyone=at_least(10))
    job_id = nodes.submit(PART)
    assert nodes.end("lab", job_id)["state"] == "done"
    found = of(nodes, job_id)
    assert (found.shared, found.rows, found.known) == (True, 280, 56)
    assert {column.column for column in found.columns if (column.gain or 0) > 0.2} == set(COLUMNS)


def test_the_command_prints_a_table_or_json(nodes: Any, jobs: dict[str, str]) -> None:
    words = ["audit", jobs["plain"], "--config", str(nodes.folder / "lab" / "node.yaml")]
    words += ["--columns", f"{KIND},{FLAG}", "--known-share", "0.25"]
    printed = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    lines = printed.splitlines()
    assert lines[0].split() == ["column", "metric", "constant", "rebuilt", "gain"]
    assert {lines[1].split()[0], lines[2].split()[0]} == {KIND, FLAG}
    assert "480 rows of this party that took part; which were shared is not kept" in printed
    assert "120 are known" in printed
    written = json.loads(CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False).stdout)
    assert {column["column"] for column in written["columns"]} == {KIND, FLAG}
    assert all(abs(of["gain"] - (of["rebuilt"] - of["constant"])) < 1e-9 for of in written["columns"])


@pytest.mark.parametrize(
    ("option", "names"), [("all", ()), ("a,b", ("a", "b")), ("a, b,", ("a", "b")), ('"a,b",c d', ("a,b", "c d"))]
)
def test_columns_of_the_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str, names: tuple[str, ...]) -> None:
    asked: list[Any] = []
    text = "name: lab\nrole: passive\ninsecure_loopback: true\nlisten: 127.0.0.1:0\n"
    (tmp_path / "lab.yaml").write_text(text)
    monkeypatch.setattr(feature_audit, "audit", lambda _, __, columns, ___: asked.append(columns) or NOTHING)
    CliRunner().invoke(
        app, ["audit", "job", "--config", str(tmp_path / "lab.yaml"), "--columns", option], catch_exceptions=False
    )
    assert asked == [names]


@pytest.mark.parametrize("option", ["", ",", " "])
def test_no_column_is_not_every_column(tmp_path: Path, option: str) -> None:
    text = "name: lab\nrole: passive\ninsecure_loopback: true\nlisten: 127.0.0.1:0\n"
    (tmp_path / "lab.yaml").write_text(text)
    done = command("audit", "job", "--config", tmp_path / "lab.yaml", "--columns", option)
    assert (done.returncode, "--columns names no column" in done.stderr) == (2, True)


def test_columns_of_several_lines_are_refused() -> None:
    with pytest.raises(UsageError, match="--columns is not one line of names"):
        _names("a\nb")


def test_settings_say_what_the_options_do_not(nodes: Any, jobs: dict[str, str]) -> None:
    settings = load_settings(nodes.folder / "lab" / "node.yaml")
    features = settings.audit.model_validate({"features": {"columns": [KIND], "known_share": 0.125}})
    found = audit(settings.model_copy(update={"audit": features}), jobs["plain"])
    assert ([column.column for column in found.columns], found.known) == ([KIND], 60)


REFUSED: dict[str, tuple[type[VflError], str, str, dict[str, Any]]] = {
    "unknown": (UsageError, "E_UNKNOWN_JOB", "no such job", {}),
    "aligned only": (StateError, "E_NO_MODEL", "it trained nothing", {}),
    "failed": (StateError, "E_NO_MODEL", "it is failed", {}),
    "plain": (UsageError, "E_COLUMN", "a column is not in the table of lab", {"columns": ["absent"]}),
    "served": (UsageError, "E_CONFIG", "24 of this party's rows would be taken as known", {"known_share": 0.05}),
    "at the active party": (UsageError, "E_ROLE", "clinic is active", {"at": "clinic"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_audited_is_refused_clearly(nodes: Any, jobs: dict[str, str], what: str) -> None:
    kind, code, text, options = REFUSED[what]
    with pytest.raises(kind, match=text) as refused:
        of(nodes, jobs.get(what, "no-such-job"), **options)
    assert refused.value.code == code
    assert refused.value.hint
    assert "audit.features" not in str(refused.value)  # the options say it here


def test_a_job_that_runs_is_no_model_yet(nodes: Any, jobs: dict[str, str]) -> None:
    job_id = nodes.submit(SPLIT.replace("epochs: 1", "epochs: 2000"))
    nodes.wait_until(lambda: nodes.in_training("lab", job_id))
    with pytest.raises(StateError, match="it is running") as refused:
        of(nodes, job_id)
    assert refused.value.code == "E_NO_MODEL"
    nodes.client("clinic").cancel(job_id)
    nodes.end("lab", job_id)


@pytest.mark.parametrize("what", ["plain", "served"])
def test_a_table_that_has_changed_is_refused(nodes: Any, jobs: dict[str, str], what: str) -> None:
    path: Path = nodes.trial.files["lab"]
    before = path.read_bytes()
    try:
        write_whole(path, before.replace(b"level-0", b"level-9", 1))
        with pytest.raises(StateError, match="has changed since job") as refused:
            of(nodes, jobs[what])
        assert refused.value.code == "E_INPUT_CHANGED"
    finally:
        write_whole(path, before)


def test_a_damaged_model_is_refused(nodes: Any, jobs: dict[str, str]) -> None:
    path = nodes.job_folder("lab", jobs["plain"]) / "artefacts" / "model.safetensors"
    before = path.read_bytes()
    try:
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(StateError) as refused:
            of(nodes, jobs["plain"])
        assert refused.value.code == "E_STATE_CORRUPT"
    finally:
        path.write_bytes(before)


def test_a_folder_that_is_gone_is_not_made_anew(nodes: Any, jobs: dict[str, str]) -> None:
    folder: Path = nodes.job_folder("lab", jobs["plain"])
    aside = folder.rename(folder.with_name("aside"))
    try:
        with pytest.raises(StateError, match="is gone") as refused:
            of(nodes, jobs["plain"])
        assert refused.value.code == "E_STATE_LOST"
        assert not folder.exists()
    finally:
        aside.rename(folder)


def test_it_works_while_the_node_is_down(nodes: Any, jobs: dict[str, str]) -> None:
    nodes.kill("lab")
    try:
        assert {column.column for column in of(nodes, jobs["served"]).columns} == set(COLUMNS)
        with pytest.raises(UsageError) as refused:
            of(nodes, "no-such-job")
        assert refused.value.code == "E_UNKNOWN_JOB"
    finally:
        nodes.start("lab")
