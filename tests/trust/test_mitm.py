"""The script of attacks, as a reviewer runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trust.nodes import PROTECTIONS

SCRIPT = Path(__file__).with_name("mitm.py")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"GRPC_VERBOSITY": "NONE"}
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, env=environment)


def test_every_attack_is_refused_at_both() -> None:
    done = run()
    lines = done.stdout.splitlines()
    assert (done.returncode, len(lines)) == (0, 6), done.stdout + done.stderr
    assert all(line.count("refused") == 2 for line in lines)


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_control_without_its_protection_each_attack_wins(protection: str) -> None:
    done = run("--without", protection)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].count("met") == 2
    assert "the attack wins" in done.stdout
