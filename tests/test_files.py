"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from vfl_node.files import write_whole


def test_what_is_written_replaces_what_was_there(tmp_path: Path) -> None:
    for data in (b"first", b"second"):
        write_whole(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "taken", b"data")
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "file", b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
