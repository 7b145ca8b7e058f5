"""What this machine does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.kernels.libraries import Libraries
from vfl_node.errors import UsageError
from vfl_node.estimate.machine import measure


def test_this_machine_is_measured(tmp_path: Path) -> None:
    machine = measure(Curve25519(), 3, tmp_path / "not" / "yet")
    assert machine.cores == 3
    for name in ("hash_s", "power_s", "decode_s", "find_s", "sha256_s", "disk_bytes_per_s"):
        assert getattr(machine, name) > 0
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="cannot write in /proc") as caught:
        measure(Curve25519(), 1, Path("/proc/none"))
    assert caught.value.code == "E_FILE"


def test_the_kernel_that_runs_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = Used()
    monkeypatch.setattr("vfl_node.crypto.groups.curve25519.kernel", lambda: used)
    measure(Curve25519(), 1, tmp_path)
    assert used.calls >= {"hash_ids", "ladders", "fault"}


class Used(Libraries):
    """Notes which of its functions were called."""

    def __init__(self) -> None:
        self.calls: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in ("hash_ids", "ladders", "fault"):
            self.calls.add(name)
        return super().__getattribute__(name)
