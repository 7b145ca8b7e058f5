"""The files of ``deploy`` pass their checks, and broken copies of them do not (``deploy/check.sh``)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SKIPPED = "-- skipped:"


def check(step: str, folder: Path = DEPLOY) -> subprocess.CompletedProcess[str]:
    """Run one step of the script on the files of ``folder``; the test is skipped where its tool is absent."""
    environment = os.environ | {"DEPLOY": str(folder), "PYTHON": sys.executable}
    done = subprocess.run([DEPLOY / "check.sh", step], env=environment, capture_output=True, text=True)
    if SKIPPED in done.stdout:
        pytest.skip(done.stdout.partition(SKIPPED)[2].strip().splitlines()[0])
    return done


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of ``deploy`` to break."""
    return Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))


def test_units_verify_and_are_locked_up() -> None:
    done = check("systemd")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu.conf" in done.stdout


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("vfl-node@.service", "WatchdogSec=60", "WatchdogSecs=60", "Unknown key 'WatchdogSecs'"),
        ("vfl-node@.service", "Type=notify", "Type=notified", "notified"),
        ("vfl-node-backup@.timer", "OnCalendar=*-*-* 02:00:00", "OnCalendar=every night", "every night"),
        ("vfl-node@.service", "SystemCallFilter=@system-service\n", "", "exposure"),
        ("drop-ins/gpu.conf", "PrivateDevices=no", "PrivatDevices=no", "PrivatDevices"),
    ],
)
def test_a_broken_unit_is_found(copied: Path, name: str, old: str, new: str, said: str) -> None:
    change(copied / "systemd" / name, old, new)
    if said == "exposure":
        change(copied / "systemd" / name, "CapabilityBoundingSet=\n", "")
    done = check("systemd", copied)
    assert (done.returncode, said in done.stdout) == (1, True), done.stdout + done.stderr


def test_a_node_has_no_setting_that_was_found_to_stop_it() -> None:
    """PrivateUsers does not start without user namespaces; ProcSubset=pid hides the memory that is free."""
    units = [path.read_text().splitlines() for path in (DEPLOY / "systemd").glob("*.service")]
    assert len(units) == 2
    for lines in units:
        assert not [line for line in lines if line.startswith(("PrivateUsers=", "ProcSubset=", "MemoryDenyWriteExecute="))]
