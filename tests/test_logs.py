from __future__ import annotations

import io
import json
from typing import Any

import pytest
import structlog

from vfl_node.errors import UsageError
from vfl_node.process.logs import DEBUG_S, VARIABLE, Seldom, configure_logs, threshold


def test_a_line_is_written_again_after_a_while_only_and_of_many_some(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    seldom = Seldom(every_s=60, most=3)
    assert [seldom.lets(line) for line in "aabacda"] == [True, False, True, False, True, False, False]
    now[0] = 59
    assert not seldom.lets("a")
    now[0] = 60
    assert [seldom.lets(line) for line in "ade"] == [True, True, True]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_an_internal_error_shows_no_variable(monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]) -> None:
    """Frames of the protocols hold identifiers and keys."""
    heard = stream()
    monkeypatch.setattr("sys.stderr", heard)
    configure_logs()
    try:
        ids = ["canary-0001-patient"]
        raise RuntimeError(f"{len(ids)} of them")
    except RuntimeError:
        structlog.get_logger().exception("internal error", job="j")
    finally:
        monkeypatch.undo()
        structlog.reset_defaults()
    said = heard.getvalue()
    assert "RuntimeError" in said
    assert "test_logs.py" in said  # where it happened
    assert "canary" not in said.replace('ids = ["canary', "")  # a terminal shows the line of code itself
    if stream is io.StringIO:
        assert json.loads(said)["event"] == "internal error"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is logged."""
    monkeypatch.delenv(VARIABLE, raising=False)
    return io.StringIO()


def speak() -> None:
    for level in ("debug", "info", "warning", "error"):
        getattr(structlog.get_logger(), level)(f"a line of {level}")


def levels(heard: io.StringIO) -> list[str]:
    """The levels of the lines so far, which are forgotten."""
    found = [json.loads(line)["level"] for line in heard.getvalue().splitlines()]
    heard.seek(0)
    heard.truncate()
    return found


@pytest.mark.parametrize(
    ("options", "variable", "most"),
    [
        ({}, "", 3),
        ({"level": "debug"}, "", 4),
        ({"level": "error"}, "", 1),
        ({"level": "error"}, "Debug", 4),
        ({"quiet": True, "level": "debug"}, "debug", 2),
    ],
)
def test_lines_below_the_level_are_left_out(
    heard: io.StringIO, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], variable: str, most: int
) -> None:
    monkeypatch.setenv(VARIABLE, variable)
    configure_logs(sink=heard, **options)
    speak()
    assert levels(heard) == ["debug", "info", "warning", "error"][-most:]


def test_a_level_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "loud")
    with pytest.raises(UsageError, match="'loud'") as caught:
        configure_logs()
    assert (caught.value.code, "debug, info" in caught.value.hint) == ("E_CONFIG", True)


def test_debug_lines_are_written_for_a_while_also_by_loggers_made_before(
    heard: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    configure_logs(sink=heard, level="warning")
    bound = structlog.get_logger().bind(job="j")
    said = []
    for toggled, seconds in ((False, 0.0), (True, 0.0), (False, DEBUG_S - 1), (False, 1.0), (True, 0.0), (True, 0.0)):
        now[0] += seconds
        if toggled:
            threshold.toggle_debug()
        bound.debug("a line")
        said.append(levels(heard))
    assert said == [[], ["debug"], ["debug"], [], ["debug"], []]


@pytest.mark.parametrize(("form", "first"), [("auto", "{"), ("json", "{"), ("text", "2")])
def test_a_line_has_the_form_that_the_settings_say(heard: io.StringIO, form: Any, first: str) -> None:
    configure_logs(sink=heard, form=form)
    structlog.get_logger().info("node up", party="clinic")
    line = heard.getvalue()
    assert (line[0], "\x1b" in line, line.count("\n")) == (first, False, 1)
    if first == "{":
        assert json.loads(line).keys() == {"ts", "level", "event", "party"}
