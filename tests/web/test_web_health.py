"""What a supervisor, an orchestrator and a stranger learn of a node."""

from __future__ import annotations

import pytest

from tests.web.shown_node import View, browser


def test_live_and_ready_are_for_everybody_and_say_no_more_than_codes(view: View) -> None:
    stranger = browser(view, headers={})
    assert (stranger.get("/live").status_code, stranger.get("/live").json()) == (200, {"live": True})
    assert (stranger.get("/ready").status_code, stranger.get("/ready").json()) == (200, {"ready": True, "codes": []})
    view.lives, view.faults = False, ["E_DISK_FULL"]
    assert (stranger.get("/live").status_code, stranger.get("/live").json()) == (503, {"live": False})
    assert (stranger.get("/ready").status_code, stranger.get("/ready").json()) == (
        503,
        {"ready": False, "codes": ["E_DISK_FULL"]},
    )


def test_a_stranger_gets_the_status_of_health_and_its_owner_the_causes(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    view.status = "degraded"
    assert browser(view).get("/health").json()["causes"] == view.causes
    monkeypatch.delattr(View, "health")  # nothing else is found out for a stranger
    assert browser(view, headers={}).get("/health").json() == {"status": "degraded"}
