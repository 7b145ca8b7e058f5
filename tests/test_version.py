"""Which releases talk to each other."""

from __future__ import annotations

import pytest

from vfl_node import version
from vfl_node.version import OLDEST_PROTOCOL_VERSION, OLDEST_SENT, PROTOCOL_VERSION, VERSION, common_version


@pytest.mark.parametrize(
    ("newest", "oldest", "common"),
    [
        (12, 0, 12),
        (12, 12, 12),
        (14, 11, 12),
        (14, 13, None),
        (14, 0, None),
        (11, 9, 11),
        (10, 9, 10),
        (9, 5, None),
        (9, 0, None),
    ],
)
def test_two_releases_talk_in_the_newest_version_that_both_speak(
    monkeypatch: pytest.MonkeyPatch, newest: int, oldest: int, common: int | None
) -> None:
    """This one speaks 10 to 12."""
    monkeypatch.setattr(version, "PROTOCOL_VERSION", 12)
    monkeypatch.setattr(version, "OLDEST_PROTOCOL_VERSION", 10)
    assert common_version(newest, oldest) == common


def test_this_release_says_what_it_speaks() -> None:
    assert VERSION.split(".")[1] == str(PROTOCOL_VERSION)
    assert OLDEST_PROTOCOL_VERSION <= PROTOCOL_VERSION
    assert (OLDEST_SENT or PROTOCOL_VERSION) == OLDEST_PROTOCOL_VERSION
