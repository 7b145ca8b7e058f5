from __future__ import annotations

import io
import json

import pytest
import structlog

from vfl_node.process.logs import Seldom, configure_logs


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
