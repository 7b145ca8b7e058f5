"""The command ``vfl-node plan``: from options, or from a person on a terminal, to a job that other commands accept."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from vfl_node.cli import app
from vfl_node.configuration.models import parse
from vfl_node.errors import VflError
from vfl_node.estimate import machine
from vfl_node.estimate.machine import Machine
from vfl_node.job import Job, load_job

FLAGS = {
    "--active": "1000",
    "--passive": "2000000",
    "--task": "binary",
    "--may-learn-shared": "none",
    "--third-party": "yes",
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(group: object, cores: int, folder: Path) -> Machine:
        return Machine(cores, 5e-6, 30e-6, 2e-6, 1e-6, 5e-10, 2e8)

    monkeypatch.setattr(machine, "measure", known)


def say(*words: object, **flags: str) -> Result:
    """What the command says without a terminal; an empty value leaves a flag of :data:`FLAGS` out."""
    given = FLAGS | {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    options = [part for name, value in given.items() if value for part in (name, value)]
    return CliRunner().invoke(app, ["plan", *options, *map(str, words)], catch_exceptions=False)


def test_a_job_its_cost_what_is_learnt_and_what_is_ruled_out() -> None:
    result = say()
    assert result.exit_code == 0
    assert "taken for granted: --same-id yes, --shared-guess 0.2, --hide-labels yes" in result.stderr
    text = result.stdout
    assert text.startswith("recommended: hidden over psu\n")
    written = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    ") and ": " in line).partition(
        "set size"
    )[0]
    assert parse(written, Job, source="job").parties.coordinator == "third-party"
    assert "    set size: how many records passive-party has (about 2,000,000)" in text
    assert "    intersection size: how many records it shares with passive-party, and not which (about 200)" in text
    assert "warning: about 200 records are shared" in text
    assert "It can tell active-party which records are shared (intersection), and you said --may-learn-shared none.\n" in text
    assert "at 100 Mbit/s and 20 ms" in text
    assert "  time: alignment about " in text


def test_for_a_program_and_into_a_file(tmp_path: Path) -> None:
    target = tmp_path / "job.yaml"
    result = say("--json", "--out", target, "--columns", "active=20", "--rtt", "5")
    found = json.loads(result.stdout)
    assert found["recommended"] == "hidden over psu"
    assert found["assumed"] == ["--same-id yes", "--shared-guess 0.2", "--hide-labels yes"]
    assert found["job_file"] == target.read_text()
    assert load_job(target) == Job.model_validate(found["job"])
    least, most = found["costs"]["align_s"]
    assert 0 < least <= most
    assert {each["to"] for each in found["learns"]} == {"active-party", "passive-party", "third-party"}
    assert {"split over psi"} <= {each["way"] for each in found["ruled_out"]}
    with pytest.raises(VflError, match="is there already") as caught:
        say("--out", target)
    assert caught.value.code == "E_FILE"


def test_other_commands_take_the_file(tmp_path: Path) -> None:
    target, table = tmp_path / "job.yaml", tmp_path / "table.csv"
    assert say("--out", target, may_learn_shared="both", third_party="no", hide_labels="no").exit_code == 0
    table.write_text("id,age,label\n" + "".join(f"r{row},{row % 60},{row % 2}\n" for row in range(200)))
    for words in (
        ["check", table, "--job", target, "--party", "active"],
        ["estimate", target, "--active", 200, "--passive", 200],
    ):
        result = CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)
        assert result.exit_code == 0, result.output


def test_several_other_parties() -> None:
    result = say("--passive", "3000", third_party="yes", may_learn_shared="both")
    assert "passive: [passive-party-1, passive-party-2]" in result.stdout
    assert "set size: how many records passive-party-2 has (about 3,000)" in result.stdout
    assert "It runs with one other party at most, and you named 2 (--passive)." in result.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"active": "", "third_party": ""}, "these answers are missing: --active, --third-party"),
        ({"task": "guess"}, "--task guess: one of binary, multiclass, regression, count is expected"),
        ({"active": "0"}, "--active 0: a number of records is expected"),
        ({"passive": "many"}, "--passive many: a number of records"),
        ({"shared_guess": "nan"}, "--shared-guess nan: a part is expected"),
        ({"third_party": "perhaps"}, "--third-party perhaps: one of yes, no is expected"),
        ({"task": "multiclass", "classes": "2"}, "--classes 2: a number of classes"),
        ({"columns": "lab=3"}, "--columns lab=3 is not ROLE=NUMBER"),
        ({"third_party": "no", "same_id": "no"}, "no way fits these answers"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(flags: dict[str, str], message: str) -> None:
    with pytest.raises(VflError) as caught:
        say(**flags)
    assert message in caught.value.message
    assert caught.value.exit_status == 2
    assert caught.value.hint


def on_a_terminal(typed: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, whose input is a terminal on which a person has typed this."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, typed.encode())
        command = [sys.executable, "-m", "vfl_node", "plan", *words]
        return subprocess.run(command, stdin=theirs, capture_output=True, text=True, check=False, timeout=300)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_person_is_asked_for_what_the_options_lack() -> None:
    typed = "\n".join(["1,000", "lots", "2000 500", "", "0.5", "count", "none", "yes", ""])
    result = on_a_terminal(typed, "--third-party", "no", "--json")
    assert result.returncode == 0, result.stderr
    answers = json.loads(result.stdout)["answers"]
    assert (answers["active"], answers["passive"]) == (1000, [2000, 500])
    assert (answers["same_id"], answers["shared_guess"], answers["aim"]) == (True, 0.5, "count")
    assert (answers["may_learn_shared"], answers["third_party"]) == ("none", False)
    assert "--passive lots: a number of records is expected" in result.stderr
    assert result.stderr.count("How many records has the other party?") == 2
    assert "third party" not in result.stderr  # an option says it
    assert "Must the label" not in result.stderr  # nothing is trained
    assert "an identifier in common? (yes, no) [yes]" in result.stderr


def test_a_person_who_ends_the_input_ends_the_command() -> None:
    result = on_a_terminal("1000\n\x04", "--third-party", "no")
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
