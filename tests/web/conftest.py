from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.shown_node import View


@pytest.fixture
def view(tmp_path: Path) -> View:
    (tmp_path / "done-1").mkdir()
    (tmp_path / "done-1/report.html").write_text("<!doctype html><title>report</title>")
    (tmp_path / "done-1/report.json").write_text('{"format": 1}')
    (tmp_path / "token").write_text("hidden")
    return View(tmp_path)
