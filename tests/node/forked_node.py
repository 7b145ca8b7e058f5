"""A node in a process forked from one that has imported what a node needs: a tenth of the work of a start."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from vfl_node.cli import main
from vfl_node.execution import folder as job_folder
from vfl_node.execution import train
from vfl_node.node import certificates, partners, service  # noqa: F401 - what a node imports once it runs

DEVICE = "TEST_DEVICE"
"""In the environment: what the device on which this node computes is called."""


def run(environment: Mapping[str, str], arguments: list[str], log: Path, seed: str = "") -> None:
    """Become ``vfl-node`` with these arguments; what it says is added to ``log``.

    Args:
        environment: its variables.
        arguments: of the command.
        log: where it writes.
        seed: of every job at this party, and of what it hides from a partner, so that runs can be compared; the system's where
            it is empty.
    """
    os.environ.update(environment)  # that of this process is the one of its server's start
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if seed:
        repeated = SimpleNamespace(token_bytes=lambda count: seed.encode().ljust(count), token_hex=secrets.token_hex)
        for module in (job_folder, partners):
            module.secrets = repeated  # type: ignore[attr-defined]
    certificates.LOOK_S = 1.0  # of 20 s
    if environment.get(DEVICE):
        train.device_name = lambda _: environment[DEVICE]  # type: ignore[attr-defined]
    sys.argv = ["vfl-node", *arguments]
    main()
