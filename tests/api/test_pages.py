"""What README.md, docs/guides/use-it-from-python.md and the notebook show is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebook").glob("*.ipynb"))


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_the_pages_of_python_run_from_their_first_line_to_their_last(trial: Any, tmp_path: Path) -> None:
    shutil.copy(trial.clinic, tmp_path / "clinic.csv")
    shutil.copy(trial.lab, tmp_path / "lab.csv")
    (readme,) = blocks(ROOT / "README.md")
    assert len(readme.splitlines()) <= 12
    (tmp_path / "page.py").write_text("\n".join([readme, *blocks(ROOT / "docs" / "guides" / "use-it-from-python.md")]))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "E_COLUMN" in done.stdout  # the error that the page shows
    assert {path.name for path in tmp_path.iterdir()} >= {"report.html", "lab.html", "loss.svg"}


def of_kind(notebook: Any, kind: str) -> list[str]:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_what_it_gives(path: Path) -> None:
    stored = nbformat.read(path, as_version=4)
    codes = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in codes] == list(range(1, len(codes) + 1))
    assert of_kind(stored, "image/svg+xml") or of_kind(stored, "text/html")
    assert any('sandbox=""' in html for html in of_kind(stored, "text/html")) == ("result.report\n" in f"{codes[-1].source}\n")
    assert not re.search(r"/(tmp|home|root|work)/", path.read_text())


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=pytest.mark.slow if path.stem == "first_model" else ()) for path in NOTEBOOKS]
)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    stored = nbformat.read(path, as_version=4)
    fresh = nbformat.from_dict(stored)
    for cell in fresh.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(fresh, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    for kind in ("image/svg+xml", "text/html"):
        assert len(of_kind(fresh, kind)) == len(of_kind(stored, kind))
    outputs = [output for cell in fresh.cells for output in cell.get("outputs", ())]
    assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
