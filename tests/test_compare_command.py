"""``vfl-node compare``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.compared_runs import HIGH, SOME, a_report, store
from vfl_node.cli import app
from vfl_node.errors import UsageError


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
