from __future__ import annotations

import io
import json

import pytest
import structlog

from vfl_node.logs import configure_logs


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
