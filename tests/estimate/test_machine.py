"""What this machine does."""

from __future__ import annotations

from pathlib import Path

import pytest

from vfl_node.crypto.groups import Curve25519
from vfl_node.crypto.kernels import named, names
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


@pytest.mark.skipif(len(names()) < 2, reason="this machine runs no compiled kernel")
def test_the_kernel_that_runs_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    powers_s = []
    for name in names():  # the quickest one first
        monkeypatch.setattr("vfl_node.crypto.groups.curve25519.kernel", lambda name=name: named(name))
        powers_s.append(measure(Curve25519(), 1, tmp_path).power_s)
    assert powers_s == sorted(powers_s)
