"""``vfl-node compare``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from tests.compared_runs import HIGH, SOME, a_report, store
from tests.web.shown_node import TOKEN, View, a_job
from vfl_node.cli import app
from vfl_node.errors import UsageError
from vfl_node.process.logs import configure_logs
from vfl_node.web.app import create_app
from vfl_node.web.server import Server


def call(*words: object) -> str:
    """What the command prints."""
    done = CliRunner().invoke(app, ["compare", *map(str, words)])
    if done.exception:
        raise done.exception
    return done.output


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [store(tmp_path / "first", a_report(labels=HIGH)), store(tmp_path / "second", a_report(labels=SOME, epochs=7))]


def test_it_prints_the_choice_and_the_table(folders: list[Path]) -> None:
    shown = call(folders[0], folders[1] / "report.json")
    assert shown.startswith("Choose “second”: ")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "train.epochs 2 7" in lines
    assert "Labels high 0.99 (clusters) some 0.70 (gradient norm)" in lines
    assert "“second” met other rows than “first”" in shown


def test_a_program_gets_json(folders: list[Path]) -> None:
    found = json.loads(call(*folders, "--json"))
    assert found["choice"]["run"] == "second"
    assert [run["name"] for run in found["runs"]] == ["first", "second"]


def test_folders_of_the_same_name_are_called_by_their_paths(tmp_path: Path) -> None:
    runs = [store(tmp_path / name / "lab", a_report()) for name in ("first", "second")]
    found = json.loads(call(*runs, "--json"))
    assert [run["name"] for run in found["runs"]] == [str(run) for run in runs]


@pytest.fixture
def quiet() -> Iterator[None]:
    """Logs go where those of a command go, not to its output."""
    before = structlog.get_config()
    configure_logs(quiet=True)
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("quiet")
def test_jobs_of_a_running_node_are_compared(tmp_path: Path) -> None:
    view = View(tmp_path)
    view.all = [a_job(f"done-{number}", "done", report=True) for number in (1, 2)]
    for number, level in ((1, HIGH), (2, SOME)):
        store(tmp_path / f"done-{number}", a_report(labels=level))
    (tmp_path / "token").write_text(TOKEN)
    server = Server(create_app(view, token=TOKEN), "127.0.0.1", 0)
    server.start()
    try:
        node = ["--node", f"127.0.0.1:{server.port}", "--token-file", tmp_path / "token"]
        assert call("done-1", "done-2", *node).startswith("Choose “done-2”: ")
        with pytest.raises(UsageError, match="no such job here"):
            call("done-1", "none-such", *node)
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["first"], "one is named, and two to six runs can be compared"),
        (["first", "gone"], "there is no file or folder .*gone"),
        (["first", "first/empty"], "cannot read .*report.json"),
        (["first", "text"], "text is not JSON"),
        (["first", "list"], "list is no report"),
        (["first", "other"], "other is no report of this version"),
    ],
)
def test_a_mistake_ends_in_one_sentence(folders: list[Path], words: list[str], message: str) -> None:
    folder = folders[0].parent
    (folder / "first" / "empty").mkdir()
    for name, text in (("text", "{"), ("list", "[]"), ("other", "{}")):
        (folder / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        call(*(folder / word for word in words))
