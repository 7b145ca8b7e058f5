"""The command ``vfl-node estimate``: from the job, the options and the node's own table to a table of costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vfl_node.cli import app
from vfl_node.errors import VflError
from vfl_node.estimate import machine
from vfl_node.estimate.machine import Machine


class TestCommand:
    """``vfl-node estimate``."""

    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def known(group: object, cores: int, folder: Path) -> Machine:
            return Machine(cores, 5e-6, 30e-6, 2e-6, 1e-6, 5e-10, 2e8)

        monkeypatch.setattr(machine, "measure", known)

    @pytest.fixture
    def files(self, tmp_path: Path, trial: Any) -> dict[str, Path]:
        """A job, and the configurations of a node that is in it and of one that is not."""
        (tmp_path / "job.yaml").write_text("name: trial\nparties: {active: clinic, passive: lab}\nalign: {protocol: psi}")
        for name in ("lab", "bank"):
            (tmp_path / f"{name}.yaml").write_text(
                f"{{name: {name}, role: passive, group_threads: 3, insecure_loopback: true, http: null,"
                f" listen: '127.0.0.1:0', data: {{path: {trial.lab}}}}}"
            )
        return {file.stem: file for file in tmp_path.glob("*.yaml")}

    @staticmethod
    def said(*words: object) -> str:
        result = CliRunner().invoke(app, ["estimate", *map(str, words)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    def test_a_table_and_notes(self, files: dict[str, Path]) -> None:
        text = self.said(files["job"], "--active", 1000000, "--passive", 2000000, "--shared", 300000)
        assert "PSI (this job)" in text
        assert "300,000 are shared" in text
        assert "2,700,000" in text
        assert max(map(len, text.splitlines())) <= 100

    def test_for_a_program_and_with_the_nodes_own_count(self, files: dict[str, Path], trial: Any) -> None:
        text = self.said(files["job"], "--config", files["lab"], "--active", 500, "--json")
        assert not any(item in text for item in trial.ids)
        found = json.loads(text)
        assert found["records"] == {"active": 500, "passive": 160}
        assert (found["role"], found["protocol"], found["machine"]["cores"]) == ("passive", "psi", 3)
        assert found["shared"] == found["costs"]["psi"]["rows"] == [0, 160]

    @pytest.mark.parametrize(
        ("words", "code", "message"),
        [
            ([], "E_USAGE", "how many records has clinic, the active party"),
            (["--active", "9"], "E_USAGE", "how many records has lab, the passive party"),
            (["--config", "lab"], "E_USAGE", "how many records has clinic, the active party"),
            (["--active", "9", "--passive", "5", "--shared", "6"], "E_USAGE", "more than the smaller"),
            (["--config", "bank", "--active", "9"], "E_ROLE", "passive party of this job is lab"),
        ],
    )
    def test_what_is_not_known_is_asked_for(self, files: dict[str, Path], words: list[str], code: str, message: str) -> None:
        with pytest.raises(VflError, match=message) as caught:
            self.said(files["job"], *(files.get(word, word) for word in words))
        assert caught.value.code == code
        assert caught.value.exit_status == 2
