"""The benchmarks run, and what they write has the shape and the ranges it should have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def ran(name: str, *arguments: str | Path) -> str:
    command: list[str | Path] = [sys.executable, BENCHMARKS / f"{name}.py", *arguments]
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="module")
def leakage(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("leakage") / "leakage.json"
    return ran("leakage", "--epochs", "2", "--jobs", "1", "--out", out), json.loads(out.read_text())


def results(leakage: tuple[str, dict[str, Any]], attack: str) -> list[dict[str, list[float | None]]]:
    return [row["results"] for row in leakage[1]["tables"][0]["rows"] if row["attack"] == attack]


def test_leakage_writes_a_table_and_json_of_the_same_rows(leakage: tuple[str, dict[str, Any]]) -> None:
    text, made = leakage
    (table,) = made["tables"]
    assert table["sizes"] == {"active": 512, "passive": 512, "union": 564, "shared": 460}
    assert {row["attacker"] for row in table["rows"]} == {"active", "passive"}
    for row in table["rows"]:
        assert f"| {row['attacker']} | {row['after']} | {row['attack']} |" in text
        assert list(row["results"]) == ["1 ep.", "2 ep.", "whole job"]
        for stage, (result,) in row["results"].items():
            if row["attack"] == "longitudinal" and stage == "1 ep.":
                assert result is None  # it compares epochs
            else:
                assert 0 <= result <= 1


def test_a_gradient_gives_the_label_away_and_with_it_who_is_known(leakage: tuple[str, dict[str, Any]]) -> None:
    (found,) = results(leakage, "gradient direction")
    assert all(value > 0.9 for (value,) in found.values())
    (given_away,), (right,) = results(leakage, "share given away by the label"), results(leakage, "share the peer holds")
    assert all(0.3 < value < 0.45 for (value,) in given_away.values())  # the clinic's rate of positives is .365
    assert all(value > 0.95 for (value,) in right.values())


def test_fixed_draws_stay_hidden_from_one_attack_and_not_from_another(leakage: tuple[str, dict[str, Any]]) -> None:
    active, *_ = results(leakage, "longitudinal")
    assert active["whole job"][0] == pytest.approx(0.5, abs=0.1)
    (twin,) = results(leakage, "same-step twin")
    assert twin["1 ep."][0] < twin["2 ep."][0] < twin["whole job"][0]
    assert twin["whole job"][0] > 0.9
    lacked, held = results(leakage, "share with an exact twin")
    assert lacked["whole job"][0] > 0.9
    assert held["whole job"][0] < 0.2


def test_inversion_needs_public_weights_and_a_cut_wider_than_the_columns(leakage: tuple[str, dict[str, Any]]) -> None:
    recovered = {(tuple(row["bottom"]), row["weights"]): row["recovered"] for row in leakage[1]["inversion"]}
    assert recovered.pop(((128, 128), "public")) > 0.95
    assert recovered == {((128, 128), "private"): 0, ((16,), "public"): 0, ((16,), "private"): 0}


def test_align_times_groups_and_protocols() -> None:
    text = ran("align", "--ids", "100")
    for name in ("curve25519", "psu", "psi"):
        assert name in text
