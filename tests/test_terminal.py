from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from vfl_node.execution.live import AT_REST
from vfl_node.terminal import ShownProgress

ATTACKS = {"longitudinal": None, "same_step_twin": 0.514, "spectral": 0.5}


def view(**changes: Any) -> dict[str, Any]:
    now = {"id": "trial-1", "state": "running", "phase": "train", "done": 1, "total": 10, "unit": "batches"}
    return AT_REST | now | changes


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr("vfl_node.terminal.Console", lambda stderr: Console(file=written, force_terminal=True, width=100))
    return written


def test_a_short_line_a_change_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    alone = {"note": "training alone", "alone": {"epoch": 1, "epochs": 10}}
    with ShownProgress("trial") as shown:
        shown.update(view(phase="waiting", total=0, done=0, unit=""))  # nothing to say yet
        shown.update(view(loss=0.5))
        shown.update(view(loss=0.5))  # no tenth further, and nothing new to say
        shown.update(view(loss=0.5, **alone))
        shown.update(view(loss=0.5, **alone | {"alone": {"epoch": 9, "epochs": 10}}))  # at once
        shown.update(view(done=2000, total=4000, loss=0.123456789, attacks=ATTACKS, remark="training on the union"))
        shown.update(view(state="done", phase="", total=0, done=0, remark=""))
    assert capsys.readouterr().err.splitlines() == [
        "trial: train 1 of 10 batches, loss 0.5000",
        "trial: training alone",
        "trial: alone: epoch 1 of 10",
        "trial: training on the union",
        "trial: train 2,000 of 4,000 batches, loss 0.1235",
    ]


def test_json_lines_for_a_program(capsys: pytest.CaptureFixture[str], terminal: io.StringIO) -> None:
    """Also where a person started it."""
    with ShownProgress("trial", as_json=True) as shown:
        shown.update(view())
        shown.update(view(loss=0.5))  # no tenth further, and nothing new to say
        shown.update(view(done=2, loss=0.500049, attacks=ATTACKS | {"spectral": 0.50001}, remark="training on the union"))
    assert not terminal.getvalue()
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert not {"loss", "attacks", "remark", "note"} & set(first)
    assert second == {
        "id": "trial-1",
        "state": "running",
        "phase": "train",
        "done": 2,
        "total": 10,
        "unit": "batches",
        "loss": 0.5,
        "attacks": ATTACKS,
        "remark": "training on the union",
    }


def test_a_terminal_shows_the_audit_below_the_bars_and_each_remark_once(terminal: io.StringIO) -> None:
    known = {"remark": "training on [the] union"}
    with ShownProgress("trial") as shown:
        shown.update(view(**known))
        known |= {"note": "waiting for lab", "loss": 0.1234, "validation_loss": 0.2345, "attacks": ATTACKS}
        shown.update(view(**known))
        shown.update(view(**known, done=4))
    text = terminal.getvalue()
    assert text.count("training on [the] union") == 1
    assert text.count("waiting for lab") == 1
    assert "loss 0.1234, validation 0.2345" in text
    assert "AUC of own attacks on what is sent, 0.5 is chance: same step twin 0.51, spectral 0.50" in text


REBUILT = {f"column-{number:02d}": {"constant": 0.1, "static": 0.9 - number / 100} for number in range(12)}


def test_a_terminal_shows_the_worst_of_many_columns_that_are_rebuilt(terminal: io.StringIO) -> None:
    with ShownProgress("trial") as shown:
        shown.update(view(rebuilt=REBUILT))
    text = " ".join(terminal.getvalue().split())  # lines are wrapped
    assert "(beside the best constant): column-00 0.90 (0.10), column-01 0.89 (0.10), column-02 0.88 (0.10)" in text
    assert "and 9 more" in text
    assert "column-03" not in text


def test_json_lines_have_the_worst_ten_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with ShownProgress("trial", as_json=True) as shown:
        shown.update(view(rebuilt=REBUILT))
    assert list(json.loads(capsys.readouterr().err)["rebuilt"]) == list(REBUILT)[:10]
