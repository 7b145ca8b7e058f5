"""Runs side by side in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import vfl_node
from tests.compared_runs import HIGH, SOME, a_report, store
from vfl_node.errors import UsageError


def test_paths_and_figures_are_compared_and_named(tmp_path: Path) -> None:
    folder = store(tmp_path / "high", a_report(labels=HIGH))
    other = store(tmp_path / "some", a_report(labels=SOME))
    found = vfl_node.compare([folder, str(other / "report.json")])
    assert [run.name for run in found.runs.runs] == ["high", "some"]
    assert found.choice.run == "some"
    assert "Choose “some”" in repr(found)
    named = vfl_node.compare({"one": a_report(), "two": a_report()})
    assert [row["run"] for row in named.rows] == ["one", "two"]


def test_the_frame_has_a_row_for_each_run_with_the_figures_of_the_command() -> None:
    found = vfl_node.compare({"a": a_report(seeded=True), "b": a_report(seeded=True, auc=(0.93, 0.95, 0.941), epochs=5)})
    frame, figures = found.frame, found.figures["runs"]
    assert list(frame.index) == ["a", "b"]
    assert frame["train.epochs"].tolist() == ["2", "5"]
    assert frame["auc"].tolist() == [run["metrics"]["auc"]["value"] for run in figures]
    assert frame.loc["b", "minus_first.auc.low"] == figures[1]["differences"]["auc"]["low"]
    assert frame.loc["b", "minus_first.auc.change"] == "better"
    assert frame["labels.level"].tolist() == ["high", "high"]
    assert frame["bytes"].tolist() == [2000, 2000]


def test_rows_need_no_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = vfl_node.compare({"a": a_report(), "b": a_report()})
    assert len(found.rows) == 2
    with pytest.raises(UsageError, match="pandas is not installed"):
        _ = found.frame


def test_a_notebook_shows_the_table_and_runs_nothing() -> None:
    html = vfl_node.compare({"<script>alert(1)</script>": a_report(), "b": a_report()})._repr_html_()
    assert "<th>&lt;script&gt;alert(1)&lt;/script&gt;</th>" in html
    assert "<script" not in html
    assert "<td>high 0.99 (clusters)</td>" in html


def test_what_is_no_run_ends_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="int is no run"):
        vfl_node.compare([a_report(), 3])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="cannot read"):
        vfl_node.compare([a_report(), tmp_path / "gone"])
